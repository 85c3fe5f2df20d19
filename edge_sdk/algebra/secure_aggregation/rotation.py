"""A random rotation that spreads a vector evenly over its coordinates: signs, then Hadamard transforms of blocks.

After it every coordinate of a block is about as large as every other, whatever the vector was, so that a single scale
suits all of them. Source: A. Suresh et al., "Distributed Mean Estimation with Limited Communication", ICML 2017.

Blocks have up to BLOCK numbers, a power of two. What is left over at the end is not padded: a second pass transforms
the last block of the vector, which overlaps the first pass, after signs of its own. Both passes are orthonormal, so
lengths stay and the inverse is the same passes in reverse order. All of it is additions and multiplications of single
numbers in a fixed order, and so the same to the bit on every machine; a matrix product would not be.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from edge_sdk.algebra.vectors import Vector, pieces

BLOCK = 4096
NEAR, ABREAST = 64, 12
"""Numbers of a block that are added up while it stands crosswise in memory; blocks that are transformed together."""
Signs = npt.NDArray[np.bool_]


def draw_signs(size: int, *seed: int) -> Signs:
    """Random signs (n,) of a rotation; True: minus. The same for the same seed."""
    octets = np.frombuffer(np.random.default_rng(seed).bytes(-(-size // 8)), np.uint8)
    return np.unpackbits(octets, count=size).view(np.bool_)


def rotate(x: Vector, signs: Signs) -> Vector:
    """The vector (n,) after the rotation, in its own float type."""
    y = x.copy()
    flip(y, signs)
    block = block_size(y.size)
    whole = y.size - y.size % block
    transform(y[:whole], block)
    if whole < y.size:
        last = y[-block:]
        flip(last, signs[:block])
        transform(last, block)
    return y


def rotate_back(y: Vector, signs: Signs) -> Vector:
    """The inverse of `rotate`."""
    return turn_back(y.copy(), signs)


def turn_back(x: Vector, signs: Signs) -> Vector:
    """`rotate_back` in place. Returns its input."""
    block = block_size(x.size)
    whole = x.size - x.size % block
    if whole < x.size:
        last = x[-block:]
        transform(last, block)
        flip(last, signs[:block])
    transform(x[:whole], block)
    flip(x, signs)
    return x


def flip(x: Vector, signs: Signs) -> None:
    """Negates the numbers of a vector whose sign is set, in place, by the one bit that says so in a float."""
    bits = x.view(f"u{x.dtype.itemsize}")
    for piece in pieces(x.size):
        bits[piece] ^= np.left_shift(signs[piece], 8 * x.dtype.itemsize - 1, dtype=bits.dtype)


def block_size(size: int) -> int:
    """The largest power of two that is at most BLOCK and at most the vector's size."""
    return min(BLOCK, 1 << (max(size, 1).bit_length() - 1))


def transform(x: Vector, block: int) -> None:
    """Orthonormal Hadamard transform, in place, of blocks: number i of block j is x[i * blocks + j].

    Some blocks at a time, so that they stay in the processor's cache, and large vectors ask for no room of their size.
    numpy adds long runs of numbers quickly, and short ones slowly: so what stands near in a block is added up while
    blocks stand crosswise, number a NEAR + b as if it were number b FAR + a.
    """
    blocks, near = x.reshape(block, x.size // block), min(NEAR, block)
    far, scale = block // near, x.dtype.type(block**-0.5)
    here, there = np.empty((2, block * min(ABREAST, blocks.shape[1])), x.dtype)
    for first in range(0, blocks.shape[1], ABREAST):
        part = blocks[:, first : first + ABREAST]
        some = part.shape[1]
        here, there = here[: block * some], there[: block * some]
        here.reshape(near, far, some)[...] = part.reshape(far, near, some).transpose(1, 0, 2)
        here, there = add_and_subtract(here, there, near, far * some)
        there.reshape(far, near, some)[...] = here.reshape(near, far, some).transpose(1, 0, 2)
        here, there = add_and_subtract(there, here, far, near * some)
        np.multiply(here.reshape(block, some), scale, out=part)


def add_and_subtract(here: Vector, there: Vector, count: int, run: int) -> tuple[Vector, Vector]:
    """The Hadamard transform of `count` runs of numbers, not scaled: nearest pairs first. Overwrites both of its
    arguments, and returns them with the transform as the first."""
    half = 1
    while half < count:
        pairs, sums = (v.reshape(count // (2 * half), 2, half * run) for v in (here, there))
        np.add(pairs[:, 0], pairs[:, 1], out=sums[:, 0])
        np.subtract(pairs[:, 0], pairs[:, 1], out=sums[:, 1])
        here, there, half = there, here, 2 * half
    return here, there
