"""Sums on the way up: exact ones, so that the order in which answers arrive leaves no trace.

Sums, never means: a mean of hospital means is wrong for unequal hospitals.

Keeping every answer until the close and adding by name would cost O(children) memory, written to disk at every answer.
So a tally adds integers (exact.py). The remainders of MANY children fit 64 bits; from there on they are carried over
into the multiples after each addition, which leaves one way to write each sum, and so again no trace of an order.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
import numpy.typing as npt

from edge_sdk.algebra.arrays import Theta
from edge_sdk.algebra.vectors import Layout, Vector
from edge_sdk.contract.method import NodeEnv
from edge_sdk.contract.records import record
from edge_sdk.errors import PeerError
from edge_sdk.methods.shared.aggregation.exact import (
    HIGH,
    LARGEST,
    LOW,
    Exact,
    Integers,
    add_split,
    bounded,
    carry,
    carry_number,
    number,
    plus,
    split_number,
)
from edge_sdk.methods.shared.aggregation.guard import Measure, norm
from edge_sdk.methods.shared.aggregation.scores import SQUARED, check_scores

MANY = 4096
"""Children from whom on remainders are carried over, and sums that would not fit are refused."""
FULL = 2**62


@runtime_checkable
class Addend(Protocol):
    """An upload that a robust rule may put another vector into (methods/robust)."""

    def contribution(self) -> Vector | None:
        """The vector (k,) that counts with the upload's weight; None: there is nothing in it that is added."""

    def vote(self) -> float:
        """The weight of the contribution among others, above 0."""

    def contributing(self, vector: npt.NDArray[np.floating]) -> Self:
        """Put another such vector into the upload; its weight, count and scores stay."""


class Summand(Protocol):
    """What a tally adds up: a `Sum`, or a message like it."""

    @property
    def weight(self) -> float: ...

    @property
    def count(self) -> int: ...

    @property
    def scores(self) -> Mapping[str, float]: ...

    def onto(self, high: Integers | None, low: Integers | None) -> tuple[Integers, Integers]:
        """The integers of a tally with its vector added."""


# Messages -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Sum:
    """What some devices contribute, added up.

    Attributes:
        total: (n,), the sum of what each contributes.
        weight: sum of their weights.
        count: how many devices.
        scores: sums of anything to be reported; a metric is a ratio of two of them, or of one and `count`.
    """

    total: Theta
    weight: float
    count: int = 1
    scores: Mapping[str, float] = field(default_factory=dict)

    def check(self, layout: Layout) -> None:
        if not -LARGEST <= self.total.min(initial=0.0) <= self.total.max(initial=0.0) <= LARGEST:
            raise ValueError(f"a number that is not finite or above {LARGEST:.0f}: the sender's training diverged")
        if not 0 < self.weight <= LARGEST or self.count < 1:
            raise ValueError(f"a sum of {self.count} devices with weight {self.weight}, both are above 0")
        check_scores(self.scores, self.count)

    def onto(self, high: Integers | None, low: Integers | None) -> tuple[Integers, Integers]:
        """The integers (n,) of a tally with this vector added: multiples of 2**-HIGH and of 2**-LOW. None: zeros."""
        return add_split(self.total, high, low)

    def measure(self) -> Measure:
        """The length of the mean contribution, and a device's mean weight."""
        return Measure(norm(self.total) / self.weight, self.weight / self.count)

    def weighing(self, weight: float) -> Self:
        """Give it another weight; what it contributes per unit of weight stays."""
        return replace(self, total=(weight / self.weight * self.total).astype(self.total.dtype), weight=weight)

    def contribution(self) -> Vector | None:
        """The mean contribution per unit of weight."""
        return (self.total / self.weight).astype(self.total.dtype)

    def vote(self) -> float:
        return self.weight

    def contributing(self, vector: npt.NDArray[np.floating]) -> Self:
        return replace(self, total=(self.weight * vector).astype(self.total.dtype))


@dataclass(frozen=True)
class Nobody:
    """The answer of a hospital of which no device answered."""


