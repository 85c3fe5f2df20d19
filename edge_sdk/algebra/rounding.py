"""Vectors as small integers: stochastic rounding, and integers of any number of bits as bytes.

A number in [-half, half] becomes one of 2 M + 1 steps, M = 2**(bits - 1) - 1, by rounding up or down at random so that
its expectation is the number itself. Source: D. Alistarh et al., "QSGD: Communication-Efficient SGD via Gradient
Quantization and Encoding", NeurIPS 2017. What lies outside is clipped; whoever rounds keeps the error and adds it to
the next vector (F. Seide et al., "1-Bit Stochastic Gradient Descent", Interspeech 2014).

Integers are written from 0 on (value + M), so sums of `terms` of them are exact in the ring of `width(bits, terms)`
bits, in any order.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from edge_sdk.algebra.vectors import Vector

FEWEST, MOST = 2, 16
"""Bits of one number."""
FINE = 12
"""Bits beyond which a float32 holds too few digits behind a step for its expectation to be right."""
WIDEST = 32
"""Bits of a sum."""

Steps = npt.NDArray[np.uint32]
Octets = npt.NDArray[np.uint8]


def largest(bits: int) -> int:
    """M: steps on either side of zero."""
    return (1 << (bits - 1)) - 1


def width(bits: int, terms: int) -> int:
    """Bits of a sum of so many integers."""
    return (2 * largest(bits) * terms).bit_length()


def usual_half(bits: int) -> float:
    """Half of the range of a number of standard deviation 1: 1.6 at 2 bits, 2.7 at 4, 4.9 at 8.

    That is a little more than the range with which normal numbers err least, because rounding has the right mean, and
    clipping has not.
    """
    return min(6.0, 0.5 + 0.55 * bits)


def round_up_or_down(y: Vector, half: float, bits: int, random: np.random.Generator) -> Steps:
    """Integers (n,) from 0 to 2 M, of numbers in [-half, half]. What is outside is clipped."""
    top = largest(bits)
    scaled = y.astype(np.float64 if bits > FINE else y.dtype) * (top / half)
    scaled += random.random(y.size, dtype=np.float32)
    np.floor(scaled, out=scaled)
    np.clip(scaled, -top, top, out=scaled)
    scaled += top
    return scaled.astype(np.uint32)


def to_numbers(steps: Steps, half: float, bits: int, terms: int, like: Vector) -> Vector:
    """Numbers (n,) that integers, or sums of `terms` of them, stand for, in the float type of `like`."""
    top = largest(bits)
    return ((steps.astype(np.float64) - terms * top) * (half / top)).astype(like.dtype)


# Bytes ----------------------------------------------------------------------------------------------------------
def packed_size(count: int, bits: int) -> int:
    """Bytes of so many integers."""
    if bits > 8:
        return count + packed_size(count, bits - 8)
    return -(-count // 8) * bits if bits < 8 else count


def pack(steps: Steps, bits: int) -> Octets:
    """Integers of `bits` bits each as bytes: low bytes first, then what is above them; eight integers at a time."""
    if bits > 8:
        low = (steps & np.uint32(255)).astype(np.uint8)
        return np.concatenate([low, pack(steps >> np.uint32(8), bits - 8)])
    if bits == 8:
        return steps.astype(np.uint8)
    rows = np.zeros((-(-steps.size // 8), 8), np.uint64)
    rows.reshape(-1)[: steps.size] = steps
    words = np.zeros(len(rows), np.uint64)
    for i in range(8):
        words |= rows[:, i] << np.uint64(bits * i)
    return words.astype("<u8").view(np.uint8).reshape(-1, 8)[:, :bits].reshape(-1)


def unpack(octets: Octets, count: int, bits: int) -> Steps:
    """The inverse of `pack`.

    Args:
        octets: uint8 (packed_size(count, bits),).
    """
    if bits > 8:
        high = unpack(octets[count:], count, bits - 8)
        return octets[:count].astype(np.uint32) | (high << np.uint32(8))
    if bits == 8:
        return octets.astype(np.uint32)
    if 8 % bits == 0:
        parts = octets[:, None] >> np.arange(0, 8, bits, dtype=np.uint8)
        return (parts & np.uint8((1 << bits) - 1)).reshape(-1)[:count].astype(np.uint32)
    rows = np.zeros((octets.size // bits, 8), np.uint8)
    rows[:, :bits] = octets.reshape(-1, bits)
    words, mask = rows.reshape(-1).view("<u8"), np.uint64((1 << bits) - 1)
    steps = np.empty((len(rows), 8), np.uint32)
    for i in range(8):
        steps[:, i] = (words >> np.uint64(bits * i)) & mask
    return steps.reshape(-1)[:count]
