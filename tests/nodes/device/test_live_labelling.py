"""A device that observes, in runs whose devices label their own windows."""

from __future__ import annotations

from dataclasses import replace

from edge_sdk.nodes.device.device import Device
from tests.nodes.device.test_live_device import BEGAN, NAMES, device, make_run, observe_in_pieces

__all__ = ["device"]  # the fixture

SETTLE = {"optimiser": "adam", "label_times": 1}


def test_a_run_in_which_devices_label_has_their_windows_without_a_label(device: Device) -> None:
    observe_in_pieces(device, 120)
    device.label("walk", BEGAN, BEGAN + 20)
    device.label("sit", BEGAN + 20, BEGAN + 40)
    parts = device.parts(replace(make_run(device), settle=SETTLE), cancellable=False)
    assert parts.unlabelled is not None and parts.validation is not None
    loose, recording = parts.unlabelled
    assert len(loose) == len(recording) == device.count_windows()[""]
    assert len(parts.x) + len(parts.validation[0]) == sum(device.count_windows()[name] for name in NAMES)
    assert {*parts.y.tolist()} == {*parts.validation[1].tolist()} == {0, 1}
    own = device.env(replace(make_run(device), settle=SETTLE)).own
    assert own is not None and own.count == len(loose)
    device.live.end_run()
    assert not [path.name for path in device.live.directory.glob("*.np[yz]")]


def test_other_runs_leave_them_where_they_are(device: Device) -> None:
    observe_in_pieces(device, 120)
    device.label("walk", BEGAN, BEGAN + 20)
    parts = device.parts(make_run(device), cancellable=False)
    assert parts.unlabelled is None and parts.validation is None and len(parts.x) == device.count_windows()["walk"]
    assert not [path.name for path in device.live.directory.glob("*unlabelled*")]
