"""What travels up in AugFL, and how what was left out is had back.

The aggregator's step needs u_i = y_i + rho_i theta_i, its stopping rule needs y_i. As theta_i = theta + (y_i - y_i^-) /
rho_i, where y_i^- is the dual before, one of them gives the other:

    u_i = rho_i theta + 2 y_i - y_i^-        y_i = (u_i - rho_i theta + y_i^-) / 2

The same holds for sums, if all devices in them have answered the same question. So a device sends (theta_i, y_i), u_i
or y_i; its hospital has both, and sends both, or the one where the aggregator can do without the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from edge_sdk.algebra.arrays import Theta
from edge_sdk.algebra.lowrank import Packed
from edge_sdk.algebra.vectors import Layout, Vector
from edge_sdk.methods.shared import gather
from edge_sdk.methods.shared.gather import LARGEST, Sum


# Messages -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Census:
    """Down, before the first round: how many samples are there? w_i is a share of them all."""


@dataclass(frozen=True)
class Counted:
    """Up: that many, at so many devices."""

    samples: int
    devices: int = 1

    def check(self, layout: Layout) -> None:
        if self.samples < 0 or self.devices < 0:
            raise ValueError(f"{self.samples} samples at {self.devices} devices, both are 0 or more")


@dataclass(frozen=True)
class AugflModel:
    """Down: the model of a round.

    Attributes:
        model: theta^t.
        round: t, global; the device's delta depends on it.
        pick: how many devices of the receiving hospital take part.
        samples: of all training devices together; 0 where nobody needs it.
        devices: how many these are.
        counted: receiver -> the last round in which its upload was counted.
    """

    written_as: ClassVar[str] = "Global"

    model: Packed
    round: int
    pick: int
    samples: int = 0
    devices: int = 0
    counted: Mapping[str, int] = field(default_factory=dict)

    def check(self, layout: Layout) -> None:
        if min(self.round, self.pick, self.samples, self.devices) < 0:
            raise ValueError(f"round {self.round}, {self.pick} of {self.devices} devices, {self.samples} samples")


@dataclass(frozen=True)
class Upload:
    """Up, from a device.

    Attributes:
        samples: how many it has.
        theta, y: its copy and its dual, or None.
        u: y + rho theta, or None.
        scores: of anything to be reported.
    """

    samples: int
    theta: Theta | None = None
    y: Theta | None = None
    u: Theta | None = None
    scores: Mapping[str, float] = field(default_factory=dict)

    def check(self, layout: Layout) -> None:
        checked(self.scores, self.theta, self.y, self.u)
        if self.samples < 1:
            raise ValueError(f"{self.samples} samples, it is 1 or more")


@dataclass(frozen=True)
class Sums:
    """Up, from a hospital: over all its devices that were ever counted.

    Attributes:
        weight: of rho_i.
        samples: of their samples.
        known: how many devices these are.
        count: how many of them answered this time.
        u, y: of u_i and y_i. None: follows from the other.
        scores: over those that answered.
    """

    weight: float
    samples: int
    known: int
    count: int
    u: Theta | None = None
    y: Theta | None = None
    scores: Mapping[str, float] = field(default_factory=dict)

    def check(self, layout: Layout) -> None:
        checked(self.scores, self.u, self.y)
        if not 0 < self.weight <= LARGEST or not 1 <= self.count <= self.known or self.samples < 1:
            raise ValueError(f"{self.count} of {self.known} devices, weight {self.weight}, {self.samples} samples")
        if self.u is None and self.y is None:
            raise ValueError("neither u nor y")


def checked(scores: Mapping[str, float], *vectors: Vector | None) -> None:
    if has_diverged(*vectors):
        raise ValueError(f"a number that is not finite or above {LARGEST:.0f}: the sender's training diverged")
    if bad := [name for name, value in scores.items() if not abs(value) <= LARGEST]:
        raise ValueError(f"score {bad[0]!r} = {scores[bad[0]]} is not finite or above {LARGEST:.0f}")


def has_diverged(*vectors: Vector | None, share: float = 1.0) -> bool:
    """Whether any is beyond what may be sent, or that share of it: then its owner says that it has nothing."""
    return not all((np.abs(v) <= share * LARGEST).all() for v in vectors if v is not None)


# What counts of a child -----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Contribution:
    """The latest of one device, or of one hospital.

    Attributes:
        u, y: see above; no y where there are no duals.
        weight: rho_i, or their sum.
        samples: behind it.
        round: that it was counted in.
    """

    written_as: ClassVar[str] = "Held"

    u: Theta
    y: Theta | None
    weight: float
    samples: int
    round: int


def u_of(y: Vector, before: Vector, theta: Vector, rho: float) -> Vector:
    return rho * theta + 2 * y - before


def y_of(u: Vector, before: Vector, theta: Vector, rho: float) -> Vector:
    return (u - rho * theta + before) / 2


def total_of(held: Mapping[str, Contribution], like: Vector) -> tuple[Vector, Vector | None, float]:
    """Sums of u, of y (None where there are no duals) and of weights; exact, so independent of who came when."""
    u, weight = summed({n: Sum(h.u, h.weight) for n, h in held.items()}, like)
    duals = {n: Sum(h.y, h.weight) for n, h in held.items() if h.y is not None}
    return u, summed(duals, like)[0] if len(duals) == len(held) else None, weight


def summed(parts: Mapping[str, Sum], like: Vector) -> tuple[Vector, float]:
    tally = None
    for name in sorted(parts):
        tally = gather.add(tally, name, parts[name])
    if tally is None:
        return np.zeros_like(like), 0.0
    total = gather.total(tally, like)
    return total.total, total.weight


def summed_scores(parts: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Name -> exact sum over those that have it."""
    found: dict[str, gather.Exact] = {}
    for scores in parts.values():
        for name, value in scores.items():
            found[name] = gather.plus(found.get(name, (0, 0)), gather.split_number(value))
    return {name: gather.number(found[name]) for name in sorted(found)}
