"""Exact sums that stay open until a hospital's round is closed: the vectors of many clients are added in one pass.

`exact.add_split` makes new integers for each upload, because a node's state must not change under whoever holds it;
that goes through memory four times for each client. In a simulation nobody looks at a sum before it is closed
(`tallies.closing_together`, and checkpoints). So an upload of this rank's own client, as a hospital is given it,
leaves its vector in the sum, and many are added to the same integers at once, block by block, while these stay in the
processor's cache. The sum has the same bits: integers add up in any order and grouping.

`OpenSum` is no array, and stands in a `Tally` in place of two. Whatever would look into it before it is closed fails.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from edge_sdk.errors import AuscultError
from edge_sdk.methods.shared.aggregation.exact import (
    HIGH,
    HIGH_ONES,
    LOW_ONES,
    NEAR,
    ONE_BITS,
    Integers,
    is_within,
    split,
)
from edge_sdk.methods.shared.aggregation.gather import MANY

TOGETHER, MOST_BYTES = 16, 8 * 2**20
"""Vectors that wait before they are added, and their bytes."""
BLOCK = 16384
"""Numbers that are added at once: their integers, and what is in between, stay in the cache."""
SMALL = 2.0 ** (22 - HIGH)
"""Float32 numbers below this leave the exponent of SMALL_ONES as it is when they are added to it."""
SMALL_ONES = np.float32(1.5 * 2.0 ** (23 - HIGH))
"""The float32 number whose last bit is worth 2**-HIGH."""
SMALL_BITS = int(SMALL_ONES.view(np.int32))
"""Its bits, read as an integer."""
Vectors = list[npt.NDArray[np.floating]]


@dataclass
class OpenSum:
    """The integers of a tally, to which vectors are still to be added.

    Attributes:
        high, low: int64 (n,), as a tally has them; changed in place.
        heard: uploads so far, of this rank's clients and of others'.
        waiting: vectors (n,) that are not in the integers yet.
    """

    high: Integers
    low: Integers
    heard: int = 0
    waiting: Vectors = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        """Says what is wrong where a method takes it for an array."""
        if name.startswith("__"):
            raise AttributeError(name)
        raise AuscultError("a hospital looks into the sum of its uploads before it closes: its method must not add_up")

    def take(self, vector: npt.NDArray[np.floating] | None) -> None:
        """Counts an upload, and keeps its vector; None: another rank has it.

        Raises:
            ValueError: the sum is of vectors of another length.
        """
        self.heard += 1
        if vector is None:
            return
        if vector.shape != self.high.shape:
            raise ValueError(f"a vector of {len(vector)} numbers, the sum is of vectors of {len(self.high)}")
        self.waiting.append(vector)
        if len(self.waiting) >= TOGETHER or len(self.waiting) * vector.nbytes >= MOST_BYTES:
            self.add_waiting()

    @property
    def is_full(self) -> bool:
        """True if with the next upload a tally begins to carry remainders over, for which it needs the integers."""
        return self.heard + 1 >= MANY

    def close(self) -> tuple[Integers, Integers]:
        """The integers with all vectors in them."""
        self.add_waiting()
        return self.high, self.low

    def add_waiting(self) -> None:
        add_in_place(self.waiting, self.high, self.low)
        self.waiting = []


def open_sum(size: int) -> OpenSum:
    """A sum of nothing, of vectors (size,)."""
    return OpenSum(np.zeros(size, np.int64), np.zeros(size, np.int64))


def add_in_place(vectors: Vectors, high: Integers, low: Integers) -> None:
    """Adds vectors (n,) to integers (n,), as `exact.add_split` does it one by one: those of small float32 numbers in
    float32, others in float64, and what is too large for that by `exact.split`."""
    kinds: tuple[Vectors, Vectors, Vectors] = ([], [], [])
    for x in vectors:
        kinds[0 if is_small(x) else 1 if is_within(x, NEAR) else 2].append(x)
    for start in range(0, len(high), BLOCK):
        part = slice(start, start + BLOCK)
        add_small([x[part] for x in kinds[0]], high[part], low[part])
        add_near([x[part] for x in kinds[1]], high[part], low[part])
    for x in kinds[2]:
        for sums, more in zip((high, low), split(x), strict=True):
            sums += more


def is_small(x: npt.NDArray[np.floating]) -> bool:
    """True for float32 numbers of which `add_small` may take the multiples of 2**-HIGH."""
    return x.dtype == np.float32 and x.min(initial=0.0) > -SMALL and x.max(initial=0.0) < SMALL


def add_small(blocks: Vectors, high: Integers, low: Integers) -> None:
    """Adds blocks (b,) of float32 numbers below SMALL to integers (b,).

    As `add_near`, but with a float32 number whose last bit is worth 2**-HIGH. What is left of x then is exact in
    float32 as well. Half as wide, the numbers go through the processor twice as fast. Multiples are below 2**22, so
    those of TOGETHER blocks add up in int32.
    """
    if not blocks:
        return
    cut, left = np.empty(len(high), np.float32), np.empty(len(high))
    cut_bits, left_bits, multiples = cut.view(np.int32), left.view(np.int64), np.zeros(len(high), np.int32)
    for x in blocks:
        np.add(x, SMALL_ONES, out=cut)
        np.add(multiples, cut_bits, out=multiples)
        np.subtract(cut, SMALL_ONES, out=cut)
        np.subtract(x, cut, out=cut)
        left[...] = cut
        np.add(left, LOW_ONES, out=left)
        np.add(low, left_bits, out=low)
    multiples -= np.int32(modulo(len(blocks) * SMALL_BITS, 32))
    high += multiples
    low -= np.int64(modulo(len(blocks) * ONE_BITS[1], 64))


def add_near(blocks: Vectors, high: Integers, low: Integers) -> None:
    """Adds blocks (b,) of numbers up to NEAR to integers (b,).

    In `exact.add_split`, the bits of a large number are taken off after each addition; here, all of them at the end.
    In between, sums may leave the range of int64 and come back: they are computed modulo 2**64.
    """
    if not blocks:
        return
    left, moved = np.empty(len(high)), np.empty(len(high))
    for x in blocks:
        left[...] = x
        np.add(left, HIGH_ONES, out=moved)
        np.add(high, moved.view(np.int64), out=high)
        moved -= HIGH_ONES
        left -= moved
        left += LOW_ONES
        np.add(low, left.view(np.int64), out=low)
    for sums, bits in zip((high, low), ONE_BITS, strict=True):
        sums -= np.int64(modulo(len(blocks) * bits, 64))


def modulo(number: int, bits: int) -> int:
    """The integer of so many bits, with a sign, that is equal to a number modulo 2**bits."""
    half = 1 << (bits - 1)
    return (number + half) % (2 * half) - half
