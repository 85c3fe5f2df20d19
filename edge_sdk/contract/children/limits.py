"""Limits that a node's own settings set for its children: what they may claim, and when they are left out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from edge_sdk.errors import UsageError

MOST_DEVICES = 100_000
"""Behind one hospital: what is added up or drawn over hospitals stays far below what sums and draws can take."""
MOST_LABELLED = 10**9
"""Windows that one device may say it has given labels to: far more than it will have in its life, and few enough that
those of MOST_DEVICES stay exact numbers in a report's JSON."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The [limits] table of a hospital's or the aggregator's settings file.

    Attributes:
        samples: child -> training samples that it has registered: a device's own, or all of a hospital's devices. Where
            uploads are weighted with samples, none counts with more. A device that is not named here counts with what
            it has claimed first.
        most_samples: most that any device counts with, named here or not; 0: no such limit.
        suspend_after: refused uploads in a row after which a child is suspended; 0: none ever is.
        lift: child -> how many of its suspensions are lifted, because somebody has looked at it.
    """

    samples: Mapping[str, int] = field(default_factory=dict)
    most_samples: int = 0
    suspend_after: int = 3
    lift: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, count in {"most_samples": self.most_samples, "suspend_after": self.suspend_after}.items():
            if count < 0:
                raise UsageError(f"{name} = {count}: 0 or more")
        for name, table in {"samples": self.samples, "lift": self.lift}.items():
            if bad := next((child for child, count in table.items() if count < 1), None):
                raise UsageError(f"{name}.{bad} = {table[bad]}: 1 or more")

    def check_children(self, children: Mapping[str, int] | tuple[str, ...]) -> None:
        """Raises UsageError if a child is named here that there is not: a slip of the pen would limit nobody."""
        for name, table in {"samples": self.samples, "lift": self.lift}.items():
            if stranger := next((child for child in table if child not in children), None):
                known = ", ".join(sorted(children))
                raise UsageError(f"limits.{name}.{stranger}: is none of {known}")


def check_devices(key: str, devices: int) -> None:
    """Raises UsageError for a number of devices that no hospital has, or that its peers would not read."""
    if not 1 <= devices <= MOST_DEVICES:
        raise UsageError(f"{key} = {devices}, a hospital has at least 1 device, and at most {MOST_DEVICES}")
