"""Hospitals and devices as processes that can die, and an aggregator in this process whose rounds are looked at."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from edge_sdk.contract.run import Run
from edge_sdk.methods.shared.evaluation.reports import Progress, Report
from edge_sdk.model.bundle import read_bundle
from edge_sdk.replay.nodes.forking import ForkedProcess
from edge_sdk.replay.planning.toml_files import write_toml
from tests import warm

Tree = Mapping[str, tuple[str, ...]]
Deaths = Mapping[str, list[str]]
"""Node -> where it dies, one after the other, as in edge_sdk/delivery/storage/failpoints.py."""

CLASSES = ("malignant", "benign")


@dataclass
class Nodes:
    """Each a process with its settings file."""

    directory: Path
    bundle: Path
    tree: Tree
    running: dict[str, ForkedProcess] = field(default_factory=dict)

    @property
    def devices(self) -> list[str]:
        return [d for devices in self.tree.values() for d in devices]

    def table(self, table: Mapping[str, Any]) -> None:
        path = self.directory / f"{table['name']}.toml"
        write_toml(path, {**table, "bundle": self.bundle, "directory": table["name"]})

    def start(self, name: str, fail: str = "") -> None:
        tier = "hospital" if name in self.tree else "device"
        words, log = [tier, "--once", str(self.directory / f"{name}.toml")], self.directory / f"{name}.log"
        environment = {**os.environ, "AUSCULT_FAIL": fail}
        self.running[name] = warm.server().begin(words, Path.cwd(), (log, log), environment)

    def start_all(self, deaths: dict[str, list[str]], but: str = "") -> None:
        for name in [*self.tree, *self.devices]:
            if name != but:
                self.start(name, deaths[name].pop(0) if deaths.get(name) else "")

    def revive(self, deaths: Deaths) -> None:
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
    """The aggregator.

    Args:
        patience: the deadline of its rounds.
        note: (state of the method before, after the close of a round, env) -> what is kept of that round.
        run: fields of `Run`.

    Attributes:
        rounds: round -> what was kept of it. What is told comes later, when the state has moved on.
        counts: devices of each round.
        report: the latest.
    """

    def __init__(
        self, nodes: Nodes, broker: str, patience: float, note: Callable[[Any, Any, Any], Any], **run: Any
    ) -> None:
        from aggregator.aggregator import Aggregator
        from aggregator.options import HospitalList

        class Recorded(Aggregator):
            def assemble(made, job: Run) -> Any:
                assembly = super().assemble(job)

                def close(env: Any, state: Any) -> Any:
                    after, sends = assembly.role.close(env, state)
                    if after.inner.round > state.inner.round:
                        self.rounds[after.inner.round] = note(state.inner, after.inner, env)
                    return after, sends

                return replace(assembly, role=replace(assembly.role, close=close))

        self.rounds: dict[int, Any] = {}
        self.counts: list[int] = []
        self.report: Report | None = None
        job = Run(id="live", seed=3, classes=CLASSES, bundle=read_bundle(nodes.bundle).sha256, **run)
        sizes = {name: len(devices) for name, devices in nodes.tree.items()}
        given: dict[str, Any] = {"broker": broker, "bundle": nodes.bundle, "directory": nodes.directory / "cloud"}
        self.nodes = nodes
        self.node = Recorded("cloud", run=job, hospitals=HospitalList(sizes, deadline=patience), **given)
        self.node.on_event = self.noted
        self.thread = threading.Thread(target=self.node.run, daemon=True)
        self.thread.start()

    def noted(self, message: Any) -> None:
        if isinstance(message, Progress):
            self.counts.append(message.devices)
        self.report = message if isinstance(message, Report) else self.report

    @property
    def finished(self) -> bool:
        return self.node.finished.is_set()

    @property
    def path(self) -> list[Any]:
        """What was kept, round by round."""
        return [self.rounds[round] for round in sorted(self.rounds)]

    def wait(self, what: Callable[[], bool], seconds: float = 120) -> None:
        until = time.monotonic() + seconds
        while not what():
            assert time.monotonic() < until, self.nodes.logs()
            time.sleep(0.01)

    def play(self, deaths: Deaths) -> list[Any]:
        """All rounds, to the end; nodes die where they are told to and are started again."""
        left = {name: list(points) for name, points in deaths.items()}

        def over() -> bool:
            self.nodes.revive(left)
            return self.finished

        try:
            self.nodes.start_all(left)
            self.wait(over)
        finally:
            self.nodes.end()
            self.end()
        assert not any(left.values())
        return self.path

    def end(self) -> None:
        self.node.stop()
        self.thread.join()
