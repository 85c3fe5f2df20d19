"""FedBCD over a real broker. Synchronous: deaths in the middle change nothing. First-B, with links that are cut, a dead
device and a hospital that is away: it lives, and its invariants hold.

MQTT runs over TCP, which loses no packets; what loss is on a datagram link is here a connection that is reset after
every few messages.
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
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest

from edge_sdk.broker import Mosquitto, find_mosquitto
from edge_sdk.bundle import read_bundle
from edge_sdk.datasets import prepared
from edge_sdk.fleet import write_toml
from edge_sdk.lowrank import unpack
from edge_sdk.methods.reports import Report
from edge_sdk.ondemand import compiled
from edge_sdk.proxy import Proxy
from edge_sdk.run import Run
from edge_sdk.samples import labelled, store

pytest.importorskip("torch", reason="the aggregator needs torch")
pytestmark = pytest.mark.skipif(find_mosquitto() is None, reason="mosquitto is not installed (apt install mosquitto)")

TREE = {h: (f"{h}-1", f"{h}-2") for h in ("north", "south", "east", "west")}
DEAD, LOST, CUT = "north-2", "east", "south"
CLASSES = ("malignant", "benign")
EACH, ROUNDS, BOUND = 12, 50, 0.2
SETTINGS = {"bound": BOUND, "eta_x": 0.02, "batch": 0, "local_steps": 3}
Tree = Mapping[str, tuple[str, ...]]


@dataclass
class Nodes:
    """Hospitals and devices, each a process with its settings file."""

    directory: Path
    bundle: Path
    tree: Tree
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def devices(self) -> list[str]:
        return [d for devices in self.tree.values() for d in devices]

    def write(self, ways: Mapping[str, str]) -> None:
        """`ways`: hospital -> URL by which it and its devices reach the broker."""
        data = prepared("breast-cancer")[0]
        x = np.concatenate([data.x1, data.x2], 1)
        for i, name in enumerate(self.devices):
            rows = slice(2 * i * EACH, (2 * i + 1) * EACH), slice((2 * i + 1) * EACH, (2 * i + 2) * EACH)
            path = store(self.directory / f"{name}.npz", *(labelled(x[r], data.y[r], CLASSES) for r in rows))
            hospital = name.partition("-")[0]
            table = {"name": name, "hospital": hospital, "broker": ways[hospital], "data": {"samples": path}}
            self.table(table)
        for hospital, devices in self.tree.items():
            wait = {"wait_for": 1} if DEAD in devices else {}
            self.table({"name": hospital, "aggregator": "cloud", "broker": ways[hospital], "devices": devices, **wait})

    def table(self, table: dict[str, Any]) -> None:
        path = self.directory / f"{table['name']}.toml"
        write_toml(path, {**table, "bundle": self.bundle, "directory": table["name"]})

    def start(self, name: str, fail: str = "") -> None:
        tier = "hospital" if name in self.tree else "device"
        with (self.directory / f"{name}.log").open("ab") as log:
            command = [sys.executable, "-m", "edge_sdk.cli", tier, "--once", str(self.directory / f"{name}.toml")]
            environment = {**os.environ, "OMP_NUM_THREADS": "1", "AUSCULT_FAIL": fail}
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
    """The aggregator, in this process: who was ready in each of its rounds, with which model, and what came of it."""

    def __init__(self, nodes: Nodes, broker: str, rounds: int, deadline: float, **settings: Any):
        from aggregator.server import Aggregator

        class Recorded(Aggregator):
            def assemble(made, run: Run) -> Any:
                assembly = super().assemble(run)

                def close(env: Any, state: Any) -> Any:
                    after, sends = assembly.role.close(env, state)
                    if after.inner.round > state.inner.round:
                        self.rounds[after.inner.round] = state.inner.ready, unpack(env.layout, after.inner.model)
                    return after, sends

                return replace(assembly, role=replace(assembly.role, close=close))

        self.rounds: dict[int, Any] = {}
        self.report: Report | None = None
        told: dict[str, Any] = {"rounds": rounds, "seed": 3, "classes": CLASSES, "deadline": deadline / 1.5}
        settings = {**SETTINGS, **settings}
        run = Run(id="live", method="fedbcd", bundle=read_bundle(nodes.bundle).sha256, settings=settings, **told)
        sizes = {name: len(devices) for name, devices in nodes.tree.items()}
        given: dict[str, Any] = {"broker": broker, "bundle": nodes.bundle, "directory": nodes.directory / "cloud"}
        self.node = Recorded("cloud", run=run, hospitals=sizes, deadline=deadline, on_event=self.noted, **given)
        self.thread = threading.Thread(target=self.node.run, daemon=True)
        self.thread.start()

    def noted(self, message: Any) -> None:
        self.report = message if isinstance(message, Report) else self.report

    def wait(self, nodes: Nodes, what: Callable[[], bool], seconds: float = 120) -> None:
        until = time.monotonic() + seconds
        while not what():
            assert time.monotonic() < until, nodes.logs()
            time.sleep(0.01)

    def end(self) -> None:
        self.node.stop()
        self.thread.join()


@pytest.fixture
def broker() -> Iterator[str]:
    with Mosquitto() as running:
        yield running.url


@pytest.fixture(scope="module")
def bundle() -> Path:
    return compiled("mlp", ["--input", "30", "--classes", "2"], 0, print)


def finished(nodes: Nodes, url: str, deaths: Mapping[str, list[str]]) -> list[Any]:
    """The models of all rounds of a synchronous run; nodes die where they are told to and are started again."""
    nodes.directory.mkdir()
    nodes.write(dict.fromkeys(nodes.tree, url))
    cloud = Cloud(nodes, url, 8, float("inf"), participation=1.0)
    left = {name: list(points) for name, points in deaths.items()}

    def over() -> bool:
        nodes.revive(left)
        return cloud.node.finished.is_set()

    try:
        for name in [*nodes.tree, *nodes.devices]:
            nodes.start(name, left[name].pop(0) if name in left else "")
        cloud.wait(nodes, over)
    finally:
        nodes.end()
        cloud.end()
    assert not any(left.values())
    return [model for _, (_, model) in sorted(cloud.rounds.items())]


def test_deaths_in_the_middle_of_a_synchronous_run_change_nothing(tmp_path: Path, broker: str, bundle: Path) -> None:
    """To the bit. Each death is within a round, of which a hospital makes three calls and a device one."""
    tree = {"south": TREE["south"], "west": TREE["west"]}
    deaths = {"south": ["working:6", "saved:5"], "west": ["worked:8"], "south-1": ["working:4"], "west-2": ["saved:9"]}
    quiet = finished(Nodes(tmp_path / "quiet", bundle, tree), broker, {})
    disturbed = finished(Nodes(tmp_path / "disturbed", bundle, tree), broker, deaths)
    assert len(quiet) == 8 and not np.array_equal(quiet[0], quiet[-1])
    assert [model.tobytes() for model in disturbed] == [model.tobytes() for model in quiet]


def test_first_b_over_links_that_are_cut(tmp_path: Path, broker: str, bundle: Path) -> None:
    host, port = urlsplit(broker).hostname, urlsplit(broker).port
    assert host is not None and port is not None
    nodes = Nodes(tmp_path, bundle, TREE)
    slow = {"latency": 0.02, "jitter": 0.03}
    with Proxy(host, port, seed=1, **slow) as calm, Proxy(host, port, seed=2, cut=60_000, **slow) as cut:
        ways = {h: f"mqtt://127.0.0.1:{(cut if h == CUT else calm).port}" for h in TREE}
        nodes.write(ways)
        cloud = Cloud(nodes, broker, ROUNDS, 30.0, cloud="first-b", ready=2)
        try:
            for name in [*TREE, *(d for d in nodes.devices if d != DEAD)]:
                nodes.start(name)
            cloud.wait(nodes, lambda: len(cloud.rounds) >= 5)
            nodes.kill(LOST)
            gone = max(cloud.rounds)
            cloud.wait(nodes, lambda: len(cloud.rounds) >= gone + 6)
            nodes.start(LOST)
            cloud.wait(nodes, cloud.node.finished.is_set)
        finally:
            nodes.end()
            cloud.end()
        assert cut.passed.cuts >= 2
    assert sorted(cloud.rounds) == list(range(1, ROUNDS + 1))
    members = {round: set(ready) for round, (ready, _) in cloud.rounds.items()}
    assert all(len(names) == 2 for names in members.values()), members  # B, no more and no fewer
    assert set.union(*members.values()) == set(TREE)  # the one behind the bad link, and the one that was away, too
    away = [LOST not in members[round] for round in range(gone + 2, gone + 6)]
    assert all(away) and any(LOST in members[round] for round in range(gone + 6, ROUNDS + 1)), members
    for ready, model in cloud.rounds.values():
        z = np.stack([ready[name].model for name in sorted(ready)])
        np.testing.assert_allclose(model, z.mean(0), atol=1e-7)
        assert np.abs(z).max() <= BOUND + 1e-6  # z_n is a mean of feasible points
    assert cloud.report is not None and cloud.report.final
    assert cloud.report.sums["devices"] >= 5  # of all hospitals but the one whose link may be cut just then
