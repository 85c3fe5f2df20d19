"""Uploads of clients that another rank has trained: all that a hospital looks at, without the vector.

Every rank plays every hospital, so that all know who is asked next. Where a method only adds its devices' uploads up
(`Method.adds_up`), a vector need not leave the rank that has made it: there it is added to the hospital's exact sum; on
the other ranks a stand-in takes its place, which weighs and counts the same and adds nothing. Before the hospital's
round is closed, the sums of all ranks are added (tallies.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Annotated, Any, Self

import numpy as np
import numpy.typing as npt

from edge_sdk.algebra.arrays import ANY, Tensor, Theta
from edge_sdk.methods.shared.aggregation.exact import add_split
from edge_sdk.methods.shared.aggregation.gather import Sum
from edge_sdk.methods.shared.aggregation.guard import Measure, measure_of
from edge_sdk.methods.shared.aggregation.uploads import VectorSum
from edge_sdk.simulation.sums.open_sums import OpenSum, open_sum

Wholes = Annotated[npt.NDArray[np.int64], Tensor((ANY,), "int64")]
Numbers = Annotated[npt.NDArray[np.float64], Tensor((ANY, ANY), "float64")]


@dataclass(frozen=True)
class LightUploads:
    """Stand-ins of one kind on their way between ranks; k of them.

    Attributes:
        kind: name of the uploads' type.
        size: of their vectors.
        names: of their scores.
        at: (k,), places of the questions that they answer.
        kept: (k,), 1 where the client has something to remember.
        counts: (k,), the uploads' counts.
        numbers: (k, 2 + scores), their weights, their lengths as `measure` has them, and their scores.
    """

    kind: str
    size: int
    names: tuple[str, ...]
    at: Wholes
    kept: Wholes
    counts: Wholes
    numbers: Numbers


@dataclass(frozen=True)
class Light:
    """A stand-in in a checkpoint.

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

    def onto(self, high: Any, low: Any) -> tuple[Any, Any]:
        return taken(None, len(self.total), high, low)

    def measure(self) -> Measure:
        return Measure(self.length, self.weight / self.count)

    def weighing(self, weight: float) -> Self:
        return type(self)(self.total, weight, self.count, self.scores, self.length)


@dataclass(frozen=True)
class VectorElsewhere(VectorSum):
    """A `VectorSum` of which another rank has the vector. `length`: of that, per unit of weight."""

    length: float = 0.0

    def onto(self, high: Any, low: Any) -> tuple[Any, Any]:
        return taken(None, len(self.total), high, low)

    def measure(self) -> Measure:
        return Measure(self.length, self.weight / self.count)._replace(longer=super().measure().longer)

    def weighing(self, weight: float) -> Self:
        return type(self)(self.total, weight, self.count, self.scores, self.length)


@dataclass(frozen=True)
class SumHere(Sum):
    """A `Sum` of a client of this rank, whose vector a hospital's sum may add later."""

    def onto(self, high: Any, low: Any) -> tuple[Any, Any]:
        return taken(self.total, len(self.total), high, low)


@dataclass(frozen=True)
class VectorHere(VectorSum):
    """A `VectorSum` of a client of this rank, whose vector a hospital's sum may add later."""

    def onto(self, high: Any, low: Any) -> tuple[Any, Any]:
        return taken(self.total, len(self.total), high, low)


def taken(vector: Theta | None, size: int, high: Any, low: Any) -> tuple[Any, Any]:
    """The integers of a tally with a vector (size,) added, or with an open sum that will add it.

    Args:
        vector: None: another rank has it, and adds it there.
        high, low: of the tally; the same `OpenSum` twice, as long as there is one. None: of a tally of nobody.
    """
    found = open_sum(size) if high is None else high
    if isinstance(found, OpenSum) and not found.is_full:
        found.take(vector)
        return found, found
    if isinstance(found, OpenSum):
        high, low = found.close()
    return (high, low) if vector is None else add_split(vector, high, low)


HERE: dict[type, type[Sum]] = {Sum: SumHere, VectorSum: VectorHere}
ELSEWHERE = {"Sum": SumElsewhere, "VectorSum": VectorElsewhere}
KINDS = {Sum: "Sum", SumHere: "Sum", SumElsewhere: "Sum"} | dict.fromkeys(
    (VectorSum, VectorHere, VectorElsewhere), "VectorSum"
)
"""Type of an upload -> name of the kind that it is of, wherever its vector is."""


def ready_to_add(message: Any) -> Any:
    """An upload of a client of this rank as its hospital is given it, where that only adds. It is measured at once,
    while its vector is in the processor's cache: after the other clients' training that takes twice as long."""
    make = HERE.get(type(message))
    if make is None:
        return message
    made = object.__new__(make)
    vars(made).update(vars(message))  # with its measure, where it has been taken
    measure_of(made)
    return made


def as_sent(message: Any) -> Any:
    """An upload as its client has made it; any other message as it is."""
    if isinstance(message, SumHere):
        return Sum(message.total, message.weight, message.count, message.scores)
    if isinstance(message, VectorHere):
        return VectorSum(message.total, message.weight, message.count, message.scores)
    return message


def is_light(answers: Sequence[Any]) -> bool:
    """True for an upload, alone, of which other ranks need no vector if their hospitals only add it."""
    return len(answers) == 1 and isinstance(answers[0], (SumHere, VectorHere))


def gather_lights(uploads: Sequence[tuple[int, bool, Any]]) -> tuple[LightUploads, ...]:
    """What other ranks are given of uploads. Each comes with the place of its question, and with what is kept."""
    forms: dict[tuple[str, int, tuple[str, ...]], list[tuple[int, bool, Any]]] = {}
    for one in uploads:
        message = one[2]
        form = KINDS[type(message)], len(message.total), tuple(message.scores)
        forms.setdefault(form, []).append(one)
    return tuple(
        LightUploads(
            *form,
            at=np.array([at for at, _, _ in some], np.int64),
            kept=np.array([kept for _, kept, _ in some], np.int64),
            counts=np.array([m.count for _, _, m in some], np.int64),
            numbers=np.array([[m.weight, length_of(m), *m.scores.values()] for _, _, m in some], np.float64),
        )
        for form, some in forms.items()
    )


def length_of(upload: Any) -> float:
    found = measure_of(upload)
    assert found is not None, "an upload that is added has a measure"
    return found.length


def stand_ins(some: LightUploads) -> Iterator[tuple[int, bool, Any]]:
    """The uploads that others have: each as a stand-in, with the place of its question and with what is kept."""
    make, vector = ELSEWHERE[some.kind], no_vector(some.size)
    columns = some.at.tolist(), some.kept.tolist(), some.counts.tolist(), some.numbers.tolist()
    for at, kept, count, (weight, length, *scores) in zip(*columns, strict=True):
        yield at, bool(kept), make(vector, weight, count, dict(zip(some.names, scores, strict=True)), length)


@cache
def no_vector(size: int) -> Theta:
    """Zeros (size,) that take no memory."""
    return np.broadcast_to(np.float32(0), (size,))


def stand_in(message: Any) -> Any:
    """The upload that `Light` stands for; any other message as it is."""
    if not isinstance(message, Light):
        return message
    vector = no_vector(message.size)
    return ELSEWHERE[message.kind](vector, message.weight, message.count, message.scores, message.length)


def as_light(message: Any) -> Any:
    """The `Light` of a stand-in; any other message as it is."""
    if not isinstance(message, (SumElsewhere, VectorElsewhere)):
        return message
    return Light(
        KINDS[type(message)], len(message.total), message.weight, message.count, message.length, message.scores
    )
