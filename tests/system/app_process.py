"""The application of the README as a process, and the life that it is led through."""

from __future__ import annotations

import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from typing import Protocol

import numpy as np
import pytest

from edge_sdk.contract.run import Run
from edge_sdk.model.bundle import read_bundle
from edge_sdk.nodes.hospital.hospital import Hospital
from edge_sdk.replay.nodes.broker import Mosquitto
from tests.delivery.fleet import eventually
from tests.docs.pages import blocks
from tests.model.bundle_files import repacked

ROOT = Path(__file__).parents[2]
WRIST = ROOT / "models" / "shipped" / "wrist.bundle"

RATE, EACH, PAUSE = 32, 28, 2
"""Hz; seconds of an activity; seconds for which the sensor is off after it. Two of these are a minute, so that what is
done at a time does not depend on the hour in which the recording began."""
ACTIVITIES = 1200
"""In a recording: no process lives so long, however busy the machine and fast the sensor's time."""
CLASSES = ("rest", "walk")


NIGHTLY = '[budget]\nhours = ["22:00-06:30"]\ncalm = 0.0\n'
NOON, NIGHT = 12, 23
PREDICTED = re.compile(r"predicted (\d+\.\d+) (\w+) ([\d.e-]+) (\w+) (\w*)")
DAY = datetime(2026, 3, 1, tzinfo=UTC)


def write_recordings(directory: Path, activities: int) -> None:
    """A wrist that rests and walks in turns, in the format of WFDB, once for each hour; -32768 is no sample."""
    t, random = np.arange(EACH * RATE) / RATE, np.random.default_rng(5)
    pieces = []
    for number in range(activities):
        swing = (number % 2) * np.stack([np.sin(12 * t), 0.5 * np.cos(12 * t), 0.3 * np.sin(6 * t)], 1)
        piece = np.array([0.1, 0.2, 0.95]) + swing + random.normal(0, 0.05, (len(t), 3))
        pieces += [np.round(piece * 1000), np.full((PAUSE * RATE, 3), -32768)]
    (directory / "wrist.dat").write_bytes(np.concatenate(pieces).astype("<i2").tobytes())
    channels = "".join(f"wrist.dat 16 1000(0)/g 16 0 0 0 0 {name}\n" for name in ("ax", "ay", "az"))
    for hour in range(24):
        (directory / f"{hour}.hea").write_text(f"{hour} 3 {RATE} 0 {hour:02}:00:00 {DAY:%d/%m/%Y}\n{channels}")


