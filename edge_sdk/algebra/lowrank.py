"""Layers as matrices, and a model packed into their factors U V^T.

The matrix form is "scheme 2" of Idelbayev & Carreira-Perpinan (2020), as FedSLR takes it: a convolution (o, i, kh, kw)
is the matrix (o*kh) x (i*kw), so that its factors are two convolutions, one along each kernel axis. Biases and the
scale and shift of norms have no matrix form: they are never regularised and travel as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from edge_sdk.algebra.arrays import Rank, Values
from edge_sdk.algebra.prox import Svd
from edge_sdk.algebra.vectors import Layout, Slot, Vector

MATRIX_KINDS = frozenset({"conv", "linear", "recurrent", "embedding"})
DENSE = -1

Factors = tuple[Vector, Vector]
"""(U, V) with matrix = U @ V.T: shapes (rows, r) and (columns, r)."""


@dataclass(frozen=True)
class Packed:
    """A model as it travels: factors where they are smaller, plain tensors elsewhere.

    Attributes:
        ranks: one per layer with a matrix form, in layout order: its rank (0: the layer is zero), or DENSE.
        values: for each of these layers U, then V, or the tensor; after them all other tensors in layout order.
    """

    ranks: tuple[Rank, ...]
    values: Values

    def check(self, layout: Layout) -> None:
        """Raises ValueError, in a sentence, unless this is a model of that layout."""
        check_ranks(layout, self.ranks)
        if self.values.shape != (floats(layout, self.ranks),):
            expected = floats(layout, self.ranks)
            raise ValueError(f"values of shape {self.values.shape}, these ranks take ({expected},)")


def check_ranks(layout: Layout, ranks: tuple[int, ...]) -> None:
    """Raises ValueError, in a sentence, unless a model of that layout can have these ranks."""
    shapes = [matrix_shape(slot) for slot in matrix_slots(layout)]
    if len(ranks) != len(shapes):
        raise ValueError(f"{len(ranks)} ranks, the model has {len(shapes)} layers with a matrix form")
    for (a, b), rank in zip(shapes, ranks, strict=True):
        if not DENSE <= rank <= min(a, b):
            raise ValueError(f"rank {rank} of a {a} x {b} layer, it lies between 0 and {min(a, b)} (-1: dense)")


# Matrix form ----------------------------------------------------------------------------------------------------
def has_matrix(slot: Slot) -> bool:
    return slot.kind in MATRIX_KINDS and len(slot.shape) >= 2


def matrix_slots(layout: Layout) -> list[Slot]:
    return [slot for slot in layout.slots if has_matrix(slot)]


def other_slots(layout: Layout) -> list[Slot]:
    return [slot for slot in layout.slots if not has_matrix(slot)]


def swaps(slot: Slot) -> bool:
    """True if the first kernel axis goes to the rows. A 1-D convolution has kernel height 1: nothing to move."""
    return slot.kind == "conv" and len(slot.shape) >= 4


def matrix_shape(slot: Slot) -> tuple[int, int]:
    """(rows, columns) of a layer's matrix form."""
    rows = slot.shape[0] * (slot.shape[2] if swaps(slot) else 1)
    return rows, slot.size // rows


def matrix(slot: Slot, tensor: Vector) -> Vector:
    """pi: (o, i, kh, kw) -> (o*kh, i*kw); (o, i, k) -> (o, i*k); (o, i) as it is."""
    moved = tensor.swapaxes(1, 2) if swaps(slot) else tensor
    return moved.reshape(matrix_shape(slot))


def tensor(slot: Slot, matrix: Vector) -> Vector:
    """The inverse of pi."""
    if not swaps(slot):
        return matrix.reshape(slot.shape)
    out, inner, first, *rest = slot.shape
    return matrix.reshape(out, first, inner, *rest).swapaxes(1, 2)


# Packing --------------------------------------------------------------------------------------------------------
def balanced(svd: Svd) -> Factors:
    """U = a sqrt(s), V = b sqrt(s): both of the same size, so neither loses digits to the other."""
    a, s, b = svd
    return a * np.sqrt(s), b * np.sqrt(s)


def pays(slot: Slot, rank: int) -> bool:
    """True if factors of this rank have fewer numbers than the tensor."""
    return rank * sum(matrix_shape(slot)) < slot.size


def dense(layout: Layout, theta: Vector) -> Packed:
    """The model without factors."""
    slots = matrix_slots(layout)
    parts = [theta[slot.span] for slot in slots + other_slots(layout)]
    return Packed((DENSE,) * len(slots), joined(parts, theta))


