"""A device's service whose trace is not what its bundle takes: order of the channels, unit, rate."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edge_sdk.errors import UsageError
from edge_sdk.nodes.configuration.settings import read_toml
from edge_sdk.nodes.daemon.device_file import DeviceFile
from edge_sdk.nodes.daemon.device_service import DeviceService
from edge_sdk.replay.traces.synth import write_traces

WRIST = Path(__file__).parents[3] / "models" / "shipped" / "wrist.bundle"  # ax, ay, az in g at 32 Hz


def make(folder: Path, data: str = "", unit: str = "g") -> DeviceService:
    write_traces(folder, devices=1, minutes=3)
    noted = {"synth-01": {"sensor": "x", "channels": ["ax", "ay", "az"], "units": [unit] * 3, "rate_hz": 32}}
    (folder / "sensors.json").write_text(json.dumps(noted))
    (folder / "device.toml").write_text(
        f'name = "d"\nhospital = "h"\nbroker = "mqtt://127.0.0.1:1"\nbundle = "{WRIST}"\ndirectory = "state"\n'
        f'[data]\ntrace = "synth-01.csv"\n{data}'
    )
    return DeviceService(read_toml(folder / "device.toml", DeviceFile))


def test_a_trace_that_is_what_the_bundle_takes(tmp_path: Path) -> None:
    assert make(tmp_path).device.part.train is not None


@pytest.mark.parametrize(
    ("data", "unit", "said"),
    [
        ('channels = ["az", "ay", "ax"]', "g", r"it takes ax, ay, az, in that order, and the trace has az, ay, ax"),
        ("", "m/s^2", r"it takes ax in g, and the trace has it in m/s\^2, as noted beside it"),
        ("rate_hz = 50.0", "g", r"it takes 32 Hz, and the trace has 50; --rate 32 \(rate_hz in \[data\]\)"),
    ],
)
def test_another_one_is_refused_before_anything_is_trained(tmp_path: Path, data: str, unit: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        make(tmp_path, data, unit)
