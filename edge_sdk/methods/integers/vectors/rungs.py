"""Sizes of uploads on a ladder, so that the largest of some can be found in a sum.

What a sum of masked uploads can say of their sizes is how many have each (a count), and not the largest. So sizes are
rounded up to one of RUNGS, four to each power of two, which costs an eighth of a bit of the next scale on average.
"""

from __future__ import annotations

from math import ceil, log2

EACH, LOWEST, RUNGS = 4, -34, 200
"""Rungs to each power of two; power of two of the lowest; how many there are, up to 2**16."""


def rung_of(spread: float) -> int:
    """The lowest rung, from 0 to RUNGS - 1, that is not below a size; sizes beyond either end are at that end."""
    if not spread > 0.0:
        return 0
    rung = min(max(0, ceil(EACH * (log2(min(spread, 2.0**60)) - LOWEST))), RUNGS - 1)
    return rung - 1 if rung and size_of(rung - 1) == spread else rung  # a size on a rung stays there


def size_of(rung: int) -> float:
    """Size that a rung stands for."""
    return float(2.0 ** (rung / EACH + LOWEST))


def round_spread(spread: float) -> float:
    """A size, rounded up to a rung."""
    return size_of(rung_of(spread))
