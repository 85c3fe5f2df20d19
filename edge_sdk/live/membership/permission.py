"""Asks a node's owner whether a run may begin and, again and again, whether it may go on: what is allowed may depend on
the hour, on bytes, and on what a person says."""

from __future__ import annotations

from math import inf
from typing import Protocol

from edge_sdk.contract.run import Run
from edge_sdk.errors import UsageError
from edge_sdk.live.membership.membership import Membership
from edge_sdk.live.presence.directory import decode_run


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
