"""Reports how the children of a node stand, for people at a console: who is here, who is not, and why.

A report is one JSON object on a channel of its own. A whole one has a row for each child, and is sent now and then;
between two of them there are changes, with the rows of those children alone that stand otherwise than before, so that
one device of ten thousand costs one row. A report is about the moment: it is neither saved nor repeated, and whoever
missed one of the changes has the next whole one. Nothing of the training depends on it. A hospital sends none unless
its settings say so: names of devices may be names of people.
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from math import inf
from typing import TYPE_CHECKING, Any, Protocol

from edge_sdk.contract.children.device_facts import DeviceFacts, clean
from edge_sdk.delivery.roles.counters import Counters
from edge_sdk.live.loop.node_lanes import NodeLanes
from edge_sdk.live.loop.node_settings import COUNTS as COUNTS
from edge_sdk.live.loop.node_settings import NAMES as NAMES
from edge_sdk.live.loop.node_settings import NOTHING
from edge_sdk.live.membership.dispatcher import Dispatcher
from edge_sdk.live.membership.neighbours import Neighbours
from edge_sdk.live.membership.waiting_log import SHOWN, WaitingLog
from edge_sdk.live.presence.presence import Child, Presence
from edge_sdk.live.presence.publisher import Publisher
from edge_sdk.version import find_version
from edge_sdk.wire.topics import ALL, REPORTS, upward

if TYPE_CHECKING:
    from edge_sdk.delivery.session import Session

VERSION, CHANGES = 1, 2
"""Versions of a whole report, and of changes. A console that knows whole ones alone drops the others."""
SOON, AGAIN = 0.5, 15.0  # seconds between two reports: after a change, and without one
LOOK, ROW = 5e-5, 1e-4  # seconds more for each child that is looked at, and for each row that was sent
WHOLE, MORE = 2.0, 0.02  # seconds between two whole reports, and more for each child, up to AGAIN
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
    neighbours: Neighbours
    of_lanes: NodeLanes

    @property
    def children(self) -> tuple[str, ...]: ...
    @property
    def presence(self) -> Presence: ...
    @property
    def session(self) -> Session | None: ...


Standing = tuple[str, str]
"""State and refusal of a child."""


class FleetReporter:
    """Publishes the reports of one node.

    Args:
        level: one of LEVELS.

    Attributes:
        head: the latest report without its rows.
        said: child -> how it stood in the latest report that had it.
        serial: number of the latest whole report; it says which one changes belong to.
        part: number of the latest changes after that, counted from 1.
        whole: hash of the latest whole report, without its serial.
        look_at: when to look whether something has changed, by time.monotonic().
        whole_at: when to look whether something has that changes do not tell, such as bytes.
        count_bundles: says how many children have which bundle, where they have several; None: they do not.
        repeat_at: when to send a whole report although nothing has changed.
    """

    def __init__(self, level: str):
        self.level = level
        self.count_bundles: Callable[[], dict[str, int]] | None = None
        self.head: dict[str, Any] = {}
        self.said: dict[str, Standing] = {}
        self.serial, self.part, self.whole = 0, 0, 0
        self.look_at = inf if level == NOTHING else 0.0
        self.whole_at, self.repeat_at = 0.0, 0.0

    def publish_due(self, node: Reported, now: float) -> None:
        """Publish a report if one is due and the parent's broker can be reached."""
        above = node.publisher.above
        if now < self.look_at or above is None or node.parent is None:
            return
        children = node.children[:MOST]
        self.look_at = now + SOON + LOOK * len(children)
        if above.connection is None or not above.up or above.connection.room <= 0:
            return
        standings = {name: find_standing(node, name) for name in children}
        head = describe_node(node, standings, self.level, now)
        head |= {} if self.count_bundles is None else {"bundles": self.count_bundles()}
        if (report := self.choose(node, head, standings, now)) is None:
            return
        self.look_at += ROW * len(report.get("children", ()))
        self.head, self.said = head, standings
        payload = json.dumps(report | {"at": time.time()}).encode()
        above.connection.publish(upward(node.parent, node.name, REPORTS), payload, 0)

    def choose(
        self, node: Reported, head: dict[str, Any], standings: Mapping[str, Standing], now: float
    ) -> dict[str, Any] | None:
        """The report that is due, whole or changes; None: nothing has changed."""
        changed = [name for name, standing in standings.items() if self.said.get(name) != standing]
        if now < self.whole_at and not changed and head == self.head:
            return None
        named = self.level == NAMES
        if named and now < self.whole_at and standings.keys() == self.said.keys():
            self.part += 1
            rows = self.describe_rows(node, standings, changed)
            return head | rows | {"version": CHANGES, "serial": self.serial, "part": self.part}
        self.whole_at = now + min(AGAIN, WHOLE + MORE * len(standings))
        rows = self.describe_rows(node, standings, standings) if named else {}
        before, self.whole = self.whole, hash(json.dumps([head, rows.get("children")]))
        if before == self.whole and now < self.repeat_at:
            return None
        self.repeat_at = now + AGAIN
        self.serial, self.part = random.getrandbits(53), 0
        return head | rows | {"serial": self.serial, "part": 0}

    def describe_rows(self, node: Reported, standings: Mapping[str, Standing], names: Iterable[str]) -> dict[str, Any]:
        return {"children": [describe_child(node, name, standings[name]) for name in names]}


