"""Vectors as small integers: stochastic rounding, and integers of any number of bits as bytes.

A number in [-half, half] becomes one of 2 M + 1 steps, M = 2**(bits - 1) - 1, by rounding up or down at random so that
its expectation is the number itself. Source: D. Alistarh et al., "QSGD: Communication-Efficient SGD via Gradient
Quantization and Encoding", NeurIPS 2017. What lies outside is clipped; whoever rounds keeps the error and adds it to
the next vector (F. Seide et al., "1-Bit Stochastic Gradient Descent", Interspeech 2014).

Integers are written from 0 on (value + M), so sums of `terms` of them are exact in the ring of `width(bits, terms)`
bits, in any order.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

from edge_sdk.algebra.vectors import Vector, pieces

FEWEST, MOST = 2, 16
"""Bits of one number."""
FINE = 12
"""Bits beyond which a float32 holds too few digits behind a step for its expectation to be right."""
WIDEST = 32
"""Bits of a sum."""
FINEST = 2.0**-100
"""Least half of a range. On a finer one the steps in a unit overflow float32, and a zero has no defined integer."""

Steps = npt.NDArray[np.uint32]
Ring = npt.NDArray[np.unsignedinteger]
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
    """Integers (n,) from 0 to 2 M, of numbers in [-half, half], half at least FINEST. What is outside is clipped."""
    top, found = largest(bits), np.empty(y.size, np.uint32)
    kind = np.float64 if bits > FINE else y.dtype.type
    for piece in pieces(y.size):
        scaled = np.multiply(y[piece], kind(top / half), dtype=kind)
        scaled += random.random(scaled.size, dtype=np.float32)
        np.floor(scaled, out=scaled)
        np.clip(scaled, -top, top, out=scaled)
        scaled += top
        found[piece] = scaled
    return found


def to_numbers(steps: Steps, half: float, bits: int, terms: int, like: Vector, out: Vector | None = None) -> Vector:
    """Numbers (n,) that integers, or sums of `terms` of them, stand for, in the float type of `like`.

    Args:
        out: where they are written; None: a vector of their own.
    """
    top, found = largest(bits), np.empty(steps.size, like.dtype) if out is None else out
    for piece in pieces(steps.size):
        signed = (steps[piece] - np.uint32(terms * top)).view(np.int32)  # the ring has room for the sum, and so this
        np.multiply(signed, half / top, out=found[piece], dtype=np.float64, casting="unsafe")
    return found


# Bytes ----------------------------------------------------------------------------------------------------------
def packed_size(count: int, bits: int) -> int:
    """Bytes of so many integers."""
    if bits > 8:
        return count + packed_size(count, bits - 8)
    return -(-count // 8) * bits if bits < 8 else count


def pack(steps: Ring, bits: int) -> Octets:
    """Integers of `bits` bits each as bytes: low bytes first, then what is above them; eight integers at a time."""
    if bits > 8:
        return np.concatenate([steps.astype(np.uint8), pack(steps >> steps.dtype.type(8), bits - 8)])
    if bits == 8:
        return steps.astype(np.uint8)
    rows = np.zeros(8 * -(-steps.size // 8), np.uint8)
    rows[: steps.size] = steps
    words = rows.view("<u8")
    for shift, low, high in merges(bits):
        words = (words & low) | ((words & high) >> shift)
    return first_octets(words, bits)


def unpack(octets: Octets, count: int, bits: int) -> Steps:
    """The inverse of `pack`.

    Args:
        octets: uint8 (packed_size(count, bits),).
    """
    if bits > 8:
        steps = unpack(octets[count:], count, bits - 8)
        steps <<= np.uint32(8)
        steps |= octets[:count]
        return steps
    if bits == 8:
        return octets.astype(np.uint32)
    rows = np.zeros((octets.size // bits, 8), np.uint8)
    rows[:, :bits] = octets.reshape(-1, bits)
    words = rows.reshape(-1).view("<u8")
    for shift, low, high in reversed(merges(bits)):
        words = (words & low) | ((words << shift) & high)
    return words.view(np.uint8)[:count].astype(np.uint32)


@cache
def merges(bits: int) -> tuple[tuple[np.uint64, np.uint64, np.uint64], ...]:
    """Three moves by which eight bytes of `bits` bits become one run of bits in a word: pairs, pairs of pairs, halves.

    For each: by how much the upper one of a pair moves down, and the bits of the lower and the upper ones.
    """
    found = []
    for lane in (8, 16, 32):
        used = lane // 8 * bits
        low = sum(((1 << used) - 1) << at for at in range(0, 64, 2 * lane))
        found.append((np.uint64(lane - used), np.uint64(low), np.uint64(low << lane)))
    return tuple(found)


def first_octets(words: npt.NDArray[np.uint64], count: int) -> Octets:
    """The first `count` bytes of each word."""
    if count in (1, 2, 4):
        return words.astype(f"<u{count}").view(np.uint8)  # as a cast that drops the upper bytes, which is quicker
    return words.view(np.uint8).reshape(-1, 8)[:, :count].reshape(-1)
