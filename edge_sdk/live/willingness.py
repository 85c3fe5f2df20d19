"""Asks a node's application again and again whether it wants to train, and tells the parent when that has changed."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from edge_sdk.contract.willing import Reason
from edge_sdk.live.announcer import Announcer
from edge_sdk.live.membership import Membership


class Willingness:
    """Willingness of one node.

    Args:
        ask: why it wants no training now; None: it does.
        every: seconds between two looks, if nobody wakes the node.

    Attributes:
        at: when to ask again, by time.monotonic(). Any thread may set it to 0, and then wake the loop.
    """

    def __init__(self, ask: Callable[[], Reason | None] = lambda: None, every: float = inf):
        self.ask, self.every, self.at = ask, every, 0.0

    def look(self, membership: Membership, announcer: Announcer, now: float) -> None:
        """Ask, if it is time to; a birth says so if the answer is of another kind than the one before."""
        if now < self.at:
            return
        self.at, before, reason = now + self.every, membership.unwilling, self.ask()
        membership.unwilling = reason
        if (before and before.kind) != (reason and reason.kind):
            announcer.announce()
