"""Keys for secret sums in a service: made, enrolled, replaced and given to runs without anybody's hands."""

from __future__ import annotations

import base64
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aggregator.service.fleet.enrolment import REMOVE, REPLACE
from aggregator.service.runs.runs import Wanted, add_run, find_run
from aggregator.service.runs.supervisor import write_settings
from edge_sdk.contract.method import UP
from edge_sdk.nodes.configuration.settings import read_toml
from edge_sdk.nodes.daemon.device_file import DeviceFile
from edge_sdk.nodes.daemon.settings_files import AggregatorFile
from edge_sdk.nodes.secrets.mask_keys import AggregatorKeys, make_key, read_public
from edge_sdk.nodes.secrets.masks import aggregator_masks, device_masks
from edge_sdk.tools.credentials.enrol import Applicant, Desk
from edge_sdk.tools.credentials.own_key import KeyTool, LibraryTool, OpensslTool
from edge_sdk.tools.diagnostics.mask_check import check_masks
from tests.aggregator.service.conftest import CLASSES


def test_a_run_of_the_service_has_its_keys(service: Any, tmp_path: Path) -> None:
    keys = AggregatorKeys(key=tmp_path / "cloud.key", devices=tmp_path / "devices.pub")
    for path in (keys.key, keys.devices):
        path.write_text("")
    wanted = Wanted(method="fedavg", uploads={"bits": 8, "secret": True})
    row = find_run(service.database, add_run(service.database, wanted, CLASSES, "test"))
    row["hospitals"] = {"north": 3}
    service.desk.bring_up()
    bundle = service.registry.path_of(str(service.registry.find()["sha256"]))
    file = read_toml(write_settings(replace(service.file, masks=keys), row, bundle), AggregatorFile)
    assert file.masks is not None and file.masks.enrolled is not None
    assert replace(file.masks, enrolled=None) == keys and file.run.uploads["secret"] is True


def enrol(service: Any, desk: Desk, folder: Path, token: str = "") -> DeviceFile:
    """The settings of a device that has enrolled."""
    applicant = Applicant("watch-7", folder)
    applicant.begin(desk, token or service.desk.make_token("ada", "north", approved=True))
    (folder / "w.csv").write_text("")
    return read_toml(applicant.take(desk, applicant.wait(desk, 0), folder / "w.csv"), DeviceFile)


def streams(one: Any, peer: str) -> np.ndarray[Any, Any]:
    found: np.ndarray[Any, Any] = one.stream(peer, b"question", b"tag", 64)
    return found


openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")


@openssl
def test_a_device_that_enrols_shares_a_key_with_the_runs_of_the_service(
    served: tuple[Any, Desk], tmp_path: Path
) -> None:
    service, desk = served
    file = enrol(service, desk, tmp_path / "w")
    assert file.masks is not None and file.masks.key.stat().st_mode & 0o077 == 0
    own, above = device_masks(file.masks, "r"), aggregator_masks(service.desk.masks.keys, "r")
    assert list(above.known) == ["watch-7"]
    assert np.array_equal(streams(own, UP), streams(above, "watch-7"))
    found = check_masks(file.masks, tmp_path / "w")
    assert found.good and "the aggregator has its public half" in found.detail
    summary = check_masks(service.desk.masks.keys, tmp_path)
    assert summary.good and "those of 1 devices" in summary.detail


@openssl
def test_a_replaced_device_has_another_key_and_a_run_that_goes_on_takes_it_over(
    served: tuple[Any, Desk], tmp_path: Path
) -> None:
    service, desk = served
    old = enrol(service, desk, tmp_path / "w").masks
    assert old is not None
    above = aggregator_masks(service.desk.masks.keys, "r")
    before = streams(above, "watch-7")
    token = service.desk.decide("watch-7", REPLACE, "ada")["token"]
    assert not read_public(service.desk.masks.list_path)
    assert above.knows("watch-7"), "its last answer may be in a sum on its way"
    new = enrol(service, desk, tmp_path / "other", token).masks
    assert new is not None and new.key.read_text() != old.key.read_text()
    assert above.knows("watch-7") and not np.array_equal(before, streams(above, "watch-7"))
    assert np.array_equal(streams(device_masks(new, "r"), UP), streams(above, "watch-7"))
    stale = check_masks(old, tmp_path / "w")
    assert stale.good is None and "watch-7" in stale.detail, "its claim is nobody's any more"
    service.desk.decide("watch-7", REMOVE, "ada")
    assert not read_public(service.desk.masks.list_path)


@openssl
def test_the_doctor_says_what_is_wrong_with_a_devices_key(served: tuple[Any, Desk], tmp_path: Path) -> None:
    service, desk = served
    masks = enrol(service, desk, tmp_path / "w").masks
    assert masks is not None
    kept = masks.key.read_bytes()
    make_key(masks.key)
    found = check_masks(masks, tmp_path / "w")
    assert found.good is False and "not the one that was enrolled" in found.detail
    masks.key.write_bytes(kept)
    with service.database.transaction() as t:
        from aggregator.service.fleet.enrolment import nodes

        t.execute(nodes.update().values(mask_key=base64.b64encode(b"x" * 32).decode()))
    found = check_masks(masks, tmp_path / "w")
    assert found.good is False and "the aggregator does not have its key" in found.detail
    masks.key.chmod(0o640)
    with pytest.raises(Exception, match="chmod 600"):
        check_masks(masks, tmp_path / "w")


@openssl
@pytest.mark.parametrize("tool", [OpensslTool(), LibraryTool()])
def test_either_tool_makes_a_key_that_the_other_side_can_use(tool: KeyTool, tmp_path: Path) -> None:
    from edge_sdk.nodes.secrets.mask_keys import read_private

    public = tool.make_mask_key(tmp_path / "key")
    assert base64.b64decode(public) == read_private(tmp_path / "key").public_key().public_bytes_raw()


def test_keys_that_the_operator_has_listed_stand_beside_enrolled_ones(service: Any, tmp_path: Path) -> None:
    keys = AggregatorKeys(key=tmp_path / "k", devices=tmp_path / "own.pub", enrolled=tmp_path / "enrolled.pub")
    a, b, c = (base64.b64encode(bytes([i]) * 32).decode() for i in (1, 2, 3))
    keys.devices.write_text(f"d1 {a}\n")
    assert keys.enrolled is not None
    keys.enrolled.write_text(f"d1 {b}\nd2 {c}\n")
    assert keys.public_keys() == {"d1": bytes([1]) * 32, "d2": bytes([3]) * 32}
