"""A parent that never answers: a device whose hospital has another name, or does not name it, must hear of that.

The broker is reached and births are published, but nobody takes them; a hospital does not answer strangers.
"""

from __future__ import annotations

from logging import Logger
from math import inf

from edge_sdk.wire.link import Link

SILENT = 10.0  # seconds without an answer, from which on it is said


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
