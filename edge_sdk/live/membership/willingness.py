"""Asks a node's application again and again whether it wants to train, and tells the parent when that has changed.

Where its owner lets it, a device also tells how many windows were given a label, in steps (see presence/labels.py)."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from edge_sdk.contract.children.device_facts import DeviceFacts
from edge_sdk.contract.children.limits import MOST_LABELLED
from edge_sdk.contract.children.willing import Reason
from edge_sdk.live.membership.membership import Membership
from edge_sdk.live.presence.announcer import Announcer
from edge_sdk.live.presence.labels import DEVICE_STEP, in_steps


class Willingness:
    """Willingness of one node.

    Args:
        ask: why it wants no training now; None: it does.
        every: seconds between two looks, if nobody wakes the node.
        count: how many windows were given a label so far; 0 where that is nobody's business.
        facts: what the parent is told of this machine; None: nothing.

    Attributes:
        at: when to ask again, by time.monotonic(). Any thread may set it to 0, and then wake the loop.
    """

    def __init__(
        self,
        ask: Callable[[], Reason | None] = lambda: None,
        every: float = inf,
        count: Callable[[], int] = lambda: 0,
        facts: Callable[[], DeviceFacts | None] = lambda: None,
    ):
        self.ask, self.every, self.count, self.facts, self.at = ask, every, count, facts, 0.0

    def look(self, membership: Membership, announcer: Announcer, now: float) -> None:
        """Ask, if it is time to; a birth says so if the answer is of another kind than the one before."""
        if now < self.at:
            return
        self.at, before, reason = now + self.every, membership.unwilling, self.ask()
        membership.unwilling = reason
        told, membership.labelled = membership.labelled, in_steps(min(self.count(), MOST_LABELLED), DEVICE_STEP)
        known, membership.facts = membership.facts, self.facts()
        kinds = (before and before.kind), (reason and reason.kind)
        if kinds[0] != kinds[1] or told != membership.labelled or known != membership.facts:
            announcer.announce()
