"""One whole run over mosquitto in which an aarch64 device takes part beside an x86 one, is killed and goes on.

The same run with x86 processes only is made beside it, to tell how far the processors take the model apart.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from edge_sdk.hardware.boards.forecast import HEADERS
from edge_sdk.model.bundle import read_bundle
from edge_sdk.replay.nodes.broker import Mosquitto, find_mosquitto
from edge_sdk.replay.planning.toml_files import write_toml
from tests.hardware.aarch64.machine import REPOSITORY, Aarch64

pytest.importorskip("torch", reason="the aggregator needs torch")
pytestmark = pytest.mark.skipif(find_mosquitto() is None, reason="mosquitto is not installed (apt install mosquitto)")

BUNDLE = REPOSITORY / "models" / "shipped" / "wrist.bundle"
CLASSES = ("rest", "walk")
ROUNDS, SAMPLES, DEVICES = 5, 40, ("pi", "desk")
CLOSE = 1e-5


@dataclass
class Fleet:
    """The processes of one run. `emulated`: the machine on which the device "pi" runs; None: on this one."""

    directory: Path
    emulated: Aarch64 | None
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, name: str) -> None:
        tier = {"cloud": "aggregator", "north": "hospital"}.get(name, "device")
        words = ["-m", "edge_sdk.cli", tier, "--once", self.directory / f"{name}.toml"]
        command, environment = [sys.executable, *map(str, words)], {**os.environ, "OMP_NUM_THREADS": "1"}
        if name == "pi" and self.emulated:
            command, environment = self.emulated.command(*words), self.emulated.environment
        with (self.directory / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)

    def kill(self, name: str) -> None:
        self.running[name].kill()
        assert self.running[name].wait() == -signal.SIGKILL

    def lines(self) -> list[dict[str, Any]]:
        path = self.directory / "cloud" / "metrics.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def rounds(self) -> list[dict[str, Any]]:
        return [line for line in self.lines() if line["kind"] == "round"]

    def wait(self, what: Callable[[], bool], seconds: float = 300) -> None:
        until = time.monotonic() + seconds
        while not what():
            for name, process in self.running.items():
                assert process.poll() in (None, 0), f"{name}: {(self.directory / f'{name}.log').read_text()}"
            assert time.monotonic() < until, "\n".join(p.read_text() for p in sorted(self.directory.glob("*.log")))
            time.sleep(0.05)

    def end(self) -> None:
        for process in self.running.values():
            process.kill()
            process.wait()

    def model(self) -> npt.NDArray[np.float64]:
        with np.load(self.directory / "cloud" / "model.npz") as arrays:
            return np.concatenate([arrays[name].ravel().astype(np.float64) for name in sorted(arrays.files)])


def write_fleet(directory: Path, url: str, emulated: Aarch64 | None) -> Fleet:
    """Writes settings and samples of aggregator, hospital and two devices."""
    directory.mkdir()

    def write(name: str, **table: Any) -> None:
        write_toml(
            directory / f"{name}.toml", {"name": name, "broker": url, "bundle": BUNDLE, "directory": name, **table}
        )

    settings = {"batch": 20, "local_epochs": 1}
    run = {"id": "mixed", "method": "fedavg", "rounds": ROUNDS, "seed": 3, "classes": list(CLASSES)}
    run |= {"settings": settings, "deadline": "none"}  # an emulated device on a busy machine is later than any deadline
    write("cloud", hospitals={"north": len(DEVICES)}, deadline="none", run=run)
    write("north", aggregator="cloud", devices=list(DEVICES), upstream=url)
    for number, name in enumerate(DEVICES):
        write_samples(directory / f"{name}.npz", number)
        write(name, hospital="north", data={"samples": directory / f"{name}.npz"})
    return Fleet(directory, emulated)


def write_samples(file: Path, seed: int) -> None:
    """Writes windows of two activities, which differ in how much they move."""
    random, shape = np.random.default_rng(seed), tuple(read_bundle(BUNDLE).manifest["inputs"][0]["shape"])
    codes = np.arange(SAMPLES) % 2
    x = random.normal(size=(SAMPLES, *shape)).astype(np.float32) * (0.2 + codes).reshape(-1, 1, 1).astype(np.float32)
    labels = np.array(CLASSES)[codes]
    np.savez(file, x=x, labels=labels, held_out_x=x[:8], held_out_labels=labels[:8])


def play(fleet: Fleet, deaths: int) -> None:
    """Plays a run to its end; the device "pi" is killed in its middle, `deaths` times, and started again."""
    try:
        for name in ("cloud", "north", *DEVICES):
            fleet.start(name)
        for death in range(deaths):
            fleet.wait(lambda least=death + 1: len(fleet.rounds()) >= least)
            fleet.kill("pi")
            fleet.start("pi")
        fleet.wait(lambda: all(process.poll() == 0 for process in fleet.running.values()))
    finally:
        fleet.end()


def test_an_aarch64_device_in_a_run_is_killed_and_goes_on(aarch64: Aarch64, tmp_path: Path) -> None:
    with Mosquitto() as broker:
        mixed = write_fleet(tmp_path / "mixed", broker.url, aarch64)
        play(mixed, deaths=1)
    with Mosquitto() as broker:
        own = write_fleet(tmp_path / "own", broker.url, None)
        play(own, deaths=0)
    for fleet in (mixed, own):
        assert [line["round"] for line in fleet.rounds()] == list(range(1, ROUNDS + 1))
        assert [line["devices"] for line in fleet.rounds()] == [2] * ROUNDS  # each counted once in each round
    one, other = mixed.model(), own.model()
    apart = float(np.linalg.norm(one - other) / np.linalg.norm(other))
    print(f"\nmodel after {ROUNDS} rounds, mixed against one processor: {apart:.1e} apart, relative")
    assert np.isfinite(one).all() and apart < CLOSE
    check_bytes(own)


def check_bytes(fleet: Fleet) -> None:
    """Compares the bytes of an undisturbed device with what `auscult board` forecasts of a round."""
    counted = json.loads((fleet.directory / "desk" / "result.json").read_text())["bytes"]
    body = 4 * read_bundle(BUNDLE).manifest["parameters"]
    print(f"bytes of {ROUNDS} rounds: {counted}")
    assert ROUNDS * body < counted["sent"] < ROUNDS * (body + 2 * HEADERS)
    assert ROUNDS * body < counted["received"] < (ROUNDS + 1) * (body + 2 * HEADERS)  # and the final model
