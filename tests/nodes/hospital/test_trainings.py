"""What a hospital and a device take of trainings that go on side by side, without a broker."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from edge_sdk.contract.run import Run
from edge_sdk.errors import UsageError
from edge_sdk.model.bundle import read_bundle
from edge_sdk.nodes.configuration.settings import read_toml
from edge_sdk.nodes.daemon.settings_files import HospitalFile
from edge_sdk.nodes.device.device import Device
from edge_sdk.nodes.hospital.bundles import Kind
from edge_sdk.nodes.hospital.device_assignment import read_left
from edge_sdk.nodes.hospital.hospital import Hospital
from edge_sdk.nodes.hospital.options import DeviceList, HospitalPolicy
from edge_sdk.nodes.policy.lanes import list_trainings
from edge_sdk.nodes.policy.shared_trust import TAKEN_FILE
from edge_sdk.nodes.policy.trust import Trust
from edge_sdk.replay.planning.toml_files import write_toml
from edge_sdk.wire.signatures import Signer, make_private_key, sign_run

SHIPPED = Path(__file__).parents[3] / "models" / "shipped"
WRIST, SPLIT = SHIPPED / "wrist.bundle", SHIPPED / "split-esr.bundle"
WHERE = {"broker": "mqtt://127.0.0.1:1", "bundle": WRIST}
CLASSES = tuple(f"c{i}" for i in range(read_bundle(WRIST).manifest["classes"]))
RUN = Run(id="r", method="fedavg", bundle=read_bundle(WRIST).sha256, classes=CLASSES)


def hospital(base: Path, bundle: Path = WRIST, kinds: Any = None, **policy: Any) -> Hospital:
    devices = DeviceList(("a", "b", "c"), kinds=kinds or {})
    given: dict[str, Any] = {"broker": WHERE["broker"], "bundle": bundle, "policy": HospitalPolicy(**policy)}
    return Hospital("h", aggregator="cloud", directory=base, devices=devices, **given)


def test_a_hospital_with_one_training_has_no_run_for_some_of_its_devices(tmp_path: Path) -> None:
    one = hospital(tmp_path)
    with pytest.raises(UsageError, match=r"it is for 2 of the 3 devices of hospital h, .* with trainings = 2"):
        one.assemble(replace(RUN, devices=("a", "b")))
    assert one.assemble(replace(RUN, devices=("a", "b", "c", "x"))).env.devices == 3


def test_a_run_has_its_devices_and_nobody_elses(tmp_path: Path) -> None:
    two = hospital(tmp_path, trainings=2)
    assert two.assemble(RUN).env.sizes == {"a": 1, "b": 1, "c": 1}
    assert two.assemble(replace(RUN, id="s", devices=("c", "a"))).env.sizes == {"a": 1, "c": 1}
    with pytest.raises(UsageError, match="it is for none of the devices of this hospital"):
        two.assemble(replace(RUN, id="t", devices=("x",)))


def test_a_run_that_is_refused_takes_no_devices(tmp_path: Path) -> None:
    two = hospital(tmp_path, trainings=2)
    first, second = two.trainings
    lane = two.runtime.of_lanes.find(first.number)
    wants = replace(RUN, id="s", uploads={"bits": 4, "secret": True, "cohort": 2, "hospitals": 2})
    with ExitStack() as stack:
        lane.open(stack, replace(RUN, devices=("a", "b")))
        first.over.set()  # so another run may have its devices
        with pytest.raises(UsageError, match="this one no keys"):
            second.assemble(wants)
        assert read_left(first.folder) == "" and second.run is None
        assert lane.membership.children == ("a", "b")
        second.assemble(replace(wants, uploads={}))
        assert read_left(first.folder) == "r" and lane.membership.children == ()


def test_a_kind_has_its_own_bundle(tmp_path: Path) -> None:
    two = hospital(tmp_path, kinds={"phones": Kind(bundle=SPLIT, devices=("c",))})
    assert two.list_devices(RUN) == ("a", "b")
    assert two.list_devices(replace(RUN, bundle=read_bundle(SPLIT).sha256)) == ("c",)
    assert two.list_devices(replace(RUN, method="rollout")) == ("a", "b", "c")
    assert two.count_bundles() == {RUN.bundle: 2, read_bundle(SPLIT).sha256: 1}


def test_a_device_takes_no_run_for_others(tmp_path: Path) -> None:
    device = Device("a", hospital="h", directory=tmp_path, **WHERE)
    with pytest.raises(UsageError, match="device a: it is for other devices"):
        device.part.assemble(replace(RUN, devices=("b", "c")))


def test_a_signature_is_over_the_devices_too(tmp_path: Path) -> None:
    signer = Signer(make_private_key())
    key = tmp_path / "trusted.pem"
    key.write_bytes(signer.public_pem)
    two = hospital(tmp_path / "h", trainings=2, trusted_key=key)
    signed = sign_run(replace(RUN, devices=("a",)), signer, 5)
    two.trainings[1].check_run(signed)
    with pytest.raises(UsageError, match="was changed after the key"):
        two.trainings[1].check_run(replace(signed, devices=("a", "b")))
    two.trainings[0].check_run(
        sign_run(replace(RUN, id="q"), signer, 4)
    )  # begun before: each lane has numbers of its own


def test_a_new_lane_knows_what_its_hospital_has_taken(tmp_path: Path) -> None:
    signer = Signer(make_private_key())
    key = tmp_path / "trusted.pem"
    key.write_bytes(signer.public_pem)
    hospital(tmp_path / "h", trusted_key=key).trainings[0].check_run(sign_run(RUN, signer, 9))
    with pytest.raises(UsageError, match="old"):
        hospital(tmp_path / "h", trainings=2, trusted_key=key).trainings[1].check_run(sign_run(RUN, signer, 8))


@pytest.mark.parametrize("again", [True, False], ids=["restarted", "running"])
def test_an_old_training_of_one_lane_is_none_of_another(tmp_path: Path, again: bool) -> None:
    signer = Signer(make_private_key())
    key = tmp_path / "trusted.pem"
    key.write_bytes(signer.public_pem)
    options: dict[str, Any] = {"trainings": 2, "trusted_key": key}
    two = hospital(tmp_path / "h", **options)
    first, second = (sign_run(replace(RUN, id=f"r{n}", devices=("a",)), signer, n) for n in (5, 6))
    for run in (first, second):
        two.trainings[0].check_run(run)
    two = hospital(tmp_path / "h", **options) if again else two
    for old in (first, second):
        with pytest.raises(UsageError, match=f"run {old.id} is an old one"):
            two.trainings[1].check_run(old)
    two.trainings[0].check_run(second)  # it goes on in its own
    two.trainings[1].check_run(sign_run(second, signer, 7))  # begun anew by its operator


def test_a_training_is_taken_again_after_a_kill_between_its_two_notes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    signer = Signer(make_private_key())
    key = tmp_path / "trusted.pem"
    key.write_bytes(signer.public_pem)
    options: dict[str, Any] = {"trainings": 2, "trusted_key": key}
    first, second = (sign_run(replace(RUN, id=f"r{n}"), signer, n) for n in (5, 6))
    hospital(tmp_path / "h", **options).trainings[0].check_run(first)
    with monkeypatch.context() as killed, pytest.raises(KeyboardInterrupt):
        killed.setattr(Trust, "note", Mock(side_effect=KeyboardInterrupt))
        hospital(tmp_path / "h", **options).trainings[0].check_run(second)
    two = hospital(tmp_path / "h", **options)
    two.trainings[0].check_run(second)
    for old in (first, second):
        with pytest.raises(UsageError, match=f"run {old.id} is an old one"):
            two.trainings[1].check_run(old)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"k": 1}', '{"k": {"run": "r", "number": "x", "before": 0}}'])
def test_nothing_is_taken_where_the_note_of_what_was_taken_is_damaged(tmp_path: Path, text: str) -> None:
    signer = Signer(make_private_key())
    key = tmp_path / "trusted.pem"
    key.write_bytes(signer.public_pem)
    two = hospital(tmp_path / "h", trainings=2, trusted_key=key)
    two.trainings[0].check_run(sign_run(RUN, signer, 5))
    note = two.trainings[0].folder / TAKEN_FILE
    note.write_text(text)
    for training in two.trainings:
        with pytest.raises(UsageError, match=r"taken\.json: is damaged"):
            training.check_run(sign_run(replace(RUN, id="s"), signer, 6))
    note.unlink()
    two.trainings[0].check_run(sign_run(replace(RUN, id="s"), signer, 6))


def test_a_training_that_is_heard_of_after_a_later_one_is_taken(tmp_path: Path) -> None:
    signer = Signer(make_private_key())
    key = tmp_path / "trusted.pem"
    key.write_bytes(signer.public_pem)
    two = hospital(tmp_path / "h", trainings=2, trusted_key=key)
    runs = [sign_run(replace(RUN, id=f"r{n}"), signer, n) for n in (4, 5, 6)]
    two.trainings[1].check_run(runs[1])
    two.trainings[0].check_run(runs[0])
    two.trainings[1].check_run(runs[2])
    two.trainings[0].check_run(runs[0])  # offered again


def test_settings_say_what_is_wrong_with_them(tmp_path: Path) -> None:
    assert list_trainings(1, 4) == [0] and list_trainings(3, 1) == [0, 4, 3]
    for count, evaluations in ((0, 0), (6, 0), (2, 4)):
        with pytest.raises(UsageError, match=f"trainings = {count}: expected 1 to "):
            list_trainings(count, evaluations)
    same = {name: Kind(bundle=WRIST, devices=("a",)) for name in ("x",)}
    with pytest.raises(UsageError, match=r"kinds\.x\.bundle = .* other devices have that already"):
        hospital(tmp_path / "1", kinds=same)
    with pytest.raises(UsageError, match="trains a split model, so trainings = 1"):
        hospital(tmp_path / "2", bundle=SPLIT, trainings=2)
    path = tmp_path / "h.toml"
    table = {"name": "h", "aggregator": "cloud", "devices": ["a", "b"], "directory": "h", "trainings": 2, **WHERE}
    write_toml(path, table | {"kinds": {"phones": {"bundle": SPLIT, "devices": ["b"]}}})
    found = read_toml(path, HospitalFile)
    assert found.trainings == 2 and found.kinds == {"phones": Kind(bundle=SPLIT, devices=("b",))}
    write_toml(path, table | {"kinds": {"phones": {"bundle": SPLIT, "devices": ["z"]}}})
    with pytest.raises(UsageError, match=r"kinds\.phones: z is none of the devices"):
        read_toml(path, HospitalFile)
