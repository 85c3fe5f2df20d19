"""Operators that only move elements: the adjoint moves them back."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from edge_sdk.models.ir.errors import UnsupportedPattern
from edge_sdk.models.ir.graph import OnnxGraph
from edge_sdk.models.ir.nodes import OnnxNode
from edge_sdk.models.ir.shapes import BatchDim, Dim, as_number, divide_exactly
from edge_sdk.models.rules.table import Adjoints, Want, rule, rule_of_all


@rule("Reshape", "Flatten", "Squeeze", "Unsqueeze")
def reshape(g: OnnxGraph, n: OnnxNode, gy: str, want: Want) -> Adjoints:
    return (g.reshape(gy, g.shape(n.inputs[0])),)


@rule("Transpose")
def transpose(g: OnnxGraph, n: OnnxNode, gy: str, want: Want) -> Adjoints:
    rank = g.rank(n.inputs[0])
    perm = n.attributes.get("perm") or list(range(rank))[::-1]
    return (g.transpose(gy, [int(p) for p in np.argsort(perm)]),)


@rule("Concat")
def concat(g: OnnxGraph, n: OnnxNode, gy: str, want: Want) -> Adjoints:
    axis = n.attributes["axis"] % g.rank(n.outputs[0])
    if isinstance(g.shape(n.outputs[0])[axis], BatchDim):
        return split_batch(g, n, gy, axis)
    out, start = [], 0
    for x, w in zip(n.inputs, want, strict=True):
        size = as_number(g.shape(x)[axis])
        out.append(g.slice(gy, axis, start, start + size) if w else None)
        start += size
    return out


def split_batch(g: OnnxGraph, n: OnnxNode, gy: str, axis: int) -> Adjoints:
    """The adjoints of parts that are put one after the other along the batch, as heads of attention may be."""
    sizes = [g.shape(x)[axis] for x in n.inputs]
    times = [s.times for s in sizes if isinstance(s, BatchDim)]  # the sum is a multiple of the batch, so all parts are
    whole = g.op("Shape", gy, start=axis, end=axis + 1, shape=(1,))
    samples = g.op("Div", whole, g.ints([sum(times)]), shape=(1,))
    each = g.op("Mul", samples, g.ints(times), shape=(len(times),))
    return g.ops("Split", gy, each, shapes=[g.shape(x) for x in n.inputs], axis=axis)


@rule_of_all("Split")
def split(g: OnnxGraph, n: OnnxNode, outs: Adjoints, want: Want) -> Adjoints:
    axis = n.attributes.get("axis", 0) % g.rank(n.inputs[0])
    parts = [gy or g.zeros(g.shape(o), like=o) for o, gy in zip(n.outputs, outs, strict=True)]
    return (g.concat(parts, axis),)


@rule("Slice")
def cut_out(g: OnnxGraph, n: OnnxNode, gy: str, want: Want) -> Adjoints:
    """The adjoint with zeros around, where a Slice has cut positions off; with a step, zeros between too."""
    x = n.inputs[0]
    shape = g.shape(x)
    for axis, start, end, step in read_bounds(g, n):
        size = shape[axis]
        if isinstance(size, BatchDim):
            raise UnsupportedPattern("Slice along the batch axis", n.where)
        index = range(*slice(start, end, step).indices(size))
        if len(index) != size or step != 1:
            gy = place(g, gy, axis, index, size)
    return (gy,)


def read_bounds(g: OnnxGraph, n: OnnxNode) -> list[tuple[int, int, int, int]]:
    """(axis, start, end, step) of each axis that a Slice cuts."""
    if any(i and i not in g.constants for i in n.inputs[1:]):
        raise UnsupportedPattern("Slice with computed bounds", n.where)
    values = [g.constants[i].tolist() if i else [] for i in n.inputs[1:]]
    starts, ends = values[:2]
    axes = values[2] if len(values) > 2 and values[2] else list(range(len(starts)))
    steps = values[3] if len(values) > 3 and values[3] else [1] * len(starts)
    rank = g.rank(n.inputs[0])
    return [(a % rank, s, e, t) for a, s, e, t in zip(axes, starts, ends, steps, strict=True)]


def place(g: OnnxGraph, v: str, axis: int, index: range, size: int) -> str:
    """`v` at the positions `index` of an axis of length `size`, zero elsewhere."""
    if index.step < 0:
        v, index = g.flip(v, [axis]), index[::-1]
    if index.step > 1:
        v = stretch(g, v, axis, index.step)
    used = (len(index) - 1) * index.step + 1
    rank = g.rank(v)
    before, after = [0] * rank, [0] * rank
    before[axis], after[axis] = index.start, size - index.start - used
    return g.pad(v, before, after)


def stretch(g: OnnxGraph, v: str, axis: int, step: int) -> str:
    """Put step - 1 zeros between neighbours along `axis`: a new axis is padded and merged, and the tail cut off."""
    shape = g.shape(v)
    length = as_number(shape[axis])
    apart = g.reshape(v, (*shape[: axis + 1], 1, *shape[axis + 1 :]))
    after = [0] * (len(shape) + 1)
    after[axis + 1] = step - 1
    merged = g.reshape(g.pad(apart, [0] * len(after), after), (*shape[:axis], length * step, *shape[axis + 1 :]))
    return g.slice(merged, axis, 0, (length - 1) * step + 1)


# mode of Pad -> the same in numpy; applied to positions it says which one each padded position copies
COPIES: dict[str, Callable[[np.ndarray, tuple[int, int]], np.ndarray]] = {
    "edge": lambda x, sizes: np.pad(x, sizes, mode="edge"),
    "reflect": lambda x, sizes: np.pad(x, sizes, mode="reflect"),
    "wrap": lambda x, sizes: np.pad(x, sizes, mode="wrap"),
}


@rule("Pad")
def pad(g: OnnxGraph, n: OnnxNode, gy: str, want: Want) -> Adjoints:
    """The adjoint of padding: zeros are cut off, copies are added to the positions that they came from."""
    x = n.inputs[0]
    shape, rank = g.shape(x), g.rank(x)
    mode = n.attributes.get("mode", "constant")
    before, after = read_pads(g, n, rank)
    for axis in range(rank):
        if before[axis] or after[axis]:
            if isinstance(shape[axis], BatchDim):
                raise UnsupportedPattern("Pad along the batch axis", n.where)
            size = as_number(shape[axis])
            gy = unpad(g, gy, axis, before[axis], after[axis], size, mode)
    return (gy,)


def read_pads(g: OnnxGraph, n: OnnxNode, rank: int) -> tuple[list[int], list[int]]:
    """The padding before and after each axis."""
    if n.inputs[1] not in g.constants or (len(n.inputs) > 3 and n.inputs[3]):
        raise UnsupportedPattern("Pad with computed sizes or axes", n.where)
    both = g.constants[n.inputs[1]].tolist()
    return both[:rank], both[rank:]


def unpad(g: OnnxGraph, gy: str, axis: int, before: int, after: int, size: int, mode: str) -> str:
    """The adjoint before padding one axis of length `size`; negative padding had cut positions off."""
    if mode == "constant" or min(before, after) < 0:
        lo = max(before, 0)
        inner = g.slice(gy, axis, lo, lo + size + min(before, 0) + min(after, 0))
        cut = [[0] * g.rank(gy) for _ in range(2)]
        cut[0][axis], cut[1][axis] = max(-before, 0), max(-after, 0)
        return g.pad(inner, *cut)
    source = COPIES[mode](np.arange(size), (before, after))
    matrix = np.zeros((before + size + after, size))
    matrix[np.arange(len(source)), source] = 1
    return multiply_along(g, gy, axis, g.constant(matrix))


def multiply_along(g: OnnxGraph, v: str, axis: int, matrix: str) -> str:
    """Multiply `v` by a matrix along one axis."""
    rank = g.rank(v)
    order = [i for i in range(rank) if i != axis] + [axis]
    out = g.matmul(g.transpose(v, order), matrix)
    return g.transpose(out, [int(p) for p in np.argsort(order)])


@rule("Expand")
def expand(g: OnnxGraph, n: OnnxNode, gy: str, want: Want) -> Adjoints:
    return (g.unbroadcast(gy, g.shape(n.inputs[0])),)


@rule("Tile")
def tile(g: OnnxGraph, n: OnnxNode, gy: str, want: Want) -> Adjoints:
    """Tile repeats whole axes, so its adjoint is the sum over the copies; their number may be the batch."""
    shape, made = g.shape(n.inputs[0]), g.shape(n.outputs[0])
    apart: list[Dim] = []
    for size, whole in zip(shape, made, strict=True):
        repeats = divide_exactly(whole, size)
        if repeats is None:
            raise UnsupportedPattern(f"Tile from {shape} to {made}", n.where)
        apart += [repeats, size]
    return (g.reshape(g.sum(g.reshape(gy, apart), range(0, 2 * len(shape), 2)), shape),)


@rule("DepthToSpace")
def depth_to_space(g: OnnxGraph, n: OnnxNode, gy: str, want: Want) -> Adjoints:
    """Pixel shuffle moves channels into blocks of pixels, its adjoint moves them back."""
    shape, size = g.shape(n.inputs[0]), int(n.attributes["blocksize"])
    batch, channels, height, width = shape
    apart = g.reshape(gy, (batch, as_number(channels) // size**2, height, size, width, size))
    columns_last = n.attributes.get("mode", "DCR") == "CRD"
    return (g.reshape(g.transpose(apart, [0, 1, 3, 5, 2, 4] if columns_last else [0, 3, 5, 1, 2, 4]), shape),)


@rule("Trilu")
def triangle(g: OnnxGraph, n: OnnxNode, gy: str, want: Want) -> Adjoints:
    """The adjoint of the triangle that is kept, and zeros in the other."""
    upper = n.attributes.get("upper", 1)
    return (g.op("Trilu", gy, *n.inputs[1:], upper=upper, shape=g.shape(n.inputs[0])),)
