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

from edge_sdk.algebra.vectors import Vector

BLOCK = 4096
Signs = npt.NDArray[np.bool_]


def draw_signs(size: int, *seed: int) -> Signs:
    """Random signs (n,) of a rotation; True: minus. The same for the same seed."""
    octets = np.frombuffer(np.random.default_rng(seed).bytes(-(-size // 8)), np.uint8)
    return np.unpackbits(octets, count=size).view(np.bool_)


def rotate(x: Vector, signs: Signs) -> Vector:
    """The vector (n,) after the rotation, in its own float type."""
    y = np.where(signs, -x, x)
    block = block_size(y.size)
    whole = y.size - y.size % block
    transform(y[:whole], block)
    if whole < y.size:
        last = y[-block:]
        np.negative(last, out=last, where=signs[:block])
        transform(last, block)
    return y


def rotate_back(y: Vector, signs: Signs) -> Vector:
    """The inverse of `rotate`."""
    x = y.copy()
    block = block_size(x.size)
    whole = x.size - x.size % block
    if whole < x.size:
        last = x[-block:]
        transform(last, block)
        np.negative(last, out=last, where=signs[:block])
    transform(x[:whole], block)
    return np.where(signs, -x, x)


def block_size(size: int) -> int:
    """The largest power of two that is at most BLOCK and at most the vector's size."""
    return min(BLOCK, 1 << (max(size, 1).bit_length() - 1))


def transform(x: Vector, block: int) -> None:
    """Orthonormal Hadamard transform, in place, of blocks: number i of block j is x[i * blocks + j].

    Blocks are interleaved so that all that is added lies in long runs, which numpy adds quickly.
    """
    columns, half = x.size // max(block, 1), 1
    here, there = x, np.empty_like(x)
    while half < block:
        pairs, sums = (v.reshape(block // (2 * half), 2, half * columns) for v in (here, there))
        np.add(pairs[:, 0], pairs[:, 1], out=sums[:, 0])
        np.subtract(pairs[:, 0], pairs[:, 1], out=sums[:, 1])
        here, there, half = there, here, 2 * half
    np.multiply(here, x.dtype.type(block**-0.5), out=x)
