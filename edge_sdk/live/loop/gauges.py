"""Gauges of a live node, which are figures of this moment (queues, transfers, round), and a line of them in the log."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from logging import Logger
from math import inf
from typing import TYPE_CHECKING, Protocol

from edge_sdk.contract.run import Run
from edge_sdk.delivery.roles.counters import Counters
from edge_sdk.wire.link import Link

if TYPE_CHECKING:
    from edge_sdk.delivery.session import Session

REPORTS_APART = 60.0  # seconds between two lines of counters in the log


def read_gauges(session: Session | None, links: Sequence[Link], children_here: int) -> dict[str, float]:
    """Read all gauges. May be called from any thread; a figure may be of a moment ago then.

    Args:
        links: all links that the node wants, up or not.
    """
    from edge_sdk.contract import round as rounds  # of a run

    links = [link for link in links if link.up]
    found: dict[str, float] = {"links_up": len(links), "children_here": children_here}
    found["unacknowledged_publishes"] = sum(len(c.flying) for link in links if (c := link.connection))
    found["round_trip_seconds"] = max((c.trip for link in links if (c := link.connection)), default=0.0)
    if session is not None:
        found["outbox_bytes"] = session.outbox.bytes
        found["jobs_waiting"] = len(session.calls.jobs)
        found["messages_unacknowledged"] = sum(len(seqs) for seqs in list(session.outbox.pending.values()))
        found["transfers_out"] = len(session.transfers_out.bodies)
        found["transfers_in"] = len(session.transfers_in.parts)
        below = session.node.record.below
        found["round"] = rounds.count_questions(below)
        found["debts"] = len(below.owed)
        found["members"] = len(session.members.gone_at)
        if (deadline := rounds.patience(below)) < inf:
            found["deadline_seconds"] = deadline
    return found


class Peers(Protocol):
    """What is needed of a runtime to name its peers."""

    @property
    def current(self) -> Run | None: ...
    @property
    def here(self) -> tuple[str, ...]: ...
    @property
    def children(self) -> tuple[str, ...]: ...


def name_peers(node: Peers, heard_at: Mapping[str, float]) -> dict[str, float]:
    """Gauges with a name: the run, which children are here (1 or 0), and when each peer was heard last, Unix time."""
    here, run = frozenset(node.here), node.current
    found = {f"child_here.{name}": float(name in here) for name in node.children}
    found |= {f"last_heard_timestamp_seconds.{name}": at for name, at in list(heard_at.items())}
    return found if run is None else found | {f"in_run.{run.id}": 1.0}


class CounterLog:
    """Writes counters and gauges into the log, now and then.

    Attributes:
        due: when the next line is to be written, by time.monotonic().
        said: the counters of the last line.
    """

    def __init__(self, name: str, counters: Counters, gauges: Callable[[], Mapping[str, float]], log: Logger):
        self.name, self.counters, self.gauges, self.log = name, counters, gauges, log
        self.due = time.monotonic() + REPORTS_APART
        self.said: dict[str, int] = {}

    def write(self, now: float) -> None:
        """Write a line, if anything has been counted since the last one."""
        totals = self.counters.totals()
        if totals != self.said:
            gauges = {name: f"{value:g}" for name, value in self.gauges().items() if value and "." not in name}
            self.log.info("%s: counters: %s", self.name, " ".join(f"{k}={v}" for k, v in {**totals, **gauges}.items()))
        self.due, self.said = now + REPORTS_APART, totals
