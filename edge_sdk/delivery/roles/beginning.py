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
        patient: see `Assembly.patient`.
        opened: when the session was opened, by time.monotonic().
    """

    habits: Habits
    members: Members
    restarted: bool
    patient: bool
    opened: float = field(default_factory=time.monotonic)

    @property
    def ends_at(self) -> float:
        """When the role is called even if children are missing, by time.monotonic(); inf: they are waited for.

        In a run in which nobody waits for ever, a node begins when no further child has come for a while. Each child
        puts that off once. Where nobody at all has come, the parent could do nothing with a node that has begun, so
        that one waits for longer; but not for ever, or one hospital whose devices are all away would hold up all the
        others.
        """
        wait, came_at = self.habits.wait_seconds, self.members.came_at
        if self.restarted:
            return self.opened + wait
        if self.patient:
            return inf
        return came_at + wait if came_at > -inf else self.opened + FOR_ANYBODY * wait

    def is_over(self, now: float) -> bool:
        """Says whether enough children are here, or have been waited for long enough."""
        return now >= self.ends_at or len(self.members.here) >= self.habits.wait_for

    def describe_missing(self, children: Collection[str]) -> str:
        """Names of the children without whom it has ended, the first few of many; "": enough are here."""
        missing = sorted({*children} - {*self.members.here})
        if len(self.members.here) >= self.habits.wait_for:
            return ""
        return list_some(missing)
