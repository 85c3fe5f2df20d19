"""Uploads of clients that another rank has trained: all that a hospital looks at, without the vector.

Every rank plays every hospital, so that all know who is asked next. Where a method only adds its devices' uploads up
(`Method.adds_up`), a vector need not leave the rank that has made it: there it is added to the hospital's exact sum; on
the other ranks a stand-in takes its place, which weighs and counts the same and adds nothing. Before the hospital's
round is closed, the sums of all ranks are added (tallies.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from edge_sdk.algebra.arrays import Theta
from edge_sdk.contract.method import Method
from edge_sdk.methods.shared.gather import Integers, Sum
from edge_sdk.methods.shared.guard import Measure, measure_of
from edge_sdk.methods.shared.uploads import VectorSum


@dataclass(frozen=True)
class Light:
    """A stand-in on its way between ranks.

    Attributes:
        kind: name of the upload's type.
        size: of its vector.
        weight, count, scores: the upload's.
        length: as its `measure` has it.
    """

    kind: str
    size: int
    weight: float
    count: int
    length: float
    scores: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class SumElsewhere(Sum):
    """A `Sum` of which another rank has the vector. `length`: of that, per unit of weight."""

    length: float = 0.0

    def onto(self, high: Integers | None, low: Integers | None) -> tuple[Integers, Integers]:
        return as_they_are(self.total, high, low)

    def measure(self) -> Measure:
        return Measure(self.length, self.weight / self.count)

    def weighing(self, weight: float) -> Self:
        return type(self)(self.total, weight, self.count, self.scores, self.length)


@dataclass(frozen=True)
class VectorElsewhere(VectorSum):
    """A `VectorSum` of which another rank has the vector. `length`: of that, per unit of weight."""

    length: float = 0.0

    def onto(self, high: Integers | None, low: Integers | None) -> tuple[Integers, Integers]:
        return as_they_are(self.total, high, low)

    def measure(self) -> Measure:
        return Measure(self.length, self.weight / self.count)._replace(longer=super().measure().longer)

    def weighing(self, weight: float) -> Self:
        return type(self)(self.total, weight, self.count, self.scores, self.length)


def as_they_are(like: Theta, high: Integers | None, low: Integers | None) -> tuple[Integers, Integers]:
    """The integers of a tally without anything added; zeros where it has none yet."""
    if high is not None and low is not None:
        return high, low
    return np.zeros(like.shape, np.int64), np.zeros(like.shape, np.int64)


KINDS = {Sum: SumElsewhere, VectorSum: VectorElsewhere}
BY_NAME = {upload.__name__: elsewhere for upload, elsewhere in KINDS.items()}


def lightened(method: Method, message: Any) -> Any:
    """What other ranks are given in place of a client's answer."""
    if not method.adds_up or type(message) not in KINDS:
        return message
    found = measure_of(message)
    assert found is not None, "an upload that is added has a measure"
    return Light(
        type(message).__name__, len(message.total), message.weight, message.count, found.length, message.scores
    )


def stand_in(message: Any) -> Any:
    """The upload that `Light` stands for; any other message as it is."""
    if not isinstance(message, Light):
        return message
    vector = np.broadcast_to(np.float32(0), (message.size,))
    return BY_NAME[message.kind](vector, message.weight, message.count, message.scores, message.length)


def as_light(message: Any) -> Any:
    """The `Light` of a stand-in; any other message as it is."""
    if not isinstance(message, (SumElsewhere, VectorElsewhere)):
        return message
    kind = "Sum" if isinstance(message, SumElsewhere) else "VectorSum"
    return Light(kind, len(message.total), message.weight, message.count, message.length, message.scores)
