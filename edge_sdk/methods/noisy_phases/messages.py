"""Messages of phases in a run with noise."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from edge_sdk.algebra.arrays import Values
from edge_sdk.algebra.secure_aggregation import rounding
from edge_sdk.algebra.secure_aggregation.rounding import WIDEST
from edge_sdk.algebra.vectors import Layout
from edge_sdk.methods.integers.vectors.messages import MOST_TERMS, Octets, check_range
from edge_sdk.methods.shared.membership.riders import Rider

MOST_NUMBERS = 1 << 14
"""Numbers of a sum: many more than the counts of any settings. A model may have more features than that."""
LONGEST = 16  # of a phase's name


@dataclass(frozen=True)
class NoisySums:
    """Up: a device's vector of a phase with noise in it, as integers, or the sum of several.

    Attributes:
        phase: what it is of, as of `contents.PHASES`.
        size: integers.
        bits: of one summand. half: largest number that a summand stands for.
        terms: how many devices are in it; 0: too few have answered, and there are no integers.
        packed: the integers, each of `rounding.width(bits, terms)` bits.
    """

    phase: str
    size: int
    bits: int
    half: float
    terms: int
    packed: Octets

    def check(self, layout: Layout) -> None:
        check_range(self.bits, self.half)
        if len(self.phase) > LONGEST or not 0 <= self.size <= max(MOST_NUMBERS, layout.size):
            raise ValueError(f"{self.size} numbers of a phase {self.phase[:LONGEST]!r}, the model has {layout.size}")
        if not 0 <= self.terms <= MOST_TERMS or self.width > WIDEST or (self.size and not self.terms):
            raise ValueError(f"a sum of {self.terms} devices of {self.bits} bits, it has at most {WIDEST}")
        if self.packed.size != rounding.packed_size(self.size, self.width):
            raise ValueError(f"{self.packed.size} bytes for {self.size} integers of {self.width} bits")
        if (self.steps > 2 * rounding.largest(self.bits) * self.terms).any():
            raise ValueError(f"an integer that no {self.terms} summands of {self.bits} bits add up to")

    @property
    def width(self) -> int:
        """Bits of an integer."""
        return rounding.width(self.bits, max(1, self.terms))

    @cached_property
    def steps(self) -> rounding.Steps:
        """uint32 (size,), as they were written."""
        return rounding.unpack(self.packed, self.size, self.width)

    def numbers(self) -> npt.NDArray[np.float64]:
        """What the integers stand for; float64 (size,)."""
        found = rounding.to_numbers(self.steps, self.half, self.bits, self.terms, np.zeros(0))
        return found.astype(np.float64, copy=False)


@dataclass(frozen=True)
class InScales(Rider):
    """Down: say what the means of your features are, in units of these scales.

    Attributes:
        message: the question that it was before.
        values: scale of each feature (F,), above 0.
    """

    message: Any
    values: Values

    @property
    def wrapped_kind(self) -> str:
        """A kind of its own: its answer is another one than that to the question in it."""
        return type(self).__name__

    def check(self, layout: Layout) -> None:
        if not (np.isfinite(self.values).all() and (self.values > 0).all()):
            raise ValueError("scales of features that are not finite and above 0")
