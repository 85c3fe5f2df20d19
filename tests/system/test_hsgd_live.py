"""HSGD over a real broker: nodes that die in the middle of a round, links that are cut, who is away for a while.

MQTT runs over TCP, which loses no packets; what 15 % loss is on a datagram link is here a connection that is reset
after every few kilobytes, again and again.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations, product
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest

from edge_sdk import parties
from edge_sdk.broker import Mosquitto, find_mosquitto
from edge_sdk.datasets import Vertical, prepared
from edge_sdk.fleet import write_toml
from edge_sdk.methods.reports import Progress
from edge_sdk.patients import Patients, store_patients
from edge_sdk.proxy import Proxy
from edge_sdk.run import Run
from edge_sdk.samples import labelled, store
from edge_sdk.split_model import SplitModel

pytest.importorskip("torch", reason="the aggregator needs torch")
pytestmark = pytest.mark.skipif(find_mosquitto() is None, reason="mosquitto is not installed (apt install mosquitto)")

BUNDLE = Path(__file__).parents[2] / "models" / "bundles" / "split-breast-cancer.bundle"
TREE = {"north": ("a", "b"), "south": ("c", "d")}
HERE = {"north": ("a",), "south": ("c", "d")}
CLASSES = ("malignant", "benign")
EACH = 10


def held(train: Vertical) -> dict[str, Vertical]:
    """Device -> its samples, of which its hospital has the other half."""
    names = [device for devices in TREE.values() for device in devices]
    return {name: train.rows(np.arange(i * EACH, (i + 1) * EACH)) for i, name in enumerate(names)}


@pytest.fixture(scope="module")
def data() -> dict[str, Vertical]:
    return held(prepared("breast-cancer")[0])


@pytest.fixture
def broker() -> Iterator[str]:
    with Mosquitto() as running:
        yield running.url


@dataclass
class Nodes:
    """Hospitals and devices, each a process with its settings file."""

    directory: Path
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def write(self, data: Mapping[str, Vertical], brokers: Mapping[str, str], **more: Any) -> None:
        """`brokers`: node -> its way to the broker. `more`: hospital -> other settings."""
        for hospital, devices in TREE.items():
            for name in devices:
                mine = data[name]
                train = labelled(mine.x2, mine.y, CLASSES)
                table = {"name": name, "hospital": hospital, "broker": brokers[name], "bundle": BUNDLE}
                path = store(self.directory / f"{name}.npz", train, labelled(mine.x2[:0], mine.y[:0], CLASSES))
                self.table(name, table | {"data": {"samples": path}})
            x1, y = (np.concatenate([getattr(data[d], key) for d in devices]) for key in ("x1", "y"))
            whose = tuple(d for d in devices for _ in range(EACH))
            patients = Patients(labelled(x1, y, CLASSES), whose, x1[:0], ())
            path = store_patients(self.directory / f"{hospital}.npz", patients)
            table = {"name": hospital, "aggregator": "cloud", "bundle": BUNDLE, "devices": devices}
            table |= {"broker": brokers[hospital], "data": {"samples": path}, **more.get(hospital, {})}
            self.table(hospital, table)

    def table(self, name: str, table: Mapping[str, Any]) -> None:
        write_toml(self.directory / f"{name}.toml", {**table, "directory": name})

    def start(self, name: str, fail: str = "") -> None:
        tier = "hospital" if name in TREE else "device"
        with (self.directory / f"{name}.log").open("ab") as log:
            command = [sys.executable, "-m", "edge_sdk.cli", tier, "--once", str(self.directory / f"{name}.toml")]
            environment = {**os.environ, "AUSCULT_FAIL": fail, "OMP_NUM_THREADS": "1"}
            self.running[name] = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)

    def revive(self, deaths: Mapping[str, list[str]]) -> None:
        """Start again who has died, to die at the next point that is left for it."""
        for name, process in self.running.items():
            if process.poll() == -signal.SIGKILL:
                self.start(name, deaths[name].pop(0) if deaths.get(name) else "")

    def kill(self, name: str) -> None:
        self.running[name].kill()
        self.running[name].wait()

    def logs(self) -> str:
        return "\n".join(path.read_text() for path in sorted(self.directory.glob("*.log")))

    def end(self) -> None:
        for process in self.running.values():
            process.kill()
            process.wait()


class Cloud:
    """The aggregator, in this process, and the global model after each of its rounds."""

    def __init__(self, directory: Path, broker: str, rounds: int, deadline: float, **settings: Any):
        from aggregator.server import Aggregator

        told: dict[str, Any] = {"rounds": rounds, "seed": 3, "classes": CLASSES, "settings": settings}
        bundle = SplitModel(BUNDLE, check=False).sha256
        run = Run(id="hsgd", method="hsgd", bundle=bundle, deadline=deadline / 1.2, **told)
        self.models: dict[int, Any] = {}
        self.counts: list[int] = []

        class Recorded(Aggregator):
            """Keeps what its role makes of each round; what is told comes later, when the model has moved on."""

            def assemble(made, run: Run) -> Any:
                assembly = super().assemble(run)

                def close(env: Any, state: Any) -> Any:
                    state, sends = assembly.role.close(env, state)
                    self.models[state.inner.round] = state.inner.theta
                    return state, sends

                return replace(assembly, role=replace(assembly.role, close=close))

        self.node = Recorded(
            "cloud",
            broker=broker,
            bundle=BUNDLE,
            directory=directory,
            run=run,
            hospitals={name: len(devices) for name, devices in TREE.items()},
            deadline=deadline,
            on_event=self.noted,
        )
        self.thread = threading.Thread(target=self.node.run, daemon=True)
        self.thread.start()

    def noted(self, message: Any) -> None:
        if isinstance(message, Progress):
            self.counts.append(message.devices)

    @property
    def path(self) -> list[Any]:
        return [self.models[round] for round in sorted(self.models)]

    def wait(self, nodes: Nodes, what: Callable[[], bool], seconds: float = 90) -> None:
        until = time.monotonic() + seconds
        while not what():
            assert time.monotonic() < until, nodes.logs()
            time.sleep(0.01)

    def end(self) -> None:
        self.node.stop()
        self.thread.join()


def finished(directory: Path, url: str, data: Mapping[str, Vertical], deaths: Mapping[str, list[str]]) -> list[Any]:
    """The models of all rounds; nodes die where they are told to and are started again."""
    directory.mkdir()
    nodes = Nodes(directory)
    nodes.write(data, dict.fromkeys([*TREE, *data], url))
    cloud = Cloud(directory / "cloud", url, rounds=8, deadline=float("inf"), eta=0.3, P=4, Q=2)
    left = {name: list(points) for name, points in deaths.items()}

    def over() -> bool:
        nodes.revive(left)
        return cloud.node.finished.is_set()

    try:
        for name in (*TREE, *data):
            nodes.start(name, left[name].pop(0) if name in left else "")
        cloud.wait(nodes, over)
    finally:
        nodes.end()
        cloud.end()
    assert cloud.counts == [4] * 8 and not any(left.values())
    return cloud.path


def test_a_hospital_that_dies_in_the_middle_changes_nothing(
    tmp_path: Path, broker: str, data: Mapping[str, Vertical]
) -> None:
    """Before a call, after it, before and after the commit: the same models to the bit as of a run without deaths.

    Each is within a global round, of which eleven calls of a hospital are made: so the aggregator waits.
    """
    deaths = {"north": ["working:7", "worked:6", "committed:5"], "south": ["saved:9"], "a": ["working:4"]}
    quiet = finished(tmp_path / "quiet", broker, data, {})
    disturbed = finished(tmp_path / "disturbed", broker, data, deaths)
    assert [theta.tobytes() for theta in disturbed] == [theta.tobytes() for theta in quiet]
    assert not np.array_equal(quiet[0], quiet[-1])


# Bad links ------------------------------------------------------------------------------------------------------
ETA, STEPS = 0.3, 2


Part = tuple[tuple[str, ...], tuple[str, ...]]
"""Devices of a group whose zeta_2 has come, and those of them whose theta_2 has come back."""


def group(model: SplitModel, data: Mapping[str, Vertical], part: Part, theta: Any) -> Any:
    """Algorithm 1 within a group, for one global round of one interval of STEPS iterations."""
    devices, back = part
    w, a, b = (model.group(theta, g) for g in parties.GROUPS)
    xi = {d: data[d] for d in devices}
    z1 = {d: model.embed("hospital", a, s.x1) for d, s in xi.items()}
    z2 = np.concatenate([model.embed("device", b, s.x2) for s in xi.values()])
    w0, own = w, dict.fromkeys(xi, b)
    x1, y = (np.concatenate([getattr(s, key) for s in xi.values()]) for key in ("x1", "y"))
    for _ in range(STEPS):
        _, g = model.party_grad("hospital", {"head": w, "hospital": a}, {"hospital": x1}, {"device": z2}, y)
        w, a = w - ETA * g["head"], a - ETA * g["hospital"]
        for d, s in xi.items():
            thetas, given = {"head": w0, "device": own[d]}, {"hospital": z1[d]}
            _, g = model.party_grad("device", thetas, {"device": s.x2}, given, s.y)
            own[d] = own[d] - ETA * g["device"]
    return np.concatenate([w, a, np.mean([own[d] for d in back], 0) if back else b])


def subsets(names: tuple[str, ...]) -> list[tuple[str, ...]]:
    return [some for count in range(len(names) + 1) for some in combinations(names, count)]


def possible(count: int) -> Iterator[list[Part]]:
    """Who may have taken part in a round of so many devices."""
    of = {h: [(some, back) for some in subsets(devices) for back in subsets(some)] for h, devices in HERE.items()}
    for parts in product(*of.values()):
        if sum(len(some) for some, _ in parts) == count:
            yield [part for part in parts if part[0]]


def is_a_round(model: SplitModel, data: Mapping[str, Vertical], before: Any, after: Any, count: int) -> bool:
    """Whether `after` is the mean of the groups that took part, each with the samples of all its patients; nobody: the
    same model again."""
    for taking_part in possible(count):
        mean = np.mean([group(model, data, part, before) for part in taking_part], 0) if taking_part else before
        if np.allclose(mean, after, atol=2e-6):
            return True
    return False


def test_cut_links_a_dead_device_and_a_hospital_that_is_away(
    tmp_path: Path, broker: str, data: Mapping[str, Vertical]
) -> None:
    """Every global round is that of the mathematics for those who took part in it, and the run comes to its end."""
    host, port = urlsplit(broker).hostname, urlsplit(broker).port
    assert host is not None and port is not None
    bad = {"cut": 9000, "latency": 0.02, "jitter": 0.03}
    rounds, nodes = 20, Nodes(tmp_path)
    with Proxy(host, port, seed=1, **bad) as device, Proxy(host, port, seed=2, **bad) as hospital:
        ways = dict.fromkeys([*TREE, *data], broker)
        ways |= {"c": f"mqtt://127.0.0.1:{device.port}", "north": f"mqtt://127.0.0.1:{hospital.port}"}
        nodes.write(data, ways, north={"wait_for": 1})
        cloud = Cloud(tmp_path / "cloud", broker, rounds, deadline=3.0, eta=ETA, P=STEPS, Q=STEPS)
        try:
            for name in ("north", "south", "a", "c", "d"):  # b is dead
                nodes.start(name)
            cloud.wait(nodes, lambda: len(cloud.counts) >= 4)
            nodes.kill("south")
            cloud.wait(nodes, lambda: len(cloud.counts) >= 9)
            nodes.start("south")
            cloud.wait(nodes, cloud.node.finished.is_set)
        finally:
            nodes.end()
            cloud.end()
        assert device.passed.cuts + hospital.passed.cuts >= 3
    model = SplitModel(BUNDLE)
    path = [model.theta0, *cloud.path]
    assert len(cloud.counts) == rounds
    for before, after, count in zip(path[:-1], path[1:], cloud.counts, strict=True):
        assert is_a_round(model, data, before, after, count), cloud.counts
    assert max(cloud.counts) == 3 and sum(count <= 1 for count in cloud.counts) >= 3, cloud.counts
