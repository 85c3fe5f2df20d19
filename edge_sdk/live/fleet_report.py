"""Reports how the children of a node stand, for people at a console: who is here, who is not, and why.

A report is one JSON object on a channel of its own, sent when something has changed and now and then otherwise. It is
about the moment, so it is neither saved nor repeated; whoever missed one has the next. Nothing of the training depends
on it. A hospital sends none unless its settings say so: names of devices may be names of people.
"""

from __future__ import annotations

import json
import time
from math import inf
from typing import Any, Protocol

from edge_sdk.contract.run import Run
from edge_sdk.delivery.counters import Counters
from edge_sdk.delivery.session import Session
from edge_sdk.live.dispatcher import Dispatcher
from edge_sdk.live.presence import Child, Presence
from edge_sdk.live.publisher import Publisher
from edge_sdk.live.waiting_log import SHOWN, WaitingLog
from edge_sdk.wire.topics import ALL, REPORTS, upward

NOTHING, COUNTS, NAMES = "nothing", "counts", "names"
LEVELS = (NOTHING, COUNTS, NAMES)
"""What a hospital tells a console of its devices."""
VERSION = 1
SOON, AGAIN = 1.0, 15.0  # seconds between two reports: after a change, and without one
MOST = 20_000  # children of one report
CALLED = 300.0  # seconds for which a stranger that has called is reported

HERE, TRAINING, JOINING, CONNECTED, REFUSES, AWAY = "here", "training", "joining", "connected", "refuses", "away"
STATES = (TRAINING, HERE, JOINING, CONNECTED, REFUSES, AWAY)
"""States of a child: it owes an answer; it is here and has nothing to do; it starts its role; it is in no run of ours;
it cannot take part; it is not connected."""


class Reported(Protocol):
    """What is needed of a runtime."""

    name: str
    parent: str | None
    publisher: Publisher
    counters: Counters
    waiting_log: WaitingLog
    dispatcher: Dispatcher

    @property
    def children(self) -> tuple[str, ...]: ...
    @property
    def presence(self) -> Presence: ...
    @property
    def session(self) -> Session | None: ...
    @property
    def current(self) -> Run | None: ...
    @property
    def refusal(self) -> str: ...


class FleetReporter:
    """Publishes the reports of one node.

    Args:
        level: one of LEVELS.

    Attributes:
        said: the latest report, without its time.
        look_at: when to look whether something has changed, by time.monotonic().
        repeat_at: when to report although nothing has.
    """

    def __init__(self, level: str):
        self.level, self.said = level, ""
        self.look_at = inf if level == NOTHING else 0.0
        self.repeat_at = 0.0

    def publish_due(self, node: Reported, now: float) -> None:
        """Publish a report if one is due and the parent's broker can be reached."""
        above = node.publisher.above
        if now < self.look_at or above is None or node.parent is None:
            return
        self.look_at = now + SOON + len(node.children) / 1000
        if above.connection is None or not above.up or above.connection.room <= 0:
            return
        report = describe_children(node, self.level, now)
        content = json.dumps(report)
        if content == self.said and now < self.repeat_at:
            return
        self.said, self.repeat_at = content, now + AGAIN
        payload = json.dumps(report | {"at": time.time()}).encode()
        above.connection.publish(upward(node.parent, node.name, REPORTS), payload, 0)


def describe_children(node: Reported, level: str, now: float) -> dict[str, Any]:
    """A report of this moment.

    Args:
        level: COUNTS leaves out names, NAMES has a row for each child.
        now: time.monotonic().
    """
    states = {name: find_state(node, name) for name in node.children[:MOST]}
    told = list(states.values())
    report: dict[str, Any] = {
        "version": VERSION,
        "node": node.name,
        "run": "" if node.current is None else node.current.id,
        "refusal": node.refusal,
        "waiting": node.waiting_log.what if node.waiting_log.gauges(now)["waiting_seconds"] > SHOWN else "",
        "devices": len(node.children),
        "counts": {state: told.count(state) for state in STATES if state in told},
    }
    if node.dispatcher.roster is not None:
        report["roster"] = node.dispatcher.roster.number
    if level == NAMES:
        recent = time.time() - CALLED
        report["strangers"] = sorted(name for name, at in node.dispatcher.strangers.items() if at > recent)
        report["children"] = [describe_child(node, name, state) for name, state in states.items()]
    return report


def find_state(node: Reported, name: str) -> str:
    """State of a child, one of STATES."""
    child: Child | None = node.presence.children.get(name)
    if child is None:
        return AWAY
    if child.refusal:
        return REFUSES
    if not child.ready:
        return JOINING if child.joined else CONNECTED
    session = node.session
    return TRAINING if session is not None and name in session.node.record.below.owed else HERE


def describe_child(node: Reported, name: str, state: str) -> dict[str, Any]:
    """The row of one child. `heard`: Unix time, to ten seconds, so that not every report is new for that alone."""
    child, counters = node.presence.children.get(name), node.counters
    heard = node.dispatcher.heard_at.get(name)
    return {
        "name": name,
        "state": state,
        "refusal": "" if child is None else child.refusal,
        "heard": None if heard is None else round(heard) // 10 * 10,
        "bytes_in": counters.get(f"bytes_in.{name}", 0),
        "bytes_out": counters.get(f"bytes_out.{name}", 0) + counters.get(f"bytes_out.{ALL}", 0),
        "late": counters.get(f"late.{name}", 0),
    }