def pack(layout: Layout, theta: Vector, factors: Mapping[str, Factors]) -> Packed:
    """The model with every layer in its smaller form.

    Args:
        theta: (n,). Used for everything that `factors` does not name.
        factors: layer name -> its factors. Where they do not pay, the layer is multiplied out.
    """
    ranks, parts = [], []
    for slot in matrix_slots(layout):
        u, v = factors.get(slot.name, (None, None))
        if u is None or v is None:
            rank, part = DENSE, [theta[slot.span]]
        elif pays(slot, u.shape[1]):
            rank, part = u.shape[1], [u.ravel(), v.ravel()]
        else:
            rank, part = DENSE, [tensor(slot, product(u, v)).ravel()]
        ranks.append(rank)
        parts += part
    parts += [theta[slot.span] for slot in other_slots(layout)]
    return Packed(tuple(ranks), joined(parts, theta))


def unpack(layout: Layout, packed: Packed) -> Vector:
    """theta (n,) as every receiver, and the sender, rebuilds it."""
    theta = np.empty(layout.size, packed.values.dtype)
    if all(rank == DENSE for rank in packed.ranks):
        for span, where in dense_spans(layout):
            theta[span] = packed.values[where]
        return theta
    for slot, rank, part in parts_of(layout, packed):
        if rank == DENSE:
            theta[slot.span] = part
        else:
            rows, columns = matrix_shape(slot)
            u, v = part[: rows * rank].reshape(rows, rank), part[rows * rank :].reshape(columns, rank)
            layout.view(theta, slot)[...] = tensor(slot, product(u, v))
    return theta


SHARED = "_unpacked"
"""Attribute of a packed model, beside its fields, that keeps what `unpack_shared` has made of it."""


def unpack_shared(layout: Layout, packed: Packed) -> Vector:
    """theta (n,), which nobody may write to: made once of a message, however many of a simulation's clients read it."""
    kept = vars(packed).get(SHARED)
    if kept is None or kept[0] is not layout:
        theta = unpack(layout, packed)
        theta.flags.writeable = False
        kept = vars(packed)[SHARED] = layout, theta
    found: Vector = kept[1]
    return found


def parts_of(layout: Layout, packed: Packed) -> Iterator[tuple[Slot, int, Vector]]:
    """(slot, rank, its part of the values), in the order of the values."""
    slots, others, start = matrix_slots(layout), other_slots(layout), 0
    for slot, rank in zip(slots + others, packed.ranks + (DENSE,) * len(others), strict=True):
        end = start + part_size(slot, rank)
        yield slot, rank, packed.values[start:end]
        start = end


SPANS = "_dense_spans"
"""Attribute of a layout, beside its fields, that keeps its spans: a simulated client takes a third as long as them."""


def dense_spans(layout: Layout) -> list[tuple[slice, slice]]:
    """(span in theta, span in the values) of each slot, of a model without factors."""
    kept = vars(layout)
    if SPANS not in kept:
        slots = matrix_slots(layout) + other_slots(layout)
        ends = np.cumsum([0, *(slot.size for slot in slots)]).tolist()
        kept[SPANS] = [(slot.span, slice(ends[i], ends[i + 1])) for i, slot in enumerate(slots)]
    found: list[tuple[slice, slice]] = kept[SPANS]
    return found


def product(u: Vector, v: Vector) -> Vector:
    """U V^T, summed in float64 and rounded once: tiers with different BLAS then agree on the model, and so on gamma."""
    exact = u.astype(np.float64) @ v.T.astype(np.float64)
    return exact.astype(u.dtype)


def joined(parts: list[Vector], like: Vector) -> Vector:
    return np.concatenate([part.astype(like.dtype, copy=False) for part in parts]) if parts else like[:0].copy()


# Counting -------------------------------------------------------------------------------------------------------
def part_size(slot: Slot, rank: int) -> int:
    return slot.size if rank == DENSE else rank * sum(matrix_shape(slot))


def floats(layout: Layout, ranks: tuple[int, ...]) -> int:
    """Number of floats in a model of these ranks: FedSLR's parameter count, and what its down-link carries."""
    layers = sum(part_size(slot, rank) for slot, rank in zip(matrix_slots(layout), ranks, strict=True))
    return layers + sum(slot.size for slot in other_slots(layout))


def ranks(layout: Layout, packed: Packed) -> dict[str, int]:
    """Layer name -> its rank, counted numerically where the layer travelled dense."""
    found = {}
    for slot, rank, part in parts_of(layout, packed):
        if has_matrix(slot):
            counted = rank if rank != DENSE else np.linalg.matrix_rank(matrix(slot, part.reshape(slot.shape)))
            found[slot.name] = int(counted)
    return found
