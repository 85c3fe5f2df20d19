"""The settings file of a device that has enrolled: its recordings become what its bundle takes."""

from __future__ import annotations

import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from edge_sdk.model.tasks.reconstruction import Reconstruction
from edge_sdk.model.tasks.signal_spec import SignalSpec
from edge_sdk.model.tasks.task import StepClasses, Values
from edge_sdk.nodes.configuration.settings import read_toml
from edge_sdk.nodes.daemon.device_file import DeviceFile
from edge_sdk.tools.credentials import enrolled_files
from edge_sdk.tools.credentials.enrolled_files import write_settings

SIGNAL = SignalSpec(("move", "hr"), ("", ""), 0.2, 480, 240)
GIVEN = {"kind": "device", "hospital": "north", "broker": "mqtt://127.0.0.1"}


@pytest.mark.parametrize(
    ("signal", "task", "wanted"),
    [
        (SIGNAL, StepClasses(("wake", "rem"), 16), {"window": 480, "stride": 240, "rate_hz": 0.2, "steps": 16}),
        (None, Reconstruction(0.99), {"window": 100, "stride": 50, "abnormal": []}),
        (None, Values(("bpm",), names=("hr",)), {"window": 100, "stride": 50, "target": ["hr"]}),
        (None, Values(("bpm",)), {"window": 100, "stride": 50}),
    ],
)
@pytest.mark.parametrize("known", [True, False])
def test_recordings_become_what_the_bundle_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, signal: Any, task: Any, wanted: dict[str, Any], known: bool
) -> None:
    found = SimpleNamespace(signal=signal, task=task, manifest={"inputs": [{"shape": [2, 100]}]})
    monkeypatch.setattr(enrolled_files, "read_bundle", lambda path: found)
    for name in ("a.bundle", "ann.csv", "recordings.csv", "trusted.pem"):
        (tmp_path / name).touch()
    path = write_settings(tmp_path, "ann", GIVEN, "a.bundle", tmp_path / "ann.csv" if known else None)
    text = path.read_text()
    if not known:
        assert "[data]" in text and "data" not in tomllib.loads(text)
        text = text.replace("# [data]", "[data]")
        text = "\n".join(
            line.removeprefix("# ") if " = " in line and "NAME" not in line else line for line in text.split("\n")
        )
        path.write_text(text)
    data = tomllib.loads(path.read_text())["data"]
    assert {key: data[key] for key in wanted} == wanted and {*data} <= {*wanted, "trace", "held_out", "validation"}
    read_toml(path, DeviceFile)
