"""HSGD's messages between a hospital and its devices as integers of few bits, rounded up or down at random.

Each row is divided between its smallest and its largest entry into 2^bits - 1 steps. A number becomes one of the two
steps beside it, by chance and so that its expectation is the number itself: what is rounded in one exchange errs
another way in the next, where the nearest of the levels (`compression.Coarse`) errs the same way each time.

    zeta_1, zeta_2      rows are samples
    theta_0, theta_2    rows are BLOCK numbers each, so that a few large ones do not make all steps large

theta_2 comes back as the difference to what was shown, and the hospital adds that to its own theta_2: so what rounding
did on the way down is in the gradients of one interval, and not in the model. What is drawn follows from the run's
seed, the round, the interval and the node: a call that is made again after a kill sends the same bytes.

Source of the rounding: D. Alistarh et al., "QSGD", NeurIPS 2017.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
import numpy.typing as npt

from edge_sdk.algebra.arrays import ANY, Tensor
from edge_sdk.algebra.secure_aggregation import rounding
from edge_sdk.algebra.vectors import Layout, Vector
from edge_sdk.errors import PeerError

Floats = npt.NDArray[np.floating]
BLOCK = 256
"""Numbers of a vector that have one scale."""
LARGEST_SIDE = 2**26
"""Rows or columns that a peer may claim."""


SHORT = 256
"""Octets of a matrix that are worth no array: that is named in its message, and begins at a multiple of eight bytes."""
Octets = Annotated[npt.NDArray[np.uint8], Tensor((ANY,), "uint8")]


@dataclass(frozen=True)
class RowIntegers:
    """A matrix whose rows are integers on a scale of their own.

    Attributes:
        octets: `low` and `step` of all rows in the float type of the run, then `packed`; SHORT ones lie in the header.
        rows, columns: of the matrix. bits: of an integer.
    """

    written_as: ClassVar[str] = "Rows"

    octets: bytes | Octets
    rows: int
    columns: int
    bits: int

    def check(self, layout: Layout) -> None:
        if not rounding.FEWEST <= self.bits <= rounding.MOST or not 0 <= self.columns <= LARGEST_SIDE:
            raise ValueError(f"integers of {self.bits} bits in {self.columns} columns")
        if not 0 <= self.rows <= LARGEST_SIDE or self.scales not in (8 * self.rows, 16 * self.rows):
            raise ValueError(f"{len(self.octets)} bytes for {self.rows} rows of {self.columns} integers")
        if not (np.isfinite(self.low).all() and np.isfinite(self.step).all() and (self.step >= 0).all()):
            raise ValueError("a scale that is not finite or below 0: the sender's training diverged")

    @property
    def scales(self) -> int:
        """Bytes of the scales of all rows."""
        return len(self.octets) - rounding.packed_size(self.rows * self.columns, self.bits)

    @property
    def low(self) -> Floats:
        """What 0 stands for, (rows,)."""
        return np.frombuffer(self.octets, self.dtype, self.rows)

    @property
    def step(self) -> Floats:
        """Distance of two integers, (rows,)."""
        return np.frombuffer(self.octets, self.dtype, self.rows, self.scales // 2)

    @property
    def packed(self) -> npt.NDArray[np.uint8]:
        """The integers of all rows one after the other, of `bits` bits each."""
        return np.frombuffer(self.octets, np.uint8, offset=self.scales)

    @property
    def dtype(self) -> npt.DTypeLike:
        """Float type of the scales."""
        return "<f8" if self.rows and self.scales == 16 * self.rows else "<f4"


def join_rows(low: Floats, step: Floats, packed: npt.NDArray[np.uint8], columns: int, bits: int) -> RowIntegers:
    """Rows of these scales and integers."""
    octets = low.tobytes() + step.tobytes() + packed.tobytes()
    short = octets if len(octets) <= SHORT else np.frombuffer(octets, np.uint8)
    return RowIntegers(short, len(low), columns, bits)


def pack_rows(x: Floats, bits: int, random: np.random.Generator) -> RowIntegers:
    """A matrix (rows, columns) as integers; what is not finite stays so in its row's scale, and is refused there."""
    top = (1 << bits) - 1
    low, high = x.min(1), x.max(1)
    step = (high - low) / x.dtype.type(top)
    scaled = (x - low[:, None]).astype(np.float64) / np.where(step > 0, step, 1)[:, None]
    whole = np.clip(np.nan_to_num(np.floor(scaled + random.random(x.shape))), 0, top).astype(np.uint32)
    return join_rows(low, step, rounding.pack(whole.ravel(), bits), x.shape[1], bits)


def read_rows(p: RowIntegers) -> Floats:
    """What the integers stand for, (rows, columns) in the float type of the scale."""
    whole = rounding.unpack(p.packed, p.rows * p.columns, p.bits).reshape(p.rows, p.columns)
    found: Floats = p.low[:, None] + whole.astype(p.low.dtype) * p.step[:, None]
    return found


def pack_vector(x: Vector, bits: int, random: np.random.Generator) -> RowIntegers:
    """A vector (n,) as rows of BLOCK integers; the last row is filled up with its last number."""
    columns = max(1, min(BLOCK, x.size))
    rows = -(-x.size // columns)
    return pack_rows(np.pad(x, (0, rows * columns - x.size), "edge").reshape(rows, columns), bits, random)


def read_vector(p: RowIntegers, size: int, name: str) -> Vector:
    """The vector (size,) of such rows.

    Raises:
        PeerError: these are rows of a vector of another size.
    """
    columns = max(1, min(BLOCK, size))
    if (p.rows, p.columns) != (-(-size // columns), columns):
        raise PeerError(f"{name} of {p.rows} rows of {p.columns} numbers, expected {size} numbers")
    return read_rows(p).reshape(-1)[:size]