def find_truth(time: float) -> str:
    """What the wrist has been doing for at least 5 s at a time; "": that is not clear."""
    into = (time - DAY.timestamp()) % 3600
    within = into % (EACH + PAUSE)
    return CLASSES[int(into // (EACH + PAUSE)) % 2] if 5 < within < EACH else ""


class Machine(Protocol):
    """What the application is installed on."""

    @property
    def environment(self) -> dict[str, str]: ...

    def command(self, *arguments: object) -> list[str]: ...


class App:
    """The process, and what it has printed. A second one goes on where the first was killed.

    Args:
        machine: on which it runs.
        patience: seconds that anything may take.
    """

    def __init__(self, directory: Path, url: str, speed: float, machine: Machine, patience: float) -> None:
        self.machine, self.patience = machine, patience
        (block,) = [block for block in blocks("README.md") if block.text.startswith("# watch_app.py")]
        self.directory, self.speed, self.hour = directory, speed, 0
        (directory / "watch_app.py").write_text(block.text.replace("mqtt://127.0.0.1", url))
        (directory / "budget.toml").write_text(NIGHTLY)
        self.lines: list[str] = []

    def start(self, bundle: Path, hour: int) -> None:
        """Start it; each time its sensor's time has moved on by an hour. `hour`: of the wearer's local time."""
        sensor, self.hour = f"wfdb:{self.directory / str(self.hour)},speed={self.speed:g}", self.hour + 1
        words = [str(self.directory / "watch_app.py"), str(bundle), sensor, "budget.toml"]
        zone = f"WALL{(datetime.now(UTC).hour - hour + 11) % 24 - 11:+d}"  # POSIX counts westwards
        with (self.directory / "app.log").open("ab") as log:
            self.process = subprocess.Popen(
                self.machine.command(*words), env=self.machine.environment | {"TZ": zone}, cwd=self.directory,
                text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
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
        """time, label, probability, model, run of each prediction, of one model or of all.

        Two threads print, and a kill may cut a line: one that is not whole is left out.
        """
        found = [PREDICTED.fullmatch(line) for line in list(self.lines)]
        return [[*match.groups()] for match in found if match is not None and model in ("", match[4])]

    def wait_for(self, count: int, run: str) -> None:
        """Wait for so many further predictions by the models of a run."""
        first = len(self.lines)

        def come() -> bool:
            assert self.process.poll() is None, self.log()
            return sum(line.endswith(f" {run}") for line in self.lines[first:]) >= count

        eventually(come, self.patience)


@contextmanager
def run_of(id: str, bundle: Path, directory: Path, url: str) -> Iterator[tuple[threading.Event, Hospital]]:
    """A hospital and an aggregator that offer one run; yields what is set at its end, and the hospital."""
    from aggregator.aggregator import Aggregator
    from aggregator.options import HospitalList, Process

    job = Run(
        id=id, method="ditto", rounds=3, seed=1, classes=CLASSES, bundle=read_bundle(bundle).sha256,
        settings={"local_epochs": 2, "personal_epochs": 2, "eta_l": 0.05},
    )  # fmt: skip
    cloud = Aggregator(
        "cloud", broker=url, bundle=bundle, directory=directory / f"cloud-{id}", run=job,
        hospitals=HospitalList({"north": 1}, deadline=inf), process=Process(device="cpu"),
    )  # fmt: skip
    north = Hospital(
        "north", aggregator="cloud", broker=url, bundle=bundle, directory=directory / f"north-{id}", devices=["watch-7"]
    )
    threads = [threading.Thread(target=node.run, daemon=True) for node in (cloud, north)]
    for thread in threads:
        thread.start()
    try:
        yield cloud.finished, north
    finally:
        for node, thread in zip((cloud, north), threads, strict=True):
            node.stop()
            thread.join()


def label_all(app: App, stretches: int) -> None:
    """Say what was done in the first so many stretches of the first hour."""
    for number in range(stretches):
        first = DAY.timestamp() + number * (EACH + PAUSE)
        app.say(f"{CLASSES[number % 2]} {first:.3f} {first + EACH:.3f}")


def is_kept_waiting(north: Hospital) -> bool:
    """The device takes part in the run, and has said that it does not want to train at this hour."""
    reason = north.runtime.presence.willingness.get("watch-7")
    return north.runtime.here == ("watch-7",) and reason is not None and reason.kind == "hours"


def play(tmp_path: Path, speed: float, stretches: int, machine: Machine, patience: float = 240.0) -> None:
    """The app is killed before anybody has labelled anything, labelled, kept from training by its owner's rules,
    killed, trained in the night, killed, and given a new model, whose run begins where the first has ended."""
    newer = tmp_path / "newer.bundle"
    newer.write_bytes(repacked(read_bundle(WRIST), {"name": "wrist, second edition"}))
    write_recordings(tmp_path, ACTIVITIES)
    with Mosquitto() as broker:
        app = App(tmp_path, broker.url, speed, machine, patience)
        app.start(WRIST, NOON)
        try:
            windows = stretches * (EACH - 1)
            with run_of("first", WRIST, tmp_path, broker.url) as (over, north):
                eventually(lambda: len(app.predictions()) >= windows, patience + windows / speed)
                app.kill()  # before anybody has labelled anything
                app.start(WRIST, NOON)
                app.wait_for(5, "")
                assert {words[3] for words in app.predictions()} == {"initial"}
                eventually(lambda: "nothing is labelled yet" in app.log(), patience)
                label_all(app, 3 * stretches)  # of a busy machine's first stretches the sensor may have lost some
                assert eventually(lambda: is_kept_waiting(north), patience) or pytest.fail(app.log())
                app.wait_for(5, "")
                assert not over.is_set()
                app.kill()  # while it waits for the night, with its labels
                app.start(WRIST, NIGHT)
                assert eventually(over.is_set, patience) or pytest.fail(app.log())
                app.wait_for(40, "first")
            app.kill()
            marks = len(app.lines)
            app.start(newer, NIGHT)  # the next version of the app brings another model, which no run has trained yet
            app.wait_for(3, "first")
            with run_of("second", newer, tmp_path, broker.url) as (over, _):
                assert eventually(over.is_set, patience) or pytest.fail(app.log())
                app.wait_for(60, "second")
            assert app.predictions("personal")[-1][4] == "second"
            assert share_right(app) > 0.8
            runs = [words[4] for words in app.predictions()]
            assert "" not in runs[-len(app.lines) + marks :] and sorted(runs, key=["", "first", "second"].index) == runs
        finally:
            app.end()
    assert "run second begins with the models of run first" in app.log()
    assert "Traceback" not in app.log()


def share_right(app: App) -> float:
    """Share of the latest predictions that are right, where it is clear what is."""
    judged = [(find_truth(float(words[0])), words[1]) for words in app.predictions("personal")[-60:]]
    right = [truth == label for truth, label in judged if truth]
    return sum(right) / len(right)
