"""What a settings file says about waiting: `deadline = 300`, `"auto"` or `"none"`, on either tier.

"auto"   derived from the times that rounds take on this node (see contract/children/patience.py); the default
"none"   everybody who was asked is waited for: rounds are never short, and a device that is gone holds up the run
300      seconds
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from typing import ClassVar

from edge_sdk.contract.round import Policy
from edge_sdk.contract.run import Run
from edge_sdk.errors import UsageError

AUTO, NONE = "auto", "none"
FIRST, LEAST = 3600.0, 60.0  # seconds that a hospital waits: as long as nothing is measured, and at least
ABOVE = 2.0  # times as long is waited for a hospital as it waits itself


@dataclass(frozen=True)
class Deadline:
    """One deadline.

    Attributes:
        seconds: it; inf: none. Where it is measured: the one that holds until something has been measured.
        measured: it follows the times that rounds take.
        least: seconds that a measured one has at least.
    """

    FOREVER: ClassVar[Deadline]

    seconds: float = inf
    measured: bool = False
    least: float = LEAST

    def apply(self, policy: Policy) -> Policy:
        """A method's policy, made for a deadline of `seconds`, with the rest of what is said here."""
        return replace(policy, measured=self.measured, least=self.least)

    def __str__(self) -> str:
        return AUTO if self.measured else NONE if self.seconds == inf else f"{self.seconds:g}"


Deadline.FOREVER = Deadline()


def parse_deadline(value: float | str, key: str) -> Deadline:
    """The deadline of a hospital, as a settings file says it.

    Raises:
        UsageError: it says neither seconds nor one of the two words.
    """
    if value == AUTO:
        return Deadline(FIRST, True)
    if value == NONE:
        return Deadline()
    if isinstance(value, str) or not value > 0:
        raise UsageError(f'{key} = {value!r}, expected seconds above 0, "{AUTO}" or "{NONE}"')
    return Deadline(float(value))


def deadline_of(run: Run) -> Deadline:
    """The deadline of a run's hospitals."""
    return Deadline(run.deadline, run.measured)


def deadline_above(value: float | str, below: Deadline) -> Deadline:
    """The deadline of the aggregator, which must wait for longer than its hospitals do. `below`: theirs.

    "auto" is none where hospitals wait for everybody. Where they have a deadline, it is never below twice that.

    Raises:
        UsageError: a hospital would be given up before it gives up its devices, or may be.
    """
    own = parse_deadline(value, "deadline")
    if own.measured:
        if below.seconds == inf:
            return Deadline()
        return Deadline(ABOVE * below.seconds, True, ABOVE * (LEAST if below.measured else below.seconds))
    if own.seconds < inf and (below.measured or not own.seconds > below.seconds):
        least = f"the aggregator waits longer than a hospital does for its devices (run.deadline = {below})"
        raise UsageError(f"deadline = {own}: {least}")
    return own
