"""Fewer bits for the vertical messages of HSGD: top-k, as in Compressed-VFL, and a uniform quantiser of b levels.

T. Castiglia, A. Das, S. Wang, S. Patterson: "Compressed-VFL: Communication-Efficient Learning with Vertically
Partitioned Data", ICML 2022; as HSGD's baselines C-HSGD and C-TDCD use it.

Everything here is a matrix: embeddings (samples x d), and theta_0 as one row. Each row is packed by itself.

    paper's words                                       here
    "quantisation level b = 128"                        keep = log2(b) / 32 = 7/32 of each row's entries, by magnitude
    "compression ratio log2(b) / 32"                    log2(b) bits per entry, nothing for the places
    (not in the paper) what it really takes             true_bits: the kept numbers in full, and where they belong

A mask tells where kept entries belong: one bit per entry, less than indices take for any keep above 1 / log2(d).
There is no error feedback, and nobody packs what it uses itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor, log2
from typing import Annotated

import numpy as np
import numpy.typing as npt

from edge_sdk.algebra.arrays import Tensor, Values
from edge_sdk.algebra.vectors import Layout
from edge_sdk.methods.hsgd.row_integers import RowIntegers, read_rows

Floats = npt.NDArray[np.floating]
Matrix = Annotated[npt.NDArray[np.floating], Tensor(("?", "?"))]

PAPER_KEEP = 7 / 32
NUMBER = 32  # bits of an uncompressed number
MOST_LEVELS = 256


@dataclass(frozen=True)
class Dense:
    """A matrix as it is."""

    values: Matrix

    def check(self, layout: Layout) -> None:
        refuse_unless_finite(self.values)


@dataclass(frozen=True)
class Sparse:
    """The largest entries of each row.

    Attributes:
        mask: (rows, ceil(columns / 8)), a bit for each entry; as numpy.packbits has them.
        values: (rows, k), those whose bit is set, in order.
        columns: of the matrix.
    """

    mask: Annotated[npt.NDArray[np.uint8], Tensor(("?", "?"), "uint8")]
    values: Matrix
    columns: int

    def check(self, layout: Layout) -> None:
        if self.columns < 0 or self.mask.shape[1] != ceil(self.columns / 8):
            raise ValueError(f"a mask of {self.mask.shape[1]} bytes for {self.columns} columns")
        if len(self.mask) != len(self.values):
            raise ValueError(f"a mask of {len(self.mask)} rows for {len(self.values)} rows of values")
        refuse_unless_finite(self.values)
        if (unpack_mask(self).sum(1) != self.values.shape[1]).any():
            raise ValueError(f"{self.values.shape[1]} values per row, the mask has places for others")


@dataclass(frozen=True)
class Coarse:
    """Every entry of a row as the nearest of equally spaced levels between its smallest and its largest.

    Attributes:
        codes: (rows, columns).
        low: (rows,), the smallest entry.
        step: (rows,), distance of two levels.
    """

    codes: Annotated[npt.NDArray[np.uint8], Tensor(("?", "?"), "uint8")]
    low: Values
    step: Values

    def check(self, layout: Layout) -> None:
        if not len(self.codes) == len(self.low) == len(self.step):
            raise ValueError(f"{len(self.codes)} rows of codes, {len(self.low)} of low, {len(self.step)} of step")
        refuse_unless_finite(self.low)
        refuse_unless_finite(self.step)


PackedMatrix = Dense | Sparse | Coarse | RowIntegers


def refuse_unless_finite(x: Floats) -> None:
    if not np.isfinite(x).all():
        raise ValueError("a number that is not finite: the sender's training diverged")


# Packing --------------------------------------------------------------------------------------------------------
def pack(
    x: Floats, keep: float = 1.0, levels: int = 0, columns: Floats | None = None, parts: tuple[int, ...] = ()
) -> PackedMatrix:
    """A matrix for the wire.

    Args:
        x: (rows, columns).
        keep: share of each row's entries that travels; 1: all of them.
        levels: b of the quantiser; 0: there is none. Not together with `keep` below 1.
        columns: (columns,), weights: the same columns of all rows are kept, those that weigh most. None: each row keeps
            its entries of largest magnitude.
        parts: columns of each tensor, where x is several of them side by side: `keep` holds for each; () for one.
    """
    if levels and x.size:
        return quantise(x, levels)
    if keep >= 1 or not x.size:
        return Dense(x)
    weight = np.abs(x) if columns is None else np.broadcast_to(columns, x.shape)
    ends = np.cumsum(parts or (x.shape[1],))[:-1]
    chosen = np.concatenate(
        [largest(part, count_kept(part.shape[1], keep)) for part in np.split(weight, ends, axis=1)], axis=1
    )
    return Sparse(np.packbits(chosen, axis=1), x[chosen].reshape(len(x), -1), x.shape[1])


def count_kept(columns: int, keep: float) -> int:
    """k = max(1, floor(keep * columns))."""
    return max(1, floor(keep * columns))


def largest(weight: Floats, k: int) -> npt.NDArray[np.bool_]:
    """Where the k entries of each row are that weigh most."""
    chosen = np.zeros(weight.shape, bool)
    np.put_along_axis(chosen, np.argsort(-weight, axis=1, kind="stable")[:, :k], True, axis=1)
    return chosen


def quantise(x: Floats, levels: int) -> Coarse:
    """argmin over the levels of |x - level|, entry by entry."""
    low, high = x.min(1), x.max(1)
    step = (high - low) / x.dtype.type(levels - 1)
    scale = np.where(step > 0, step, 1)
    codes = np.rint((x - low[:, None]) / scale[:, None])
    return Coarse(codes.clip(0, levels - 1).astype(np.uint8), low, step)


def unpack(p: PackedMatrix) -> Floats:
    """The matrix that a parcel stands for; what was not kept is zero."""
    if isinstance(p, Dense):
        return p.values
    if isinstance(p, Coarse):
        coarse: Floats = p.low[:, None] + p.codes.astype(p.low.dtype) * p.step[:, None]
        return coarse
    if isinstance(p, RowIntegers):
        return read_rows(p)
    x: Floats = np.zeros((len(p.values), p.columns), p.values.dtype)
    x[unpack_mask(p)] = p.values.ravel()
    return x


def unpack_mask(p: Sparse) -> npt.NDArray[np.bool_]:
    """(rows, columns): what is kept."""
    return np.unpackbits(p.mask, axis=1, count=p.columns).astype(bool)


def shape(p: PackedMatrix) -> tuple[int, int]:
    """Shape (rows, columns) of the unpacked matrix."""
    if isinstance(p, Sparse):
        return len(p.values), p.columns
    if isinstance(p, RowIntegers):
        return p.rows, p.columns
    rows, columns = (p.values if isinstance(p, Dense) else p.codes).shape
    return rows, columns


# Costs ----------------------------------------------------------------------------------------------------------
def true_bits(p: PackedMatrix) -> int:
    """What a parcel takes: numbers, and their places as indices or mask, whichever is shorter. A code is a byte."""
    rows, columns = shape(p)
    if isinstance(p, Dense):
        return NUMBER * rows * columns
    if isinstance(p, Coarse):
        return rows * (2 * NUMBER + 8 * columns)
    if isinstance(p, RowIntegers):
        return 2 * NUMBER * rows + 8 * p.packed.size
    k: int = p.values.shape[1]
    return rows * (NUMBER * k + min(columns, k * width(columns)))


def width(values: int) -> int:
    """Bits of a number that is one of so many."""
    return max(1, ceil(log2(values))) if values > 1 else 1
