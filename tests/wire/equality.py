"""Equality: runs with random kills and bounces of the broker end as one that nobody disturbed, to the bit.

    python -m tests.wire.equality [--runs 200] [--seed 7] [--methods fedslr fedavg ...]

For each method one undisturbed run, and disturbed ones in turn. Compared are all events of every node, in order, and
every node's saved state, bit by bit. docs/wire.md says for which runs this is promised.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from hashlib import sha256
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np

from edge_sdk.contract.node import Record
from edge_sdk.contract.round import LEAP
from edge_sdk.delivery.storage.store import Store
from edge_sdk.replay.nodes.broker import LocalBroker, Mosquitto
from edge_sdk.replay.nodes.forking import ForkedProcess
from tests import warm
from tests.delivery.method_nodes import NAMES, assembly_of, run_of

ROOT = Path(__file__).parents[2]
METHODS = (
    "fedslr",
    "fedavg",
    "scaffold",
    "fedbcd",
    "hsgd",
    "fedal",
    "augfl",
    "perfedavg",
    "fedslr:4",
    "fedbcd:4",
    "fedslr:4:secret",
)
ROUNDS = 12
FAULTS = 12  # in each run, at most
LONGEST = 240.0  # seconds that a run may take


@dataclass
class Processes:
    """All nodes of one run, one process each."""

    method: str
    base: Path
    broker: LocalBroker
    running: dict[str, ForkedProcess] = field(default_factory=dict)

    def start(self, name: str) -> None:
        (self.base / name).mkdir(parents=True, exist_ok=True)
        words, log = [name, self.method, str(ROUNDS), str(self.base), self.broker.url], self.base / f"{name}.log"
        server = warm.node_server()
        self.running[name] = server.begin(words, ROOT, (log, log), os.environ, "tests.wire.equality_node")

    def kill(self, *names: str) -> None:
        for name in names:
            assert self.running[name].poll() is None, self.log(name)
            self.running[name].kill()
        for name in names:
            self.running[name].wait()

    def stop(self) -> None:
        for process in self.running.values():
            process.terminate()
        for name, process in self.running.items():
            assert process.wait(30) in (0, -signal.SIGTERM), self.log(name)  # one that was only just started again

    def end(self) -> None:
        for process in self.running.values():
            process.kill()
            process.wait()

    def log(self, name: str) -> str:
        return (self.base / f"{name}.log").read_text()[-20_000:]

    def events(self, name: str) -> list[Any]:
        """[number, class, round, checksum, devices] of each event, the first time that it was told."""
        path = self.base / name / "told"
        lines = path.read_text().splitlines() if path.exists() else []
        return list({row[0]: row for row in map(json.loads, reversed([line for line in lines if line]))}.values())[::-1]

    def finished(self) -> bool:
        return all(any(row[1] == "Finished" for row in self.events(name)) for name in NAMES)

    def result(self) -> dict[str, Any]:
        """What every node has told its application, and what it has saved of itself."""
        return {name: {"events": self.events(name), "state": self.state(name)} for name in NAMES}

    def state(self, name: str) -> str:
        run = run_of(self.method, ROUNDS)
        store = Store(self.base / name / f"{run.id}.db")
        try:
            saved = store.load_record()
        finally:
            store.close()
        assert saved is not None
        records = assembly_of(run, name).records
        record = records.decode(saved)
        assert isinstance(record, Record)
        return sha256(repr(in_order(record.state)).encode()).hexdigest()


def without_disk(name: str, value: Any) -> Any:
    """The value of a field, less what is a number of the disk: it begins those of a node's questions."""
    if name == "life":  # which life of the node it was
        return 0
    return value % LEAP if name == "ticket" else value  # of a question, in secret sums


