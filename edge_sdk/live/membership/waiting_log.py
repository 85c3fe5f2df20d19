"""Says in the log for whom a node waits, and since when: a run that stands still must name who holds it up.

A device whose hospital has another name, or does not name it, must hear of that, too: the broker is reached and births
are published, but nobody takes them; a hospital does not answer strangers.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from logging import Logger
from math import inf
from typing import TYPE_CHECKING, Any

from edge_sdk.live.presence.presence import Presence
from edge_sdk.wire.link import Link

if TYPE_CHECKING:
    from edge_sdk.delivery.session import Session

FIRST, AGAIN = 30.0, 600.0  # seconds of waiting until it is said, and until it is said once more
LOOKS_APART = 0.25  # seconds between two looks for whom we wait
SILENT = 10.0  # seconds without an answer of the parent, from which on it is said
SHOWN = 5.0  # seconds of waiting from which a child is named among the gauges


class WaitingLog:
    """Watches one node's session.

    Attributes:
        what: what is waited for; "": nothing.
        since: when the present waiting began, by time.monotonic().
        children: who keeps us waiting -> since when.
        due: when it is to be said, by time.monotonic().
        presence: how the children stood at the latest look.
        look_at: when to look again for whom we wait, by time.monotonic(), where the same is waited for.
        trouble: what is wrong between this node and a broker; "": nothing.
        idle, idle_since: what this node waits for without being kept by anybody below, and since when; "": it works.
    """

    def __init__(self, name: str, parent: str | None, log: Logger):
        self.name, self.parent, self.log = name, parent, log
        self.what = ""
        self.children: dict[str, float] = {}
        self.presence: Presence | None = None
        self.look_at = 0.0
        self.idle = self.trouble = ""
        self.since = self.due = self.idle_since = 0.0

    def look(self, session: Session | None, presence: Presence, now: float, trouble: str = "") -> None:
        """Begin a new waiting where something else is waited for; say a long one."""
        from edge_sdk.delivery.roles.listing import list_some

        self.trouble, self.presence = trouble, presence
        what, missing = ("", ()) if session is None else waited_for(session, presence)
        if what != self.what:
            self.what, self.children, self.since, self.due = what, {}, now, now + FIRST
        elif now < min(self.look_at, self.due if what else inf):
            return
        self.look_at = now + LOOKS_APART
        self.children = {name: self.children.get(name, now) for name in sorted(missing)}
        idle = "" if what else self.find_idle(session, presence)
        if idle != self.idle:
            self.idle, self.idle_since = idle, now
        if self.what and now >= self.due:
            who = list_some([describe(name, presence) for name in self.children]) or "nobody is left to answer"
            self.log.warning("%s: %s since %.0f s: %s", self.name, what, now - self.since, who)
            self.due = now + AGAIN

    def find_idle(self, session: Session | None, presence: Presence) -> str:
        """What a node waits for that nobody below keeps waiting; "": it works, or has nobody above."""
        if session is not None and (session.calls.busy or session.calls.jobs):
            return ""
        if self.parent is None:
            return ""
        if not (presence.parent and presence.parent.here):
            return f"waiting for {self.parent}, which is not connected, or has not begun this run"
        return f"waiting for {'a run' if session is None else 'a question'} of {self.parent}"

    def status(self, now: float) -> dict[str, Any]:
        """What is waited for in words, since when (by time.time()), and for whom; for people. From any thread."""
        what, since = (self.what, self.since) if self.what else (self.idle, self.idle_since)
        presence = self.presence
        children = {name: name if presence is None else describe(name, presence) for name in list(self.children)}
        what = "; ".join(filter(None, (what, self.trouble)))
        return {"for": what, "since": time.time() - (now - since), "children": children, "noted": time.time()}

    def gauges(self, now: float) -> dict[str, float]:
        """Seconds since the present waiting began (0: nobody is waited for), and the same for each child that has kept
        us waiting for a while. May be called from any thread."""
        late = {f"waiting_for.{name}": now - since for name, since in list(self.children.items())}
        found = {name: seconds for name, seconds in late.items() if seconds >= SHOWN}
        return {"waiting_seconds": now - self.since if self.what else 0.0} | found


def waited_for(session: Session, presence: Presence) -> tuple[str, Collection[str]]:
    """What is waited for, and the children that keep us waiting, in no order."""
    from edge_sdk.contract import round as rounds

    below = session.node.record.below
    number = rounds.count_questions(below)
    if not session.settled:
        missing = presence.expected - set(presence.here)
        needed = min(session.beginning.needed, len(presence.expected))
        return f"waiting for children to come ({len(presence.here)} of {needed} are here)", missing
    if session.calls.holds(session.node.record) and not (below.open and below.owed):
        return "waiting for a device that is willing to train", session.members.unwilling
    if session.calls.is_open_for_nothing(session.node.record):
        return "", ()  # the parent has closed its round without this node
    if below.open and below.owed:
        return f"waiting for answers to question {number}", below.owed
    if below.open and len(below.heard) < (needed := rounds.quorum(below)):
        return f"question {number} has {len(below.heard)} of {needed} answers that it needs", ()
    return "", ()


def describe(name: str, presence: Presence) -> str:
    child = presence.children.get(name)
    if child is None:
        return f"{name} (not connected)"
    if child.refusal:
        return f"{name} (cannot take part: {child.refusal})"
    if child.unwilling is not None:
        return f"{name} (not willing to train now: {child.unwilling})"
    return name if child.ready else f"{name} (connected, not in this run yet)"


class ParentSilence:
    """Silence of one node's parent.

    Attributes:
        since: from when on the broker was there and the parent silent, by time.monotonic(); inf: it is not so.
        why: what is the matter, in words; "": the parent has answered, or there was not enough time.
        told: it is in the log, and is not said again before the parent has answered.
    """

    def __init__(self, name: str, parent: str | None, log: Logger):
        self.name, self.parent, self.log = name, parent, log
        self.since, self.why, self.told = inf, "", False

    @property
    def due(self) -> float:
        """When to look next, by time.monotonic()."""
        return inf if self.why else self.since + SILENT

    def look(self, link: Link | None, answered: bool, now: float) -> None:
        """Note whether the parent has answered over the present connection, and say a long silence once.

        Args:
            link: to the parent's broker.
            answered: the parent has answered the latest birth's connection.
        """
        if self.parent is None or link is None or link.connection is None or answered or not link.up:
            self.since, self.why, self.told = inf, "", self.told and not answered
            return
        self.since = min(self.since, now)
        if now < self.since + SILENT or self.why:
            return
        self.why = (
            f"nobody called {self.parent} answers at {link.connection.broker}: is that the hospital's name, does the "
            f"hospital run there, and do its settings name {self.name}?"
        )
        if not self.told:
            self.log.warning("%s: %s", self.name, self.why)
        self.told = True
