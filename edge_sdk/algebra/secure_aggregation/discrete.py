"""Discrete Gaussian noise: integers with probabilities in proportion to exp(-z^2 / (2 variance)).

Source: C. Canonne, G. Kamath, T. Steinke, "The Discrete Gaussian for Differential Privacy", NeurIPS 2020. Numbers are
drawn by inversion, with whole numbers only: no rounding of a floating-point number can tell what noise was added to.
A random word of 64 bits is looked up among the cumulative probabilities. Where it falls on one of them, to its last
bit, 64 more decide; so every probability is right to 2^-128, in 60 digits of which it is computed. Most words are
decided by their first 16 bits, and only for the others are more drawn: entropy is what takes most of the time. (The
paper's own sampler, by rejection, needs far more random bytes, and on a device longer than training.)
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

Entropy = Callable[[int], bytes]
"""Count -> so many random bytes."""
Words = npt.NDArray[np.uint64]
Noise = npt.NDArray[np.int32]
Places = npt.NDArray[np.int64]

LARGEST_VARIANCE = 1 << 24
FARTHEST = 14
"""Standard deviations up to which there are numbers; beyond, less than 2^-128 is left."""
DIGITS = 60
GUIDED = 16
STEPS = 2
"""Cumulative probabilities that are compared one by one, before those of a far tail are searched for."""


@dataclass(frozen=True)
class Cumulative:
    """Probabilities that a number is at most so far from zero, for 0, 1, 2, ...

    Attributes:
        words: uint64 (k,), multiples of 2^-64, rounded down.
        fine: the same as multiples of 2^-128.
        guide: int32 (2^GUIDED,), the distance of a word with these first bits; below zero: they leave it open, and it
            is -1 - guide or more.
    """

    words: Words
    fine: tuple[int, ...]
    guide: npt.NDArray[np.int32]


def draw_gaussian(variance: int, count: int, entropy: Entropy) -> Noise:
    """Integers (count,) of the discrete Gaussian.

    Args:
        variance: its parameter sigma^2, a whole number from 1 to LARGEST_VARIANCE.

    Raises:
        ValueError: another variance.
    """
    if not 1 <= variance <= LARGEST_VARIANCE:
        raise ValueError(f"variance {variance}: a whole number from 1 to {LARGEST_VARIANCE}")
    table = cumulative(variance)
    first = np.frombuffer(entropy(GUIDED // 8 * count), "<u2")
    distance: Noise = table.guide[first]
    open_ones = np.flatnonzero(distance < 0)
    distance[open_ones] = draw_open(table, first[open_ones], entropy)
    distance *= draw_signs(count, entropy)
    return distance


def draw_open(table: Cumulative, first: npt.NDArray[np.uint16], entropy: Entropy) -> Places:
    """Distances of words whose first bits leave them open: the other 48 are drawn, and, where they do, 64 more."""
    octets = np.empty((first.size, 8), np.uint8)
    octets[:, :6] = np.frombuffer(entropy(6 * first.size), np.uint8).reshape(-1, 6)
    octets[:, 6:] = first.astype("<u2").view(np.uint8).reshape(-1, 2)
    words = octets.view("<u8").reshape(-1)
    distance = find_distances(table, words)
    for i in undecided(table, words, distance):
        number = (int(words[i]) << 64) | int.from_bytes(entropy(8), "little")
        distance[i] = bisect_right(table.fine, number)
    return distance


def find_distances(table: Cumulative, words: Words) -> Places:
    """Number of cumulative probabilities that are at most so large, for each word."""
    known = table.guide[(words >> np.uint64(64 - GUIDED)).view(np.int64)]
    distance: Places = np.where(known < 0, -1 - known, known).astype(np.int64)
    last = len(table.words) - 1
    for _ in range(STEPS):
        distance += (table.words[np.minimum(distance, last)] <= words) & (distance <= last)
    far = np.flatnonzero(table.words[np.minimum(distance, last)] <= words)
    distance[far] = np.searchsorted(table.words, words[far], side="right")
    return distance


def undecided(table: Cumulative, words: Words, distance: Places) -> list[int]:
    """Places of words that are equal to a cumulative probability in all of its first 64 bits."""
    return np.flatnonzero((distance > 0) & (table.words[distance - 1] == words)).tolist()


@lru_cache(maxsize=4)
def cumulative(variance: int) -> Cumulative:
    """The table of one variance. Each weight follows from the one before by two products."""
    from decimal import Context, Decimal, localcontext  # for noise only

    with localcontext(Context(prec=DIGITS, Emin=-10_000)):
        ratio, weight, total = (Decimal(-1) / (2 * variance)).exp(), Decimal(1), Decimal(0)
        square, sums = ratio * ratio, list[Decimal]()
        for z in range(int(FARTHEST * variance**0.5) + FARTHEST):
            total += weight if z == 0 else 2 * weight
            sums.append(total)
            weight, ratio = weight * ratio, ratio * square
        fine = tuple(min(int(part / total * 2**128), 2**128 - 1) for part in sums)
    words = np.array([number >> 64 for number in fine], np.uint64)
    return Cumulative(words, fine, guide_to(words))


def guide_to(words: Words) -> npt.NDArray[np.int32]:
    """The distances of all words with the same first bits, where no cumulative probability has these bits, too."""
    smallest = np.arange(1 << GUIDED, dtype=np.uint64) << np.uint64(64 - GUIDED)
    largest = smallest | np.uint64((1 << (64 - GUIDED)) - 1)
    low, high = np.searchsorted(words, smallest), np.searchsorted(words, largest, side="right")
    return np.where(low == high, low, -1 - low).astype(np.int32)


def draw_signs(count: int, entropy: Entropy) -> npt.NDArray[np.int8]:
    """Signs (count,): 1 or -1, each as likely."""
    bits = np.unpackbits(np.frombuffer(entropy(-(-count // 8)), np.uint8), count=count)
    return np.int8(1) - np.int8(2) * bits.view(np.int8)
