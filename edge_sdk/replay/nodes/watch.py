"""What a replay sees of its nodes while they run: the aggregator's metrics, bytes so far, the training alone."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from edge_sdk.nodes.daemon.device_result import ALONE
from edge_sdk.replay.nodes.processes import NodeProcesses, ProcessError
from edge_sdk.replay.nodes.sent_before import LEDGERS, sent_before

Line = Mapping[str, Any]
"""One line of the aggregator's metrics."""
Say = Callable[[str], None]
"""Tells a person a sentence about what is going on."""

PATIENCE = 300.0
"""Seconds after the last round in which no device makes progress, until the replay gives up."""
START_EVERY = 5.0
"""Seconds between two lines about how far the nodes are with starting."""
SAY_EVERY = 10.0
"""Seconds between two lines about how far the devices are."""


def follow_run(out: Path, nodes: NodeProcesses, progress: Callable[[Line], None], say: Say) -> list[Line]:
    """Passes on the aggregator's metrics, line by line, and its warnings, until the run has ended.

    Raises:
        ProcessError: a process failed, or the aggregator ended before its run.
    """
    lines: list[Line] = []
    warned = 0
    waiting = StartUp(nodes, say)
    for line in tail_metrics(out / "aggregator" / "metrics.jsonl", nodes, waiting):
        warnings = nodes.warnings("aggregator")
        for warning in warnings[warned:]:
            say(f"warning: {warning}")
        warned = len(warnings)
        line = {**line, "bytes_so_far": count_bytes(out)}
        lines.append(line)
        progress(line)
        if line["kind"] == "finished":
            return lines
    raise ProcessError("the aggregator ended without finishing the run; see logs/aggregator.log")


class StartUp:
    """Tells how far nodes are with starting, where that has changed, until the first round is over."""

    def __init__(self, nodes: NodeProcesses, say: Say) -> None:
        self.nodes, self.say, self.said, self.last = nodes, say, time.monotonic(), ""

    def __call__(self) -> None:
        if time.monotonic() - self.said < START_EVERY:
            return
        self.said = time.monotonic()
        connected = sum(self.nodes.has_said(name, "connected to") for name in self.nodes.running)
        doing = (
            "the first round is under way" if connected == len(self.nodes.running) else "models are loaded and checked"
        )
        text = f"{connected} of {len(self.nodes.running)} processes are connected; {doing}"
        if text != self.last:
            self.say(text)
        self.last = text


def tail_metrics(path: Path, nodes: NodeProcesses, waiting: Callable[[], None] = lambda: None) -> Iterator[Line]:
    """Reads the lines of a growing file, as long as the aggregator lives.

    Args:
        waiting: called again and again until the first line is there.
    """
    read = 0
    while True:
        nodes.check()
        if not read:
            waiting()
        ended = nodes.running["aggregator"].poll() is not None
        if path.exists():
            with path.open() as file:
                file.seek(read)
                while (text := file.readline()).endswith("\n"):
                    read = file.tell()
                    yield json.loads(text)
        if ended:
            return
        time.sleep(0.05)


def count_bytes(out: Path) -> int:
    """Bytes on all hops so far, seen from their lower ends: what is published once for all counts for each receiver,
    and what was sent before the replay was interrupted counts, too.

    The hospitals' ledgers, from which this is read, are at most half a second old.
    """
    ledgers = [json.loads(path.read_text()) for path in out.glob(LEDGERS)]
    hops = [hop for ledger in ledgers for hop in (ledger["up"], *ledger["down"].values())]
    to_all = sum(ledger["to_all"] * len(ledger["down"]) for ledger in ledgers)
    return int(sum(hop["sent"] + hop["received"] for hop in hops) + to_all) + sum(sent_before(out).values())


class LocalOnlyNotes:
    """Progress of each device's training alone, from the notes that devices write.

    Args:
        directory: DIR/devices.
        devices: their names.
    """

    def __init__(self, directory: Path, devices: Sequence[str]) -> None:
        self.files = [directory / device / ALONE for device in devices]

    def forget(self) -> None:
        """Removes what an interrupted replay has left: its devices begin this training anew."""
        for file in self.files:
            file.unlink(missing_ok=True)

    def read_shares(self) -> list[float]:
        """Share of its rounds that each device has done, 0 to 1."""
        notes = [json.loads(f.read_text()) if f.exists() else {"rounds": 0, "of": 1} for f in self.files]
        return [n["rounds"] / n["of"] for n in notes]


def wait_for_end(nodes: NodeProcesses, notes: LocalOnlyNotes, say: Say) -> None:
    """Waits until all processes have ended; they may take their time as long as any of them makes progress.

    Raises:
        ProcessError: a process failed, or nothing has moved for PATIENCE seconds.
    """
    before: tuple[list[float], int] | None = None
    moved = said = time.monotonic()
    while running := nodes.unfinished():
        nodes.check()
        now, shares = time.monotonic(), notes.read_shares()
        if before != (shares, len(running)):
            before, moved = (shares, len(running)), now
        elif now - moved > PATIENCE:
            raise ProcessError(f"nothing has moved for {PATIENCE:.0f} s; still running: {', '.join(running)}")
        if any(shares) and now - said > SAY_EVERY:
            done = sum(share == 1 for share in shares)
            say(f"alone {sum(shares) / len(shares):>6.0%}   {done} of {len(shares)} devices are done")
            said = now
        time.sleep(0.2)
    nodes.check()
