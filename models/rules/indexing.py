"""Gather: fixed entries of an axis, and rows of an embedding table."""

from __future__ import annotations

import numpy as np

from edge_sdk.models.ir.errors import UnsupportedPattern
from edge_sdk.models.ir.graph import OnnxGraph
from edge_sdk.models.ir.nodes import OnnxNode
from edge_sdk.models.ir.shapes import BatchDim, Shape, as_number, multiply
from edge_sdk.models.rules.shaping import multiply_along, place
from edge_sdk.models.rules.table import Adjoints, Want, rule


@rule("Gather")
def gather(g: OnnxGraph, n: OnnxNode, gy: str, want: Want) -> Adjoints:
    x, index = n.inputs
    gy = drop_padding(g, n, gy, index)
    shape = g.shape(x)
    axis = n.attributes.get("axis", 0) % len(shape)
    if isinstance(shape[axis], BatchDim):
        raise UnsupportedPattern("Gather along the batch axis", n.where, "samples must not depend on each other")
    if index in g.constants:
        return (put_back(g, gy, axis, shape, g.constants[index]),)
    if axis or any(isinstance(d, BatchDim) for d in shape):
        raise UnsupportedPattern(
            "Gather with computed indices inside a sample", n.where, "use an Embedding, or a product"
        )
    return (scatter_rows(g, gy, shape, index),)


def drop_padding(g: OnnxGraph, n: OnnxNode, gy: str, index: str) -> str:
    """gy without the rows that were read at an embedding's padding index: torch never trains that row of the table."""
    arguments = n.call.arguments[2:] if n.call and n.call.name == "embedding" else ()
    if "True" in arguments[1:]:
        raise UnsupportedPattern(
            "an Embedding with scale_grad_by_freq or sparse gradients", n.where, "leave these options at False"
        )
    if not arguments or int(arguments[0]) < 0:
        return gy
    padding = g.constant(np.int64(int(arguments[0])))
    same = g.reshape(g.binary("Equal", index, padding), (*g.shape(index), 1))
    return g.select(same, g.scalar(0), gy)


def put_back(g: OnnxGraph, gy: str, axis: int, shape: Shape, index: np.ndarray) -> str:
    """Put the adjoint of fixed entries back: one by zeros around it, several by a matrix of ones and zeros."""
    size = as_number(shape[axis])
    if index.ndim == 0:
        k = int(index) % size
        return place(g, g.reshape(gy, (*shape[:axis], 1, *shape[axis + 1 :])), axis, range(k, k + 1), size)
    merged = g.reshape(gy, (*shape[:axis], index.size, *shape[axis + 1 :]))
    if index.size * size > LARGEST_MATRIX:
        return scatter_entries(g, merged, axis, shape, index)
    matrix = np.zeros((index.size, size))
    matrix[np.arange(index.size), index.reshape(-1) % size] = 1
    return multiply_along(g, merged, axis, g.constant(matrix))


LARGEST_MATRIX = 1 << 16
"""Entries of a matrix of ones and zeros: a larger one is slower than a scatter, and makes every graph larger."""


def scatter_entries(g: OnnxGraph, gy: str, axis: int, shape: Shape, index: np.ndarray) -> str:
    """Adjoints (..., indices, ...) added at the entries of one axis that they came from."""
    order = [axis, *(i for i in range(len(shape)) if i != axis)]
    turned, rows = tuple(shape[i] for i in order), g.transpose(gy, order)
    zeros = g.zeros(turned, like=rows) if all(isinstance(d, int) for d in turned) else zeros_of_rows(g, rows, turned)
    places = g.constant(index.reshape(-1, 1).astype(np.int64) % as_number(shape[axis]))
    made = g.op("ScatterND", zeros, places, rows, reduction="add", shape=turned)
    return g.transpose(made, [int(p) for p in np.argsort(order)])


def zeros_of_rows(g: OnnxGraph, rows: str, shape: Shape) -> str:
    """Zeros of a shape that differs from that of `rows` in the first axis only."""
    rest = g.op("Shape", rows, start=1, shape=(len(shape) - 1,))
    sizes = g.op("Concat", g.ints([as_number(shape[0])]), rest, axis=0, shape=(len(shape),))
    return g.op("ConstantOfShape", sizes, shape=shape)