def in_order(value: Any) -> Any:
    """The value as plain data, its tables in the order of their keys: they are filled as answers arrive."""
    if is_dataclass(value):
        return [type(value).__name__, *(in_order(without_disk(f.name, getattr(value, f.name))) for f in fields(value))]
    if isinstance(value, Mapping):
        return sorted((key, in_order(of)) for key, of in value.items())
    if isinstance(value, (tuple, list)):
        return [in_order(each) for each in value]
    if isinstance(value, (frozenset, set)):
        return sorted(value)
    return (value.dtype.str, value.shape, value.tobytes()) if isinstance(value, np.ndarray) else value


def disturb(nodes: Processes, dice: random.Random) -> str:
    """Make one thing go wrong, and right again after a while; returns what it was."""
    what = dice.choice(("kill", "kill", "kill two", "bounce", "bounce", "kill and bounce", "stand still"))
    victims = dice.sample(NAMES, 2 if what == "kill two" else 1)
    pause = dice.uniform(0.0, 0.4)
    if what == "stand still":
        nodes.running[victims[0]].send_signal(signal.SIGSTOP)
        time.sleep(pause)
        nodes.running[victims[0]].send_signal(signal.SIGCONT)
        return what
    if "bounce" in what:
        nodes.broker.kill()
    if "kill" in what:
        nodes.kill(*victims)
    time.sleep(pause)
    if "bounce" in what:
        nodes.broker.start()
    if "kill" in what:
        for name in victims:
            nodes.start(name)
    return what


def play(method: str, base: Path, dice: random.Random | None) -> tuple[dict[str, Any], Counter[str]]:
    """One run from its beginning to its end; `dice`: of what goes wrong, None: nothing does."""
    done, end = Counter[str](), time.monotonic() + LONGEST
    broker = Mosquitto()
    with broker:
        broker.wanted = broker.port
        nodes = Processes(method, base, broker)
        try:
            for name in NAMES:
                nodes.start(name)
            while not nodes.finished():
                assert time.monotonic() < end, f"{method}: not over: {nodes.events('agg')[-1:]}\n{nodes.log('agg')}"
                time.sleep(0.05 if dice is None else dice.uniform(0.02, 0.5))
                if dice is not None and done.total() < FAULTS and nodes.events("agg"):
                    done[disturb(nodes, dice)] += 1
            nodes.stop()
            return nodes.result(), done
        finally:
            nodes.end()


def differences(expected: dict[str, Any], found: dict[str, Any]) -> list[str]:
    """Sentences about what differs."""
    said = []
    for name in NAMES:
        for kind in ("events", "state"):
            if expected[name][kind] != found[name][kind]:
                pairs = zip(expected[name]["events"], found[name]["events"], strict=False)
                first = next(((a, b) for a, b in pairs if a != b), "")
                said.append(f"{name}: {kind} {first}")
    return said


def play_runs(methods: tuple[str, ...], runs: int, seed: int) -> tuple[int, Counter[str], list[str]]:
    """Play disturbed runs of these methods in turn; returns how many were equal, the faults, and what differed."""
    quiet: dict[str, Any] = {}
    equal, faults, said = 0, Counter[str](), list[str]()
    for i, method in enumerate(islice(cycle(methods), runs)):
        with tempfile.TemporaryDirectory() as base:
            if method not in quiet:
                quiet[method], _ = play(method, Path(base) / "quiet", None)
            found, done = play(method, Path(base) / "disturbed", random.Random(f"{seed} {i}"))
        wrong = differences(quiet[method], found)
        equal, faults = equal + (not wrong), faults + done
        said += [f"run {i}, {method}: {what}" for what in wrong]
        verdict = ", ".join(wrong) or "equal"
        print(f"run {i}, {method}: {done.total()} faults, {verdict}", file=sys.stderr, flush=True)
    return equal, faults, said


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--methods", nargs="+", default=METHODS)
    args = parser.parse_args()
    equal, faults, said = play_runs(tuple(args.methods), args.runs, args.seed)
    print("\n".join(said))
    print(f"{equal} of {args.runs} runs equal; {faults.total()} faults: {dict(faults)}")
    sys.exit(equal < args.runs)


if __name__ == "__main__":
    main()
