"""The application of the README, as it stands there: a process that is killed, labelled late, and given a new model."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from pathlib import Path

import numpy as np
import pytest

from edge_sdk.contract.run import Run
from edge_sdk.model.bundle import read_bundle
from edge_sdk.nodes.hospital import Hospital
from edge_sdk.replay.broker import Mosquitto, find_mosquitto
from tests.delivery.fleet import eventually
from tests.docs.pages import blocks
from tests.model.bundle_files import repacked

pytest.importorskip("torch", reason="the aggregator needs torch")
pytestmark = pytest.mark.skipif(find_mosquitto() is None, reason="mosquitto is not installed (apt install mosquitto)")

ROOT = Path(__file__).parents[2]
WRIST = ROOT / "models" / "shipped" / "wrist.bundle"
RATE, EACH, PAUSE = 32, 30, 1
"""Hz; seconds of an activity; seconds for which the sensor is off after it."""
CLASSES = ("rest", "walk")


def write_recording(directory: Path, activities: int) -> Path:
    """A wrist that rests and walks in turns, in the format of WFDB; -32768 stands for no sample."""
    t, random = np.arange(EACH * RATE) / RATE, np.random.default_rng(5)
    pieces = []
    for number in range(activities):
        swing = (number % 2) * np.stack([np.sin(12 * t), 0.5 * np.cos(12 * t), 0.3 * np.sin(6 * t)], 1)
        piece = np.array([0.1, 0.2, 0.95]) + swing + random.normal(0, 0.05, (len(t), 3))
        pieces += [np.round(piece * 1000), np.full((PAUSE * RATE, 3), -32768)]
    (directory / "wrist.dat").write_bytes(np.concatenate(pieces).astype("<i2").tobytes())
    channels = "".join(f"wrist.dat 16 1000(0)/g 16 0 0 0 0 {name}\n" for name in ("ax", "ay", "az"))
    (directory / "wrist.hea").write_text(f"wrist 3 {RATE}\n{channels}")
    return directory / "wrist"


class App:
    """The process, and what it has printed. A second one goes on where the first was killed."""

    def __init__(self, directory: Path, url: str, recording: Path, speed: float) -> None:
        (block,) = [block for block in blocks("README.md") if block.text.startswith("# watch_app.py")]
        self.directory, self.sensor = directory, f"wfdb:{recording},speed={speed:g}"
        (directory / "watch_app.py").write_text(block.text.replace("mqtt://127.0.0.1:1883", url))
        self.lines: list[str] = []

    def start(self, bundle: Path) -> None:
        command = [sys.executable, "watch_app.py", str(bundle), self.sensor]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        with (self.directory / "app.log").open("ab") as log:
            self.process = subprocess.Popen(
                command, cwd=self.directory, env=environment, text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
            )  # fmt: skip
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))

    def kill(self) -> None:
        assert self.process.poll() is None, self.log()
        self.end()

    def end(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.reader.join()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()

    def say(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def log(self) -> str:
        return (self.directory / "app.log").read_text() + "\n".join(self.lines[-5:])

    def predictions(self, model: str = "") -> list[list[str]]:
        """time, label, probability, model, run of each prediction, of one model or of all."""
        found = [line.split(" ")[1:] for line in list(self.lines) if line.startswith("predicted")]
        return [words for words in found if not model or words[3] == model]

    def wait_for(self, count: int, run: str) -> None:
        """Wait for so many further predictions by the models of a run."""
        first = len(self.lines)

        def come() -> bool:
            assert self.process.poll() is None, self.log()
            return sum(line.endswith(f" {run}") for line in self.lines[first:]) >= count

        eventually(come, 60)


@contextmanager
def run_of(id: str, bundle: Path, directory: Path, url: str) -> Iterator[threading.Event]:
    """A hospital and an aggregator that offer one run; yields what is set at its end."""
    from aggregator.server import Aggregator

    job = Run(
        id=id, method="fedavg", rounds=3, seed=1, classes=CLASSES, bundle=read_bundle(bundle).sha256,
        settings={"local_epochs": 2, "fine_tune_epochs": 1, "eta_l": 0.05},
    )  # fmt: skip
    cloud = Aggregator(
        "cloud", broker=url, bundle=bundle, directory=directory / f"cloud-{id}", run=job, hospitals={"north": 1},
        deadline=inf, device="cpu",
    )  # fmt: skip
    north = Hospital(
        "north", aggregator="cloud", broker=url, bundle=bundle, directory=directory / f"north-{id}", devices=["watch-7"]
    )
    threads = [threading.Thread(target=node.run, daemon=True) for node in (cloud, north)]
    for thread in threads:
        thread.start()
    try:
        yield cloud.finished
    finally:
        for node, thread in zip((cloud, north), threads, strict=True):
            node.stop()
            thread.join()


def label_all(app: App) -> int:
    """Say what was done in all that the app has seen so far, and return how many stretches that were."""
    times = sorted(float(words[0]) for words in app.predictions())
    began = times[0] - 63 / RATE
    count = int((times[-1] - began) // (EACH + PAUSE))
    for number in range(count):
        first = began + number * (EACH + PAUSE)
        app.say(f"{CLASSES[number % 2]} {first:.3f} {first + EACH:.3f}")
    return count


def play(tmp_path: Path, speed: float, stretches: int) -> None:
    newer = tmp_path / "newer.bundle"
    newer.write_bytes(repacked(read_bundle(WRIST), {"name": "wrist, second edition"}))
    recording = write_recording(tmp_path, 400)
    with Mosquitto() as broker:
        app = App(tmp_path, broker.url, recording, speed)
        app.start(WRIST)
        try:
            windows = stretches * (EACH - 1)
            with run_of("first", WRIST, tmp_path, broker.url) as over:
                eventually(lambda: len(app.predictions()) >= windows, 60 + windows / speed)
                app.kill()  # before anybody has labelled anything
                before = len(app.predictions())
                label = [words[0] for words in app.predictions()]
                app.start(WRIST)
                app.wait_for(5, "")
                assert {words[3] for words in app.predictions()} == {"initial"}
                assert "nothing is labelled yet" in app.log() and not over.is_set()
                app.lines[:], seen = app.lines[:before], app.lines[before:]
                assert len(label) == before and seen
                assert label_all(app) >= stretches - 1
                assert eventually(over.is_set, 60) or pytest.fail(app.log())
                app.wait_for(40, "first")
            app.kill()
            marks = len(app.lines)
            app.start(newer)  # the next version of the app brings another model, which no run has trained yet
            app.wait_for(3, "first")
            with run_of("second", newer, tmp_path, broker.url) as over:
                assert eventually(over.is_set, 60) or pytest.fail(app.log())
                app.wait_for(40, "second")
            assert app.predictions("personal")[-1][4] == "second"
            assert share_right(app, marks) > 0.7
            runs = [words[4] for words in app.predictions()]
            assert "" not in runs[-len(app.lines) + marks :] and sorted(runs, key=["", "first", "second"].index) == runs
        finally:
            app.end()
    assert "Traceback" not in app.log()


def share_right(app: App, since: int) -> float:
    """Share of the latest predictions of a process, which began with a line, that are right, within a stretch."""
    own = [line.split(" ")[1:] for line in app.lines[since:] if line.startswith("predicted")]
    began = float(own[0][0]) - 63 / RATE
    judged = [((float(time) - began) % (2 * (EACH + PAUSE)), label) for time, label, *_ in own[-40:]]
    right = [label == CLASSES[at > EACH + PAUSE] for at, label in judged if at % (EACH + PAUSE) > 5]
    return sum(right) / len(right)


def test_the_application_of_the_readme_lives(tmp_path: Path) -> None:
    """An accelerometer of 32 Hz, whose time passes a hundred times as fast."""
    play(tmp_path, speed=100, stretches=20)


@pytest.mark.long
def test_the_application_of_the_readme_lives_in_real_time(tmp_path: Path) -> None:
    play(tmp_path, speed=1, stretches=6)


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
    (block,) = [block for block in blocks("docs/your-app.md") if block.text.startswith("# ecg_beats.py")]
    (tmp_path / "ecg_beats.py").write_text(block.text.replace(":1883", ":1"))
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
