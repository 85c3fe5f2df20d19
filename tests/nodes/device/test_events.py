"""What nodes say in their logs of answers that were not counted, and of training that went wrong."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from edge_sdk.contract.children.limits import Limits
from edge_sdk.contract.run import Run
from edge_sdk.errors import UsageError
from edge_sdk.methods.shared.aggregation.guard import Refused
from edge_sdk.methods.shared.aggregation.registration import Overclaimed
from edge_sdk.methods.shared.aggregation.suspension import Suspended
from edge_sdk.methods.shared.evaluation.reports import Diverged
from edge_sdk.nodes.configuration.settings import read_toml
from edge_sdk.nodes.daemon.settings_files import HospitalFile
from edge_sdk.nodes.device.device import Device
from edge_sdk.nodes.hospital.hospital import Hospital
from edge_sdk.nodes.hospital.options import DeviceList

WRIST = Path(__file__).parents[3] / "models" / "shipped" / "wrist.bundle"
WHERE = {"broker": "mqtt://127.0.0.1:1", "bundle": WRIST}


def test_a_hospital_names_the_device_and_the_reason(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    told: list[object] = []
    hospital = Hospital("north", aggregator="cloud", directory=tmp_path, devices=["watch-7"], **WHERE)
    hospital.on_event = told.append
    refused = Refused("watch-7", "its length 4e+12 is over 3 times what is known so far, 20")
    with caplog.at_level(logging.WARNING):
        hospital.receive_event(1, refused)
    assert caplog.messages == [f"north: an answer of watch-7 was not counted: {refused.reason}"] and told == [refused]


def test_a_hospital_says_who_is_suspended_and_how_to_lift_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    hospital = Hospital("north", aggregator="cloud", directory=tmp_path, devices=["watch-7"], **WHERE)
    for event in (Suspended("watch-7", 2, "its length 9 is over 3 times 1"), Overclaimed("watch-7", 4e9, 240.0)):
        with caplog.at_level(logging.WARNING):
            hospital.receive_event(1, event)
    suspended, claim = caplog.messages
    assert suspended.startswith("north: watch-7 is suspended: several uploads in a row were refused, the last because")
    assert suspended.endswith("limits.lift.watch-7 = 2 in this node's settings file, which it reads again at SIGHUP")
    assert claim.startswith("north: watch-7 claims a weight of 4e+09 and counts with 240, as registered; ")
    assert {"suspended.watch-7", "overclaimed.watch-7"} <= {*hospital.runtime.counters}


def test_limits_come_from_the_settings_file_and_reach_the_role(tmp_path: Path) -> None:
    path = tmp_path / "north.toml"
    path.write_text(
        f"""name = "north"
aggregator = "cloud"
broker = "mqtt://127.0.0.1:1"
bundle = "{WRIST}"
directory = "state"
devices = ["watch-7", "watch-8"]

[limits]
samples = {{ watch-7 = 240 }}
lift = {{ watch-8 = 1 }}
suspend_after = 5
"""
    )
    found = read_toml(path, HospitalFile).limits
    assert found == Limits(samples={"watch-7": 240}, lift={"watch-8": 1}, suspend_after=5)
    devices = DeviceList(["watch-7", "watch-8"], limits=found)
    hospital = Hospital("north", aggregator="cloud", directory=tmp_path, devices=devices, **WHERE)
    bundle = hospital.bundle
    classes = tuple(f"c{i}" for i in range(bundle.manifest["classes"]))
    assembly = hospital.assemble(Run(id="r", method="fedavg", bundle=bundle.sha256, classes=classes))
    assert assembly.env.limits == found
    path.write_text(path.read_text().replace("watch-8 = 1", "watch-9 = 1"))
    with pytest.raises(UsageError, match=r"limits\.lift\.watch-9: is none of watch-7, watch-8"):
        read_toml(path, HospitalFile)


def test_a_device_says_that_its_training_diverged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    device = Device("watch-7", hospital="north", directory=tmp_path, **WHERE)
    with caplog.at_level(logging.WARNING):
        device.part.receive_event(1, Diverged(4, "the personal component diverged; it begins at zero again"))
    assert caplog.messages == ["watch-7: round 4: the personal component diverged; it begins at zero again"]