# Adding up ------------------------------------------------------------------------------------------------------
@record
class Tally:
    """A running sum of `Sum`s. `heard`: whose, by name."""

    high: Integers
    low: Integers
    weight: Exact
    count: int
    scores: Mapping[str, Exact]
    heard: tuple[str, ...]


def add(tally: Tally | None, sender: str, m: Summand) -> Tally:
    weight, scores = split_number(m.weight), split_scores(m.scores)
    if tally is None:
        return Tally(*m.onto(None, None), weight, m.count, scores, (sender,))
    tally = Tally(
        *m.onto(tally.high, tally.low),
        plus(tally.weight, weight),
        tally.count + m.count,
        plus_scores(tally.scores, scores),
        with_name(tally.heard, sender),
    )
    return tally if len(tally.heard) < MANY else carried(tally, sender)


def plus_scores(a: Mapping[str, Exact], b: Mapping[str, Exact]) -> dict[str, Exact]:
    """The sums of scores, by their names in order. Squares of shares are among them only where both sides that have the
    shares have their squares, too: a hospital of few devices leaves these out (nodes/policy/score_filter.py)."""
    if a.keys() == b.keys():  # as nearly always
        return {name: plus(value, b[name]) for name, value in a.items()}
    partial = {f"{name}{SQUARED}" for side in (a, b) for name in side if f"{name}{SQUARED}" not in side}
    return {name: plus(a.get(name, (0, 0)), b.get(name, (0, 0))) for name in sorted({*a, *b} - partial)}


def split_scores(scores: Mapping[str, float]) -> dict[str, Exact]:
    """Scores as `plus_scores` takes them."""
    return {name: split_number(scores[name]) for name in sorted(scores)}


def with_name(names: tuple[str, ...], name: str) -> tuple[str, ...]:
    """Sorted names with one more, in its place; the same names if it is among them."""
    at = bisect_left(names, name)
    return names if names[at : at + 1] == (name,) else (*names[:at], name, *names[at:])


def carried(tally: Tally, sender: str) -> Tally:
    """Carry remainders over until each is within half a multiple; the sum stays.

    Raises:
        PeerError: with this child's, a sum no longer fits the integers.
    """
    if (np.abs(tally.high) > FULL).any():
        raise PeerError(f"{sender}: with it, the sum of {len(tally.heard)} children is too large to be exact")
    over, low = carry(tally.low)
    scores = {n: carry_number(value) for n, value in tally.scores.items()}
    return replace(tally, high=tally.high + over, low=low, weight=carry_number(tally.weight), scores=scores)


def total(tally: Tally, like: npt.NDArray[np.floating]) -> Sum:
    """The sum, in the float type of `like`, rounded once."""
    vector = tally.high.astype(np.float64) * 2.0**-HIGH
    vector += tally.low.astype(np.float64) * 2.0**-LOW
    return Sum(vector.astype(like.dtype), number(tally.weight), tally.count, scores(tally))


def scores(tally: Tally) -> dict[str, float]:
    return {name: bounded(number(value)) for name, value in tally.scores.items()}


def answer(tally: Tally | None, like: npt.NDArray[np.floating]) -> Sum | Nobody:
    """What a hospital sends up."""
    return Nobody() if tally is None else total(tally, like)


# What a peer may send here --------------------------------------------------------------------------------------
def expected(sender: str, message: Any, *types: type) -> Any:
    """The message, if a peer in that place may send it.

    Raises:
        PeerError: it is declared by the method, but not for this direction.
    """
    if not isinstance(message, types):
        wanted = " or ".join(t.__name__ for t in types)
        raise PeerError(f"{sender} sent {type(message).__name__}, expected {wanted}")
    return message


def gathered(env: NodeEnv, tally: Tally | None, sender: str, message: Any) -> Tally | None:
    """The tally after a child's answer.

    Raises:
        PeerError: it is no answer, or it counts more devices than the child has.
    """
    m = expected(sender, message, Sum, Nobody)
    if isinstance(m, Nobody):
        return tally
    if m.count > env.sizes.get(sender, 1):
        raise PeerError(f"{sender} sent a sum of {m.count} devices, it has {env.sizes.get(sender, 1)}")
    return add(tally, sender, m)
