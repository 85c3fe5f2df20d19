"""Exact sums of floating-point numbers: multiples of powers of two, as integers.

Floating-point addition depends on its order, and the network decides the order. So a number is cut into a multiple of
2**-20 and, of what is left, one of 2**-70, and integers add to the same bits in any order. That takes 16 bytes per
number however many summands there are, and loses nothing of a float32 above 2**-46.
"""

from __future__ import annotations

from math import isnan
from typing import Annotated

import numpy as np
import numpy.typing as npt

from edge_sdk.algebra.arrays import ANY, Tensor

HIGH, LOW = 20, 70
LARGEST = 2.0**32
"""Of any summand: thousands of them fit the integers, and no model that has not diverged holds a larger number."""

Integers = Annotated[npt.NDArray[np.int64], Tensor((ANY,), "int64")]
Exact = tuple[int, int]
"""A number as (multiple of 2**-HIGH, multiple of 2**-LOW)."""


def carry(low: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Whole multiples of 2**-HIGH in remainders, and what is left: at least -half and below half of one."""
    half = 1 << (LOW - HIGH - 1)
    over = (low + half) >> (LOW - HIGH)
    return over, low - (over << (LOW - HIGH))


def carry_number(exact: Exact) -> Exact:
    over = (exact[1] + (1 << (LOW - HIGH - 1))) >> (LOW - HIGH)
    return exact[0] + over, exact[1] - (over << (LOW - HIGH))


def bounded(score: float) -> float:
    """The nearest score that may travel; what is not a number counts as the largest.

    A loss that has grown without limit must not keep the upload beside it from being counted: an upload with a score
    out of range is refused whole, and a model that one bad round has thrown off would never be trained again.
    """
    return LARGEST if isnan(score) else min(max(float(score), -LARGEST), LARGEST)


BLOCK = 8192
"""Numbers that are cut at once: what is in between stays in the processor's cache."""
HIGH_ONES, LOW_ONES = 1.5 * 2.0 ** (52 - HIGH), 1.5 * 2.0 ** (52 - LOW)
"""Float64 numbers whose last bit is worth 2**-HIGH and 2**-LOW."""
ONE_BITS = int(np.float64(HIGH_ONES).view(np.int64)), int(np.float64(LOW_ONES).view(np.int64))
"""Their bits, read as integers."""
NEAR = 2.0**30
"""Numbers of at most this size leave the exponent of HIGH_ONES as it is when they are added to it."""


def add_split(
    x: npt.NDArray[np.floating], high: Integers | None, low: Integers | None
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Integers (k,) with those of `split` added, in fewer passes over memory: new arrays. None: zeros.

    Adding a float64 number whose last bit is worth 2**-HIGH rounds a small one to that, to even where it lies in the
    middle, as `rint` does. The sum's bits, read as an integer, then are those of the large number plus the multiple.
    A number that is too large for that, or is none, is cut by `split`.

    Raises:
        ValueError: the sums are of vectors of another length.
    """
    if high is not None and high.shape != x.shape:
        raise ValueError(f"a vector of {len(x)} numbers, the sum is of vectors of {len(high)}")
    if not is_within(x, NEAR):
        parts = split(x)
        return (parts[0] if high is None else high + parts[0]), (parts[1] if low is None else low + parts[1])
    found = np.empty(x.shape, np.int64), np.empty(x.shape, np.int64)
    for start in range(0, len(x), BLOCK):
        part = slice(start, start + BLOCK)
        left = x[part].astype(np.float64)
        moved = left + HIGH_ONES
        left -= moved - HIGH_ONES
        left += LOW_ONES
        for out, sums, sum_bits, one_bits in zip(found, (high, low), (moved, left), ONE_BITS, strict=True):
            multiples = sum_bits.view(np.int64)
            multiples -= one_bits
            if sums is None:
                out[part] = multiples
            else:
                np.add(sums[part], multiples, out=out[part])
    return found


SHORT, MANY_NUMBERS = 2.0**40, 2**24
"""A squared length, and so many numbers at most: even if their sum is off by half, each of them is below 2**21."""


def is_within(x: npt.NDArray[np.floating], limit: float) -> bool:
    """True if no number of an array is above a limit of 2**21 or more, or is none."""
    if x.ndim == 1 and len(x) <= MANY_NUMBERS and x.dtype.itemsize >= 4:
        with np.errstate(over="ignore", invalid="ignore"):
            square = np.dot(x, x)
        if square <= SHORT:  # as nearly always: one pass over memory, and nothing is written
            return True
    return bool((np.abs(x) <= limit).all())


def split(x: npt.NDArray[np.floating]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Numbers (k,) as multiples of 2**-HIGH and, of what is left, of 2**-LOW. Products with powers of two are exact."""
    high, low = np.empty(x.shape, np.int64), np.empty(x.shape, np.int64)
    for start in range(0, len(x), BLOCK):
        part = slice(start, start + BLOCK)
        left = x[part].astype(np.float64)
        whole = np.rint(left * 2.0**HIGH)
        high[part] = whole
        whole *= 2.0**-HIGH
        left -= whole
        left *= 2.0**LOW
        low[part] = np.rint(left, out=left)
    return high, low


def split_number(x: float) -> Exact:
    """A number as `split` has it."""
    if not abs(x) <= LARGEST:
        high, low = split(np.array([x], np.float64))
        return int(high[0]), int(low[0])
    if float(x).is_integer():  # as most weights and counts
        return int(x) << HIGH, 0
    whole = round(x * 2.0**HIGH)
    return whole, round((x - whole * 2.0**-HIGH) * 2.0**LOW)


def plus(a: Exact, b: Exact) -> Exact:
    return a[0] + b[0], a[1] + b[1]


def number(exact: Exact) -> float:
    return exact[0] * 2.0**-HIGH + exact[1] * 2.0**-LOW


def has_diverged(x: npt.NDArray[np.floating]) -> bool:
    """True if a vector has a number that may not travel: not finite, or above LARGEST."""
    return not is_within(x, LARGEST)
