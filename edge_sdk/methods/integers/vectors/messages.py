"""Messages of integers: an upload, a question, and the answer of a node that cannot read the question."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any, Self

import numpy as np
import numpy.typing as npt

from edge_sdk.algebra.arrays import ANY, OrNone, Rank, Tensor, Values
from edge_sdk.algebra.secure_aggregation import rounding
from edge_sdk.algebra.secure_aggregation.rounding import FEWEST, FINEST, MOST, WIDEST
from edge_sdk.algebra.vectors import Layout
from edge_sdk.methods.integers.vectors.labels import parted, put_vectors, take_label, take_vectors
from edge_sdk.methods.shared.aggregation.guard import Measurable, Measure

Octets = Annotated[npt.NDArray[np.uint8], Tensor((ANY,), "uint8")]
MOST_TERMS = 1 << (WIDEST - FEWEST)
FARTHEST = 2.0**60  # largest number that integers may stand for
VECTORS = 4  # of a message, at most
DOUBLE = np.zeros(0)
UNEVEN = 30.0
"""Times the median of its siblings that an upload's length may be: differences differ more than models do."""


def check_range(bits: int, half: float) -> None:
    """Raise ValueError for a range [-half, half] on which nobody can round; half = 0 says that there is none yet."""
    if not FEWEST <= bits <= MOST or not (half == 0 or FINEST <= half <= FARTHEST):
        raise ValueError(
            f"{bits} bits for numbers up to {half:.3g}: {FEWEST} to {MOST}, and up to {FINEST:.0e} at least and "
            f"{FARTHEST:.0e} at most, or 0"
        )


@dataclass(frozen=True)
class Integers:
    """Up: an upload, or the sum of several.

    Attributes:
        label: the method's upload without its vectors.
        there: paths of the vectors that it has; they follow each other in the order of their names.
        count: integers.
        bits: of one summand.
        half: largest number that a summand of `bits` stands for.
        terms: how many uploads are added up in the integers.
        spread: size of the numbers of the largest of them, before rounding (see `rounded.Rounding`).
        packed: the integers, each of `rounding.width(bits, terms)` bits.
    """

    label: Any
    there: tuple[str, ...]
    size: int
    bits: int
    half: float
    terms: int
    spread: float
    packed: Octets

    def check(self, layout: Layout) -> None:
        check_range(self.bits, self.half)
        if not 0 <= self.spread <= FARTHEST:
            raise ValueError(f"numbers of the size {self.spread:.3g}: 0 to {FARTHEST:.0e}")
        if not 0 < len(self.there) <= VECTORS or not 0 < self.size <= VECTORS * max(1, layout.size):
            raise ValueError(f"{self.size} integers of {len(self.there)} vectors, the model has {layout.size} numbers")
        if self.size % len(self.there) or list(self.there) != sorted(set(self.there)):
            raise ValueError(f"{self.size} integers of {self.there}: vectors of one length, by name")
        if not 1 <= self.terms <= MOST_TERMS or self.width > WIDEST:
            raise ValueError(f"a sum of {self.terms} uploads of {self.bits} bits, it has at most {WIDEST}")
        if self.packed.size != rounding.packed_size(self.size, self.width):
            raise ValueError(f"{self.packed.size} bytes for {self.size} integers of {self.width} bits")
        if (self.steps > 2 * rounding.largest(self.bits) * self.terms).any():
            raise ValueError(f"an integer that no {self.terms} summands of {self.bits} bits add up to")
        put_vectors(
            Layout(()), self.label, dict.fromkeys(self.there, np.zeros(1))
        )  # for its own check of what is in it

    @property
    def width(self) -> int:
        """Bits of an integer."""
        return rounding.width(self.bits, self.terms)

    @cached_property
    def steps(self) -> rounding.Steps:
        """uint32 (size,), as they were written."""
        return rounding.unpack(self.packed, self.size, self.width)

    def numbers(self, like: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
        """What the integers stand for, rotated as they are; float (size,)."""
        return rounding.to_numbers(self.steps, self.half, self.bits, self.terms, like)

    @property
    def count(self) -> int:
        """Devices behind this upload."""
        return int(getattr(self.label, "count", 1))

    def measure(self) -> Measure | None:
        return self.measured

    @cached_property
    def measured(self) -> Measure | None:
        """Length and weight of the method's own upload, of the difference that the integers say (rotation changes no
        length), or of what its sender says that it would have been without clipping."""
        upload = self.as_upload(np.zeros(0, np.float32))
        found = upload.measure() if isinstance(upload, Measurable) else None
        if found is None:
            return None
        longer = max(1.0, rounding.usual_half(self.bits) * self.spread / self.half) if self.half else 1.0
        return found._replace(length=found.length * longer, longer=UNEVEN)

    def weighing(self, weight: float) -> Self:
        """Count with another weight: the integers shrink in proportion, rounded to the nearest."""
        upload = self.as_upload().weighing(weight)
        vectors = take_vectors(Layout(()), upload, self.there)
        exact = np.concatenate([vectors[path] for path in self.there]) * (rounding.largest(self.bits) / self.half)
        steps = np.rint(exact).astype(np.int64) + self.terms * rounding.largest(self.bits)
        packed = rounding.pack(steps.astype(np.uint32), self.width)
        return replace(self, label=take_label(upload, type(self.label).paths), packed=packed)

    def as_upload(self, like: npt.NDArray[np.floating] = DOUBLE) -> Any:
        """The method's own upload with the integers' numbers in it, which are rotated and a difference."""
        return put_vectors(Layout(()), self.label, parted(self.there, self.numbers(like)))


@dataclass(frozen=True)
class Change:
    """One step of the reference.

    Attributes:
        version: of the reference after it.
        bits, half: as of `Integers`.
        packed: integers of what is added to the reference before or, with ranks, of the values of a `Packed` model.
        ranks: of that model, which is the reference whatever it was before; empty: there is something added.
    """

    version: int
    bits: int
    half: float
    packed: Octets
    ranks: tuple[Rank, ...] = ()

    def check(self, layout: Layout) -> None:
        check_range(self.bits, self.half)


@dataclass(frozen=True)
class Changes:
    """Down: a question whose vectors are the reference, as the difference to one that the receiver holds.

    Attributes:
        label: the method's question without its vectors.
        base: oldest version of the reference that the receiver may hold; -1: it may hold any, as `whole` is all of it,
            or the first change has ranks.
        version: of the reference with which the question is read.
        whole: the reference; empty where changes are enough.
        changes: from base, or from the first one on, to version.
        sum: CRC-32 of the reference with which it is read.
        bits, half: of the integers of the answer; half 0: as each sender likes.
    """

    label: Any
    base: OrNone
    version: int
    whole: Values
    changes: tuple[Change, ...]
    sum: int
    bits: int
    half: float

    def check(self, layout: Layout) -> None:
        check_range(self.bits, self.half)
        versions = tuple(change.version for change in self.changes)
        if self.base < 0 and not versions:
            return
        base = self.base if self.base >= 0 or not self.changes[0].ranks else versions[0] - 1
        if not 0 <= base <= self.version or versions != tuple(range(base + 1, self.version + 1)):
            raise ValueError(f"changes to {versions} lead not from version {self.base} to {self.version}")

    @property
    def round(self) -> int:
        """The method's round."""
        return int(getattr(self.label, "round", self.version))


@dataclass(frozen=True)
class Behind:
    """Up, in place of an upload: this node does not hold the reference that the question builds on."""
