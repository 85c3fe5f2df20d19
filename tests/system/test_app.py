"""The applications of the README and of docs/your-app.md, as they stand there."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from edge_sdk.model.bundle import read_bundle
from edge_sdk.replay.nodes.broker import find_mosquitto
from tests.hardware.provision.edge import Installed, install
from tests.model.bundle_files import repacked
from tests.system.app_process import ROOT, WRIST, play

pytest.importorskip("torch", reason="the aggregator needs torch")
pytestmark = pytest.mark.skipif(find_mosquitto() is None, reason="mosquitto is not installed (apt install mosquitto)")


@pytest.fixture
def edge(tmp_path: Path) -> Installed:
    """What devices get: nothing of the aggregator, and none but the packages that it asks for."""
    return install(tmp_path / "edge")


def test_the_application_of_the_readme_lives(edge: Installed, tmp_path: Path) -> None:
    """An accelerometer of 32 Hz, whose time passes a hundred times as fast."""
    play(tmp_path, speed=100, stretches=20, machine=edge)


@pytest.mark.long
def test_the_application_of_the_readme_lives_in_real_time(edge: Installed, tmp_path: Path) -> None:
    play(tmp_path, speed=1, stretches=6, machine=edge)


# Beats of an ECG ------------------------------------------------------------------------------------------------
LEADS, ECG_RATE, BEAT, MINUTES = 3, 250, 0.8, 2
ECG = {"channels": ["I", "II", "V1"], "units": ["mV"] * 3, "rate_hz": 128.0, "window": 64, "stride": 16}


def write_ecg(directory: Path) -> tuple[Path, Path]:
    """Leads with a beat each 0.8 s, every fifth a wide one, and the marks of them."""
    t = np.arange(MINUTES * 60 * ECG_RATE) / ECG_RATE
    beats = np.arange(0.6, MINUTES * 60 - 1, BEAT)
    wide = np.arange(len(beats)) % 5 == 4
    shape = sum(np.exp(-(((t - at) / (0.06 if broad else 0.02)) ** 2)) for at, broad in zip(beats, wide, strict=True))
    leads = np.stack([shape * gain for gain in (0.6, 1.0, -0.4)], 1)
    (directory / "100.dat").write_bytes(np.round(leads * 1000).astype("<i2").tobytes())
    lines = "".join(f"100.dat 16 1000(0)/mV 16 0 0 0 0 {name}\n" for name in ECG["channels"])
    (directory / "100.hea").write_text(f"100 {LEADS} {ECG_RATE}\n{lines}")
    marks = [f"{at:.3f} {'ventricular' if broad else 'normal'}\n" for at, broad in zip(beats, wide, strict=True)]
    (directory / "marks.txt").write_text("".join(marks))
    return directory / "100", directory / "marks.txt"


def test_the_ecg_example_learns_from_marks_that_come_first(tmp_path: Path) -> None:
    """Beats are labelled before their samples come, at a rate that is not the model's; there is no hospital here."""
    bundle = tmp_path / "ecg.bundle"
    bundle.write_bytes(repacked(read_bundle(WRIST), {"signal": ECG, "name": "ecg"}))
    record, marks = write_ecg(tmp_path)
    example = (ROOT / "docs" / "examples" / "ecg_beats.py").read_text()
    (tmp_path / "ecg_beats.py").write_text(example.replace(":1883", ":1"))
    command = [sys.executable, "ecg_beats.py", str(bundle), str(record), str(marks), "60"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines: list[str] = []
        for line in process.stdout:
            lines.append(line)
            if line.startswith("kept:"):
                break
        process.kill()
    kept = ast.literal_eval(lines[-1].removeprefix("kept: "))
    beats = MINUTES * 60 / BEAT
    assert kept["normal"] >= beats * 0.8 and kept["ventricular"] >= beats * 0.2
    assert set(kept) == {"normal", "ventricular", ""}
    assert sum(" initial" in line for line in lines) > 100
