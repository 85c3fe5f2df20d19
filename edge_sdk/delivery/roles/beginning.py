"""When a node that has opened a run calls its role although children are missing, and whom it names then."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass, field
from math import inf

from edge_sdk.delivery.roles.habits import Habits
from edge_sdk.delivery.roles.listing import list_some
from edge_sdk.delivery.roles.members import Members

FOR_ANYBODY = 6.0  # times `Habits.wait_seconds` that is waited as long as nobody at all has come


@dataclass
class Beginning:
    """The time between the opening of a session and the first call of its role.

    Attributes:
        restarted: the role was started before.
        patient, joins_later: see `Assembly`.
        deadline: seconds that a question waits for an answer as long as nothing is measured; inf: for ever.
        opened: when the session was opened, by time.monotonic().
    """

    habits: Habits
    members: Members
    restarted: bool
    patient: bool
    joins_later: bool = False
    deadline: float = inf
    opened: float = field(default_factory=time.monotonic)

    @property
    def ends_at(self) -> float:
        """When the role is called even if children are missing, by time.monotonic(); inf: they are waited for.

        In a run in which nobody waits for ever, a node begins when no further child has come for a while. Each child
        puts that off once. Where nobody at all has come, the parent could do nothing with a node that has begun, so
        that one waits for longer; but not for ever, or one hospital whose devices are all away would hold up all the
        others. In any other run those who can join later are waited for as an answer would be: for the first deadline.
        """
        wait, came_at = self.habits.wait_seconds, self.members.came_at
        if self.restarted:
            return self.opened + wait
        if self.patient:
            is_bounded = self.joins_later and self.habits.waits_for_able and self.members.here
            return self.opened + self.deadline if is_bounded else inf
        return came_at + wait if came_at > -inf else self.opened + FOR_ANYBODY * wait

    def is_over(self, now: float) -> bool:
        """Says whether enough children are here, or have been waited for long enough."""
        return now >= self.ends_at or len(self.members.here) >= self.needed

    @property
    def needed(self) -> int:
        """Number of children that must be here; one at least, where all are waited for who can take part."""
        wait_for = self.habits.wait_for
        if not (wait_for and self.joins_later and self.habits.waits_for_able):
            return wait_for
        return max(1, wait_for - len(self.members.refusing))

    def describe_missing(self, children: Collection[str]) -> str:
        """Who the children are without whom it has ended, and why, the first few of many; "": enough are here."""
        missing = sorted({*children} - {*self.members.here})
        if len(self.members.here) >= self.habits.wait_for:
            return ""
        if len(self.members.here) >= self.needed:
            return f"{list_some(missing)}: cannot take part now"
        return f"{list_some(missing)}: not here, and no longer waited for"