def describe_node(node: Reported, standings: Mapping[str, Standing], level: str, now: float) -> dict[str, Any]:
    """A report of this moment without its rows.

    Args:
        level: COUNTS leaves out the names of strangers.
        now: time.monotonic().
    """
    leading = [lane.membership for lane in node.of_lanes.leading]
    told = Counter(state for state, _ in standings.values())
    report: dict[str, Any] = {
        "version": VERSION,
        "node": node.name,
        "run": ", ".join(each.run.id for each in leading if each.run is not None),
        "refusal": next((each.refusal for each in leading if each.refusal), ""),
        "waiting": describe_long_waiting(node, now),
        "devices": len(node.children),
        "software": clean(find_version()),
        "counts": {state: told[state] for state in STATES if state in told},
    }
    if (labels := node.neighbours.labels) is not None and labels.told is not None:
        report["labels"] = labels.told
    report |= {kind: count for kind, count in node.of_lanes.rooms.items() if count > (kind == "trainings")}
    if node.dispatcher.roster is not None:
        report["roster"] = node.dispatcher.roster.number
    if level == NAMES:
        recent = time.time() - CALLED
        report["strangers"] = sorted(name for name, at in node.dispatcher.strangers.items() if at > recent)
    return report


def describe_long_waiting(node: Reported, now: float) -> str:
    """What a node has waited for for some seconds, and which limit of a broker stands in its way; neither has a name
    in it."""
    what = node.waiting_log.what if node.waiting_log.gauges(now)["waiting_seconds"] > SHOWN else ""
    return "; ".join(filter(None, (what, *(f"its broker: {one}" for one in node.publisher.list_limits()))))


def find_standing(node: Reported, name: str) -> Standing:
    child = node.of_lanes.lane_of(name).membership.presence.children.get(name)
    return find_state(node, name), "" if child is None else child.refusal


def find_state(node: Reported, name: str) -> str:
    """State of a child, one of STATES."""
    lane = node.of_lanes.lane_of(name)
    child: Child | None = lane.membership.presence.children.get(name)
    if child is None:
        return AWAY
    if child.refusal:
        return REFUSES
    if not child.ready:
        return JOINING if child.joined else CONNECTED
    session = lane.session
    return TRAINING if session is not None and name in session.node.record.below.owed else HERE


def describe_child(node: Reported, name: str, standing: Standing) -> dict[str, Any]:
    """The row of one child. `heard`: Unix time, to ten seconds, so that not every report is new for that alone."""
    counters, heard = node.counters, node.dispatcher.heard_at.get(name)
    state, refusal = standing
    membership = node.of_lanes.lane_of(name).membership
    child, run = membership.presence.children.get(name), membership.run
    own = {} if node.of_lanes.shared is None or run is None else {"run": run.id}
    return {
        "name": name,
        "state": state,
        "refusal": refusal,
        "heard": None if heard is None else round(heard) // 10 * 10,
        "bytes_in": counters.get(f"bytes_in.{name}", 0),
        "bytes_out": counters.get(f"bytes_out.{name}", 0) + counters.get(f"bytes_out.{ALL}", 0),
        "late": counters.get(f"late.{name}", 0),
        **own,
    } | ({} if child is None or child.facts is None else describe_facts(child.facts))


def describe_facts(facts: DeviceFacts) -> dict[str, Any]:
    """What a child has told of its machine; nothing of what it has not."""
    told = {"version": facts.version, "board": facts.board, "battery": facts.battery}
    return {key: value for key, value in told.items() if value not in ("", None)}
