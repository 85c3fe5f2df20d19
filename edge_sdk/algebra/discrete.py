"""Discrete Gaussian noise, drawn exactly: integers with probabilities in proportion to exp(-z^2 / (2 variance)).

Source: C. Canonne, G. Kamath, T. Steinke, "The Discrete Gaussian for Differential Privacy", NeurIPS 2020, algorithms 1
to 3. Each comparison is one of whole numbers, so there is no floating-point number whose last bits could tell what the
noise was added to. All numbers of a vector are drawn together: those that a step refuses are drawn again.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Entropy = Callable[[int], bytes]
"""Count -> so many random bytes."""
Words = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]
Noise = npt.NDArray[np.int64]

LARGEST_VARIANCE = 1 << 24
"""Beyond it the whole numbers of a comparison would not fit 64 bits."""
ACCEPTED = 0.4
"""Share of candidates that are accepted, a little less than it is."""
ONE = np.uint64(1)


def draw_gaussian(variance: int, count: int, entropy: Entropy) -> Noise:
    """Integers (count,) of the discrete Gaussian.

    Args:
        variance: its parameter sigma^2, a whole number from 1 to LARGEST_VARIANCE.

    Raises:
        ValueError: another variance.
    """
    if not 1 <= variance <= LARGEST_VARIANCE:
        raise ValueError(f"variance {variance}: a whole number from 1 to {LARGEST_VARIANCE}")
    found, there = [np.zeros(0, np.int64)], 0
    while there < count:
        more = gaussian_candidates(variance, int((count - there) / ACCEPTED) + 16, entropy)[: count - there]
        found.append(more)
        there += more.size
    return np.concatenate(found)


def gaussian_candidates(variance: int, count: int, entropy: Entropy) -> Noise:
    """Algorithm 3: discrete Laplace candidates, of which some are accepted."""
    scale = int(np.sqrt(variance)) + 1
    z = laplace_candidates(scale, count, entropy)
    distance = np.abs(z) * scale - variance
    numerator, denominator = (distance * distance).astype(np.uint64), np.uint64(2 * variance * scale * scale)
    return z[bernoulli_exp(numerator, np.full(z.size, denominator), entropy)]


def laplace_candidates(scale: int, count: int, entropy: Entropy) -> Noise:
    """Algorithm 2: integers with probabilities in proportion to exp(-|z| / scale)."""
    size = np.full(count, np.uint64(scale))
    low = below(size, entropy)
    kept = fraction_exp(low, size, entropy)
    low = low[kept]
    high = geometric(low.size, entropy)
    magnitude = (low + np.uint64(scale) * high).astype(np.int64)
    negative = (words(magnitude.size, entropy) & ONE).astype(bool)
    once = ~(negative & (magnitude == 0))  # zero would come twice as often as it should
    signed: Noise = np.where(negative, -magnitude, magnitude)
    return signed[once]


def geometric(count: int, entropy: Entropy) -> Words:
    """Successes (count,) of coins that fall with probability 1/e, before the first failure."""
    found, alive = np.zeros(count, np.uint64), np.arange(count)
    while alive.size:
        ones = np.ones(alive.size, np.uint64)
        alive = alive[fraction_exp(ones, ones, entropy)]
        found[alive] += ONE
    return found


def bernoulli_exp(numerator: Words, denominator: Words, entropy: Entropy) -> Mask:
    """Coins that fall with probability exp(-numerator / denominator), for any fraction from 0 on."""
    found, whole = np.ones(numerator.size, bool), numerator // denominator
    alive = np.flatnonzero(whole > 0)
    while alive.size:
        ones = np.ones(alive.size, np.uint64)
        passed = fraction_exp(ones, ones, entropy)
        found[alive[~passed]] = False
        whole[alive] -= ONE
        alive = alive[passed & (whole[alive] > 0)]
    left = np.flatnonzero(found)
    found[left] = fraction_exp(numerator[left] % denominator[left], denominator[left], entropy)
    return found


def fraction_exp(numerator: Words, denominator: Words, entropy: Entropy) -> Mask:
    """Algorithm 1: coins that fall with probability exp(-numerator / denominator), for fractions from 0 to 1."""
    odd, alive, k = np.ones(numerator.size, bool), np.arange(numerator.size), ONE
    while alive.size:
        alive = alive[below(denominator[alive] * k, entropy) < numerator[alive]]
        odd[alive] = ~odd[alive]
        k += ONE
    return odd


def below(limits: Words, entropy: Entropy) -> Words:
    """Whole numbers (k,), each uniform from 0 to its limit - 1."""
    found = words(limits.size, entropy)
    uneven = np.uint64(2**64 - 1) // limits * limits  # what is above would make small numbers more likely
    while (again := np.flatnonzero(found >= uneven)).size:
        found[again] = words(again.size, entropy)
    return found % limits


def words(count: int, entropy: Entropy) -> Words:
    return np.frombuffer(entropy(8 * count), "<u8").astype(np.uint64)
