"""Exact sums that stay open until a hospital's round is closed: the vectors of many clients are added in one pass.

`gather.add_split` makes new integers for each upload, because a node's state must not change under whoever holds it;
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
from edge_sdk.methods.shared.gather import HIGH_ONES, LOW_ONES, MANY, NEAR, ONE_BITS, Integers, is_within, split

TOGETHER, MOST_BYTES = 16, 8 * 2**20
"""Vectors that wait before they are added, and their bytes."""
BLOCK = 16384
"""Numbers that are added at once: their integers, and what is in between, stay in the cache."""
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
    """Adds vectors (n,) to integers (n,), as `gather.add_split` does it one by one.

    There, the bits of a large number are taken off after each addition; here, all of them at the end. In between, sums
    may leave the range of int64 and come back: they are computed modulo 2**64.
    """
    small = [x for x in vectors if is_within(x, NEAR)]
    left, moved = np.empty(min(BLOCK, len(high))), np.empty(min(BLOCK, len(high)))
    for start in range(0, len(high) if small else 0, BLOCK):
        part = slice(start, start + BLOCK)
        sums = high[part], low[part]
        a, b = left[: len(sums[0])], moved[: len(sums[0])]
        for x in small:
            a[...] = x[part]
            np.add(a, HIGH_ONES, out=b)
            np.add(sums[0], b.view(np.int64), out=sums[0])
            b -= HIGH_ONES
            a -= b
            a += LOW_ONES
            np.add(sums[1], a.view(np.int64), out=sums[1])
        for one, bits in zip(sums, ONE_BITS, strict=True):
            one -= modulo(len(small) * bits)
    for x in vectors:
        if not any(x is other for other in small):
            for whole, more in zip((high, low), split(x), strict=True):
                whole += more


def modulo(number: int) -> np.int64:
    """The int64 that is equal to a number modulo 2**64."""
    return np.int64((number + 2**63) % 2**64 - 2**63)
