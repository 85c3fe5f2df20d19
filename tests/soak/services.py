"""The services of a run as processes, each with its settings file and a machine that can be made to fail."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from edge_sdk.atomic import LOCK
from edge_sdk.data.samples import label_samples, store_samples
from edge_sdk.nodes.daemon.serve import WITH_PARENT
from edge_sdk.replay.datasets import prepare
from edge_sdk.replay.planning.toml_files import write_toml
from tests.faults.machine import Machine

CLASSES = ("malignant", "benign")
EACH = 12  # samples of a device for training, and as many held out
HOSPITALS, DEVICES = 3, 4  # and devices of each
ENDLESS = 10**6  # rounds
STOPPED = (
    0,
    130,
    -signal.SIGTERM,
    -signal.SIGINT,
)  # statuses after SIGTERM: at work, while it starts, before Python has begun


def tree() -> dict[str, list[str]]:
    names = ("north", "south", "west")[:HOSPITALS]
    return {hospital: [f"{hospital}-{i}" for i in range(DEVICES)] for hospital in names}


@dataclass
class Services:
    """Aggregator `cloud`, hospitals and devices.

    Attributes:
        starts: how often each was started.
        odd: what ended by itself, and its exit status.
    """

    base: Path
    bundle: Path
    broker: str
    rounds: int = ENDLESS
    tree: Mapping[str, Sequence[str]] = field(default_factory=tree)
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    machines: dict[str, Machine] = field(default_factory=dict)
    odd: list[tuple[str, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.devices = [device for devices in self.tree.values() for device in devices]
        self.names = ["cloud", *self.tree, *self.devices]
        self.base.mkdir(parents=True, exist_ok=True)
        for name in self.names:
            (self.base / name).mkdir(exist_ok=True)
            self.machines[name] = Machine(self.base / name, self.base / "machines" / name, power=True)
        self.write_settings()

    def write_settings(self) -> None:
        run = {"id": "soak", "method": "fedavg", "rounds": self.rounds, "seed": 3, "evaluate_every": 10}
        run |= {"classes": list(CLASSES), "settings": {"eta_l": 0.02, "batch": 6, "local_epochs": 4}}
        self.write("cloud", hospitals={h: len(devices) for h, devices in self.tree.items()}, run=run)
        for hospital, devices in self.tree.items():
            self.write(hospital, aggregator="cloud", devices=list(devices))
            for device in devices:
                self.write(device, hospital=hospital, data={"samples": self.samples(device)})

    def write(self, name: str, **table: Any) -> None:
        given = {"name": name, "broker": self.broker, "bundle": self.bundle, "directory": name}
        write_toml(self.base / f"{name}.toml", given | table)

    def samples(self, device: str) -> Path:
        data, i = prepare("breast-cancer")[0], self.devices.index(device)
        x = np.concatenate([data.x1, data.x2], 1)
        rows = [slice((2 * i + part) * EACH, (2 * i + part + 1) * EACH) for part in (0, 1)]
        parts = [label_samples(x[r], data.y[r], CLASSES) for r in rows]
        return store_samples(self.base / f"{device}.npz", *parts)

    def tier(self, name: str) -> str:
        return "aggregator" if name == "cloud" else "hospital" if name in self.tree else "device"

    # -- processes

    def spawn(self, name: str) -> subprocess.Popen[bytes]:
        """Start a process of a service, perhaps a second one."""
        command = [sys.executable, "-m", "edge_sdk.cli", self.tier(name), str(self.base / f"{name}.toml")]
        environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", WITH_PARENT: str(os.getpid())}
        with (self.base / f"{name}.log").open("ab") as log:
            faults = self.machines[name].environment()
            return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment | faults)

    def start(self, name: str) -> None:
        self.running[name] = self.spawn(name)

    def holds_directory(self, name: str) -> bool:
        """Says if a process of a service has got its directory, after which no second one can."""
        lock = self.base / name / LOCK
        if not lock.exists():
            return False
        with lock.open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return True
        return False

    def start_all(self) -> None:
        for name in self.names:
            self.start(name)

    def kill(self, name: str) -> None:
        process = self.running.pop(name, None)
        if process is not None:
            process.kill()
            process.wait()

    def stop_all(self) -> dict[str, int]:
        """Stop all as an operator would; returns the exit status of each."""
        for process in self.running.values():
            process.send_signal(signal.SIGTERM)
        return {name: process.wait(60) for name, process in self.running.items()}

    def end(self) -> None:
        for name in list(self.running):
            self.kill(name)

    def note_ended(self) -> None:
        """Start again what has ended by itself, which is a fault of ours."""
        for name, process in list(self.running.items()):
            if (status := process.poll()) is not None:
                self.odd.append((name, status))
                self.start(name)

    # -- what can be seen

    def metrics(self) -> list[dict[str, Any]]:
        path = self.base / "cloud" / "metrics.jsonl"
        text = path.read_text() if path.exists() else ""
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def rounds_done(self) -> int:
        return max((line["round"] for line in self.metrics() if line["kind"] == "round"), default=0)

    def log(self, name: str) -> str:
        return (self.base / f"{name}.log").read_text(errors="replace")

    def model(self) -> dict[str, bytes]:
        with np.load(self.base / "cloud" / "model.npz") as arrays:
            return {name: arrays[name].tobytes() for name in arrays.files}
