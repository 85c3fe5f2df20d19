"""Asks again and again whether a node may take part, and whether it wants to.

Its owner says whether a run may begin and may go on: what is allowed may depend on the hour, on bytes, and on what a
person says. Its application says whether it wants to train, and the parent is told when that has changed. Where its
owner lets it, a device also tells how many windows were given a label, in steps (see presence/labels.py).
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Protocol

from edge_sdk.contract.children.device_facts import DeviceFacts, Reason
from edge_sdk.contract.children.limits import MOST_LABELLED
from edge_sdk.contract.run import Run
from edge_sdk.errors import UsageError
from edge_sdk.live.membership.membership import Membership
from edge_sdk.live.presence.announcer import Announcer
from edge_sdk.live.presence.directory import decode_run
from edge_sdk.live.presence.labels import DEVICE_STEP, in_steps


class Owner(Protocol):
    """What decides about runs."""

    def judge_offer(self, run: Run) -> str:
        """Why a run that is offered may not begin; "": it may."""
        ...

    def look(self, run: Run) -> str:
        """Why a run may not go on now; "": it may."""
        ...


class Permission:
    """Permission of one node.

    Args:
        owner: decides; None: every run may begin and go on.
        every: seconds between two looks.

    Attributes:
        at: when to ask again, by time.monotonic().
        told: why the run that was offered last is not let in, as it was said last.
    """

    def __init__(self, owner: Owner | None = None, every: float = 1.0):
        self.owner, self.every, self.told = owner, every, ""
        self.at = inf if owner is None else 0.0

    def change_owner(self, owner: Owner) -> None:
        """Let another one decide from now on. May be called from any thread; then wake the loop."""
        self.owner, self.at = owner, 0.0

    def check(self, run: Run) -> None:
        """Raises UsageError if a run that is offered may not begin now."""
        self.told = "" if self.owner is None else self.owner.judge_offer(run)
        if self.told:
            raise UsageError(self.told)

    def look(self, membership: Membership, now: float) -> None:
        """Ask, if it is time to: leave a run that may no longer go on, try one again that may have become possible."""
        if now < self.at or self.owner is None or membership.is_broken:
            return
        self.at = now + self.every
        if membership.session is not None:
            if why := self.owner.look(membership.session.run):
                self.told = why
                membership.hold_run(membership.session.run, why)
        elif membership.refused and self.told and self.owner.look(decode_run(membership.refused)) != self.told:
            membership.reconsider = True


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
