"""A hospital with two kinds of devices, each node a process, and aggregators of its runs as threads of the test."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from edge_sdk.contract.run import Run
from edge_sdk.data.samples import label_samples, store_samples
from edge_sdk.methods.shared.evaluation.reports import Progress
from edge_sdk.model.bundle import read_bundle
from edge_sdk.replay.datasets import prepare
from tests.delivery.fleet import eventually

CLASSES = ("malignant", "benign")
WATCHES, PHONES = ("watch-1", "watch-2"), ("phone-1", "phone-2")
EACH, ROUNDS, LAST_LANE, PATIENCE = 12, 30, 4, 120.0


class House:
    """A hospital and its devices, each a process.

    Args:
        devices: all of them; those of PHONES are of a kind of their own where there are others too.
        hospital: further settings of the hospital.
    """

    def __init__(
        self, directory: Path, url: str, bundles: dict[str, Path], devices: tuple[str, ...], **hospital: Any
    ) -> None:
        from edge_sdk.replay.planning.toml_files import write_toml

        self.directory, self.url, self.bundles = directory, url, bundles
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        directory.mkdir()
        data = prepare("breast-cancer")[0]
        x = np.concatenate([data.x1, data.x2], 1)
        for name in devices:
            at = 2 * EACH * (*WATCHES, *PHONES).index(name)
            rows = slice(at, at + EACH), slice(at + EACH, at + 2 * EACH)
            samples = store_samples(directory / f"{name}.npz", *(label_samples(x[r], data.y[r], CLASSES) for r in rows))
            table = {"name": name, "hospital": "h", "broker": url, "bundle": bundles[name], "directory": name}
            write_toml(directory / f"{name}.toml", table | {"data": {"samples": samples}})
        table = {"name": "h", "aggregator": "cloud", "broker": url, "devices": devices, "directory": "h"}
        table |= {"bundle": bundles[devices[0]], "allow": {"scores_of": 1}}
        write_toml(directory / "h.toml", table | hospital)
        self.names = ("h", *devices)

    def start(self, name: str) -> None:
        tier = "hospital" if name == "h" else "device"
        with (self.directory / f"{name}.log").open("ab") as log:
            command = [sys.executable, "-m", "edge_sdk.cli", tier, str(self.directory / f"{name}.toml")]
            environment = {**os.environ, "OMP_NUM_THREADS": "1"}
            self.running[name] = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)

    def kill(self, name: str) -> None:
        self.running[name].kill()
        self.running[name].wait()

    def __enter__(self) -> House:
        for name in self.names:
            self.start(name)
        return self

    def __exit__(self, *_: object) -> None:
        for name in self.running:
            self.kill(name)

    def logs(self) -> str:
        return "\n".join(path.read_text() for path in sorted(self.directory.glob("*.log")))


class Top:
    """The aggregator of one run, on a thread of its own.

    Attributes:
        counts: devices of each round that it was told of.
    """

    def __init__(self, house: House, id: str, method: str, who: tuple[str, ...], lane: int = 0, **run: Any) -> None:
        from aggregator.aggregator import Aggregator
        from aggregator.options import HospitalList, Process

        bundle = house.bundles[who[0]]
        settings = {"fedavg": {"eta_l": 0.05, "batch": 0}, "fedbcd": {"eta_x": 0.02, "batch": 0, "local_steps": 2}}
        job: dict[str, Any] = {"id": id, "method": method, "rounds": ROUNDS, "settings": settings[method], "seed": 3}
        job |= {"classes": CLASSES, "bundle": read_bundle(bundle).sha256} | run
        self.directory, self.counts = house.directory / f"cloud-{id}", list[int]()
        given: dict[str, Any] = {"broker": house.url, "bundle": bundle, "directory": self.directory}
        given |= {"process": Process(client=f"cloud:{id}", lane=lane)}
        hospitals = HospitalList({"h": len(who)}, deadline=float("inf"), enrolled=True)
        self.node = Aggregator("cloud", run=Run(**job), hospitals=hospitals, **given)
        self.node.on_event = self.note

    def note(self, message: Any) -> None:
        if isinstance(message, Progress):
            self.counts.append(message.devices)

    def model(self) -> dict[str, np.ndarray]:
        with np.load(self.directory / "model.npz") as found:
            return dict(found)


@contextmanager
def going(*tops: Top) -> Iterator[None]:
    threads = [threading.Thread(target=top.node.run, daemon=True) for top in tops]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for top, thread in zip(tops, threads, strict=True):
            top.node.stop()
            thread.join(30)


def end(house: House, *tops: Top) -> None:
    try:
        eventually(lambda: all(top.node.finished.is_set() for top in tops), PATIENCE)
    except AssertionError:
        raise AssertionError(house.logs()) from None