@rule("GatherElements")
def gather_elements(g: OnnxGraph, n: OnnxNode, gy: str, want: Want) -> Adjoints:
    """Each adjoint is added where its element came from."""
    x, index = n.inputs
    axis = n.attributes.get("axis", 0) % g.rank(x)
    if isinstance(g.shape(x)[axis], BatchDim):
        raise UnsupportedPattern("GatherElements along the batch axis", n.where, "samples must be independent")
    zeros = g.zeros(g.shape(x), like=x)
    return (g.op("ScatterElements", zeros, index, gy, axis=axis, reduction="add", shape=g.shape(x)),)


def name_call(n: OnnxNode) -> str:
    """The torch function that a node was written for, or its operator."""
    return f"{n.call.name} (written as {n.op})" if n.call else n.op


@rule("GatherND")
def gather_nd(g: OnnxGraph, n: OnnxNode, gy: str, want: Want) -> Adjoints:
    """Each adjoint is added where its slice came from; with batch_dims the leading axes are of data and index alike."""
    x, index = n.inputs
    first = n.attributes.get("batch_dims", 0)
    depth = g.rank(index) and g.shape(index)[-1]
    if first or any(isinstance(d, BatchDim) for d in g.shape(x)[: as_number(depth)]):
        what = f"{name_call(n)} over the batch axis, or of places that depend on values"
        raise UnsupportedPattern(what, n.where, "index axes of a sample only, and multiply by masks")
    zeros = g.zeros(g.shape(x), like=x)
    return (g.op("ScatterND", zeros, index, gy, reduction="add", shape=g.shape(x)),)


@rule("ScatterND")
def scatter_nd(g: OnnxGraph, n: OnnxNode, gy: str, want: Want) -> Adjoints:
    """What is put into places has their adjoints; what was there before has none, unless the two are added up."""
    x, index, values = n.inputs
    how, depth = n.attributes.get("reduction", "none"), as_number(g.shape(index)[-1])
    if how not in ("none", "add") or any(isinstance(d, BatchDim) for d in g.shape(x)[:depth]):
        what = f"{name_call(n)} over the batch axis, or by {how}"
        raise UnsupportedPattern(
            what, n.where, "index axes of a sample only, and set or add; where(mask, new, old) is for masks"
        )
    zeros = g.zeros(g.shape(values), like=values)
    rest = gy if how == "add" else g.op("ScatterND", gy, index, zeros, shape=g.shape(x))
    return rest, None, g.op("GatherND", gy, index, batch_dims=0, shape=g.shape(values))


@rule("ScatterElements")
def scatter_elements(g: OnnxGraph, n: OnnxNode, gy: str, want: Want) -> Adjoints:
    """What was written takes the adjoints from where it lies; what it was written over gets none there."""
    x, index, updates = n.inputs
    axis, how = n.attributes.get("axis", 0) % g.rank(x), n.attributes.get("reduction", "none")
    if isinstance(g.shape(x)[axis], BatchDim) or how not in ("none", "add"):
        raise UnsupportedPattern(f"a scatter along the batch axis, or by {how}", n.where, "use scatter or scatter_add")
    zeros = g.zeros(g.shape(updates), like=updates)
    rest = gy if how == "add" else g.op("ScatterElements", gy, index, zeros, axis=axis, shape=g.shape(x))
    return rest, None, g.op("GatherElements", gy, index, axis=axis, shape=g.shape(updates))


def scatter_rows(g: OnnxGraph, gy: str, shape: Shape, index: str) -> str:
    """Rows of a table that data chose: each row collects the adjoints of all who read it."""
    rows = multiply(g.shape(index))
    flat_index = g.reshape(index, (rows, 1))
    flat = g.reshape(gy, (rows, *shape[1:]))
    return g.op("ScatterND", g.zeros(shape), flat_index, flat, reduction="add", shape=shape)
