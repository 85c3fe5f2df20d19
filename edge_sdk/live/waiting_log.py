"""Says in the log for whom a node waits, and since when: a run that stands still must name who holds it up."""

from __future__ import annotations

from logging import Logger

from edge_sdk.delivery.session import Session
from edge_sdk.live.presence import Presence

FIRST, AGAIN = 30.0, 600.0  # seconds of waiting until it is said, and until it is said once more


class WaitingLog:
    """Watches one node's session.

    Attributes:
        since: when the present waiting began, by time.monotonic().
        due: when it is to be said, by time.monotonic().
    """

    def __init__(self, name: str, log: Logger):
        self.name, self.log = name, log
        self.missing: tuple[str, ...] = ()
        self.since = self.due = 0.0
        self.was = ""

    def look(self, session: Session | None, presence: Presence, now: float) -> None:
        """Begin a new waiting where somebody new is waited for, or has come; say a long one."""
        what, missing = ("", ()) if session is None else waited_for(session, presence)
        if (what, missing) != (self.was, self.missing):
            self.was, self.missing, self.since, self.due = what, missing, now, now + FIRST
        if self.was and now >= self.due:
            seconds, who = now - self.since, ", ".join(describe(name, presence) for name in self.missing)
            self.log.warning("%s: %s since %.0f s: %s", self.name, self.was, seconds, who or "nobody is left to answer")
            self.due = now + AGAIN

    def seconds(self, now: float) -> float:
        """Seconds since the present waiting began; 0: nobody is waited for."""
        return now - self.since if self.was else 0.0


def waited_for(session: Session, presence: Presence) -> tuple[str, tuple[str, ...]]:
    """What is waited for, and the children that keep us waiting."""
    below = session.node.record.below
    if not session.settled:
        missing = presence.expected - set(presence.here)
        needed = min(session.habits.wait_for, len(presence.expected))
        return f"waiting for children to come ({len(presence.here)} of {needed} are here)", tuple(sorted(missing))
    if below.open and below.owed:
        return f"waiting for answers to question {below.number}", tuple(sorted(below.owed))
    if below.open and len(below.heard) < below.policy.quorum:
        return f"question {below.number} has {len(below.heard)} of {below.policy.quorum} answers that it needs", ()
    return "", ()


def describe(name: str, presence: Presence) -> str:
    child = presence.children.get(name)
    if child is None:
        return f"{name} (not connected)"
    if child.refusal:
        return f"{name} (cannot take part: {child.refusal})"
    return name if child.ready else f"{name} (connected, not in this run yet)"
