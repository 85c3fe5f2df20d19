"""The layout of theta: where every parameter lies in the one flat vector that a model is.

Gradients, duals and personal components have the same layout: optimisers and proximal steps are numpy on flat vectors.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod, sqrt

import numpy as np
import numpy.typing as npt

from edge_sdk.errors import UsageError

Vector = npt.NDArray[np.floating]
"""A flat vector of n parameters: float32 on a device, float64 in tests of exact identities."""

PIECE = 1 << 13
"""Numbers of a long vector that are worked on together where what that takes should stay in the processor's cache."""

VARIANCE = "running_var"
STATISTICS = ("running_mean", VARIANCE)
"""Last parts of the names of running statistics of batch normalisation, as torch has them."""
KINDS = ("conv", "linear", "norm", "bias", "recurrent", "embedding", "other")


@dataclass(frozen=True)
class Slot:
    """One parameter tensor inside theta.

    Attributes:
        name: as in the torch module, e.g. "0.weight".
        shape: of the tensor, torch's order (out, in, kernel...).
        offset: index of its first element in theta.
        kind: one of KINDS.
        group: name of the layer group it belongs to (partial gradients); "" where there are none.
    """

    name: str
    shape: tuple[int, ...]
    offset: int
    kind: str = "other"
    group: str = ""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UsageError(f"slot {self.name}: kind {self.kind!r} is none of {', '.join(KINDS)}")
        if any(d < 1 for d in self.shape) or self.offset < 0:
            raise UsageError(f"slot {self.name}: shape {self.shape} at {self.offset}: sizes start at 1, offsets at 0")

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def is_statistic(self) -> bool:
        """Is it a running statistic of batch normalisation? What moves it is an average of batches, and no gradient."""
        return self.kind == "norm" and self.name.rpartition(".")[2] in STATISTICS

    @property
    def span(self) -> slice:
        return slice(self.offset, self.offset + self.size)


@dataclass(frozen=True)
class Layout:
    """All slots of theta, in order, without gaps."""

    slots: tuple[Slot, ...]

    def __post_init__(self) -> None:
        end = 0
        for slot in self.slots:
            if slot.offset != end:
                raise UsageError(f"slot {slot.name} starts at {slot.offset}, the one before it ends at {end}")
            end += slot.size
        if len({slot.name for slot in self.slots}) != len(self.slots):
            raise UsageError("two slots of a layout have the same name")

    @property
    def size(self) -> int:
        """n, the number of parameters."""
        return self.slots[-1].offset + self.slots[-1].size if self.slots else 0

    def view(self, theta: Vector, slot: Slot) -> Vector:
        """The tensor of one slot, sharing theta's memory."""
        return theta[slot.span].reshape(slot.shape)


EMPTY_LAYOUT = Layout(())


def layout_of(*tensors: tuple[str, tuple[int, ...], str]) -> Layout:
    """A layout from (name, shape, kind) in order; offsets follow."""
    slots, offset = [], 0
    for name, shape, kind in tensors:
        slots.append(Slot(name, shape, offset, kind))
        offset += slots[-1].size
    return Layout(tuple(slots))


def length(x: Vector) -> float:
    """Euclidean norm, added up as float64: a piece of the vector at a time, so that no copy of all of it is made."""
    wide, total = np.empty(min(PIECE, x.size)), 0.0
    for piece in pieces(x.size):
        part = wide[: piece.stop - piece.start]
        part[...] = x[piece]
        total += float(part @ part)
    return sqrt(total)


def pieces(size: int) -> Iterator[slice]:
    """Parts of a vector of that size, PIECE numbers each."""
    return (slice(first, min(size, first + PIECE)) for first in range(0, size, PIECE))
