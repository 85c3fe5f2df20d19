"""Nodes as processes that can be killed, and what their stores hold afterwards."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from edge_sdk.delivery.storage.store import Store
from edge_sdk.replay.nodes.forking import NodeProcess
from tests import warm
from tests.delivery import roles
from tests.delivery.play import ROLES
from tests.faults.machine import Machine

ROOT = Path(__file__).parents[2]


def eventually(what: Callable[[], Any], seconds: float = 60.0) -> Any:
    """The first true answer; fails after `seconds`."""
    end = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < end, f"not within {seconds:.0f} s"
        time.sleep(0.02)
    return found


class Fleet:
    """An aggregator `agg`, hospitals and devices of the counting run.

    Args:
        tree: child lists by parent, as in {"agg": ["h"], "h": ["a", "b"]}; who has none is a device.
        faulty: each node has a machine of its own that can be made to fail, see tests/faults/machine.py.
        power: its disk may lose its power.
    """

    def __init__(
        self,
        base: Path,
        broker: str,
        tree: dict[str, list[str]],
        faulty: bool = False,
        power: bool = False,
        **settings: Any,
    ):
        self.base, self.tree = base, tree
        self.parents = {child: parent for parent, children in tree.items() for child in children}
        self.names = ["agg", *self.parents]
        self.settings = {"rounds": 10**6, "broker": broker, **settings}
        self.processes: dict[str, NodeProcess] = {}
        self.machines: dict[str, Machine] = {}
        if faulty or power:
            self.machines = {n: Machine(base / n, base / "machines" / n, power) for n in self.names}

    def tier(self, name: str) -> str:
        return "aggregator" if name == "agg" else "hospital" if name in self.tree else "device"

    def start(self, name: str, fail: str = "") -> None:
        """`fail`: where it is to die, as in failpoints.py."""
        self.processes[name] = self.spawn(name, fail)

    def spawn(self, name: str, fail: str = "") -> NodeProcess:
        """Start a process of a node, a copy where its machine does not fail; also a second one beside the first."""
        place = {"name": name, "tier": self.tier(name), "parent": self.parents.get(name)}
        place |= {"children": self.tree.get(name, []), "directory": str(self.base / name)}
        (self.base / name).mkdir(parents=True, exist_ok=True)
        command = self.command(place)
        environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "AUSCULT_FAIL": fail}
        said = self.base / f"{name}.log"
        if name not in self.machines:
            _, _, module, *words = command
            return warm.node_server().begin(words, ROOT, (said, said), environment, module)
        with said.open("ab") as log:
            return subprocess.Popen(command, cwd=ROOT, stderr=log, env=environment | self.machines[name].environment())

    def command(self, place: dict[str, Any]) -> list[str]:
        return [sys.executable, "-m", "tests.delivery.play", json.dumps(place | self.settings)]

    def start_all(self) -> None:
        for name in self.names:
            self.start(name)

    def kill(self, name: str) -> None:
        process = self.processes.pop(name)
        assert process.poll() is None, f"{name} has ended by itself:\n{self.log(name)}"
        process.send_signal(signal.SIGKILL)
        process.wait()

    def dies(self, name: str, seconds: float = 60.0) -> bool:
        """True if the node has killed itself within the time."""
        try:
            code = self.processes[name].wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        assert code == -signal.SIGKILL, self.log(name)
        del self.processes[name]
        return True

    def stands_still(self, name: str) -> bool:
        """True if the node has stopped itself."""
        stat = Path(f"/proc/{self.processes[name].pid}/stat").read_text()
        return stat.rpartition(")")[2].split()[0] == "T"

    def go_on(self, name: str) -> None:
        self.processes[name].send_signal(signal.SIGCONT)

    def stop_all(self) -> None:
        for process in self.processes.values():
            process.terminate()
        for name, process in self.processes.items():
            assert process.wait(20) == 0, self.log(name)

    def end(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()

    def log(self, name: str) -> str:
        return (self.base / f"{name}.log").read_text()

    # -- what has happened

    def told(self) -> list[list[Any]]:
        """[number, round, devices, total] of each round that the application was told of, first hearing only."""
        path = self.base / "agg" / "told"
        lines = path.read_text().splitlines() if path.exists() else []
        heard = {}
        for line in lines:
            row = json.loads(line)
            assert heard.setdefault(row[0], row) == row
        return [heard[number] for number in sorted(heard)]

    def rounds(self) -> int:
        told = self.told()
        return told[-1][1] if told else 0

    def state(self, name: str) -> Any:
        store = Store(self.base / name / "count.db")
        try:
            saved = store.load_record()
            codec = roles.assembly(ROLES[self.tier(name)], RUN).records
            return None if saved is None else codec.decode(saved).state
        finally:
            store.close()

    def quarantined(self, name: str) -> list[tuple[str, int, str]]:
        store = Store(self.base / name / "count.db")
        try:
            return store.load_quarantine()
        finally:
            store.close()

    def check(self, worked_once: bool = True) -> None:
        """Every question was worked on once (if that is promised) and every answer counted once, in each round."""
        devices = [n for n in self.names if self.tier(n) == "device"]
        told = self.told()
        size = self.settings.get("size", 4)
        assert [(row[0], row[1]) for row in told] == [(i + 1, i + 1) for i in range(len(told))]
        assert all(row[2:] == [len(devices), size * row[1]] for row in told)
        for name in self.names:
            assert self.quarantined(name) == [], name
            assert "a copy of the folder was put back" not in self.log(name), name
        asked = self.state("agg").round
        assert asked == len(told) + 1
        for name in devices if worked_once else ():
            tally = self.state(name)
            assert tally.count == tally.last and asked - tally.last in (0, 1), (name, tally, asked)


RUN = roles.Run(id="count", method="count")
