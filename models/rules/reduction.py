"""Sums, means, maxima and norms along axes; softmax."""

from __future__ import annotations

from math import prod

import numpy as np

from edge_sdk.models.ir.errors import UnsupportedPattern
from edge_sdk.models.ir.graph import OnnxGraph
from edge_sdk.models.ir.nodes import OnnxNode
from edge_sdk.models.ir.shapes import BatchDim, Shape, as_numbers
from edge_sdk.models.rules.table import Adjoints, Want, rule


def read_axes(g: OnnxGraph, n: OnnxNode) -> list[int]:
    """The axes that a node reduces, as sorted non-negative numbers."""
    rank = g.rank(n.inputs[0])
    if len(n.inputs) > 1 and n.inputs[1]:
        if n.inputs[1] not in g.constants:
            raise UnsupportedPattern(f"{n.op} with computed axes", n.where)
        axes = g.constants[n.inputs[1]].tolist()
    else:
        axes = n.attributes.get("axes", [])
    if not axes:
        axes = [] if n.attributes.get("noop_with_empty_axes", 0) else list(range(rank))
    return sorted(int(a) % rank for a in axes)


def keep_axes(shape: Shape, axes: list[int]) -> Shape:
    """The shape with reduced axes of size 1."""
    return tuple(1 if i in axes else d for i, d in enumerate(shape))


@rule("ReduceSum")
def reduce_sum(g: OnnxGraph, n: OnnxNode, gy: str, want: Want) -> Adjoints:
    x = n.inputs[0]
    return (g.expand_like(g.reshape(gy, keep_axes(g.shape(x), read_axes(g, n))), x),)


@rule("ReduceMean")
def reduce_mean(g: OnnxGraph, n: OnnxNode, gy: str, want: Want) -> Adjoints:
    x, axes = n.inputs[0], read_axes(g, n)
    shape = g.shape(x)
    count = prod(as_numbers([shape[a] for a in axes], "a mean", n.where))
    return (g.expand_like(g.reshape(g.scale(gy, 1 / count), keep_axes(shape, axes)), x),)


@rule("ReduceMax", "ReduceMin")
def reduce_extremum(g: OnnxGraph, n: OnnxNode, gy: str, want: Want) -> Adjoints:
    """The gradient goes to the largest or smallest element.

    Equal ones share it evenly, as in torch's amax and max(); the first one gets all of it in functions that also
    return an index: max(dim), min(dim) and adaptive max pooling.
    """
    x, axes = n.inputs[0], read_axes(g, n)
    if n.call and (n.call.overload == "dim" or "max_pool" in n.call.name):
        return (give_to_first_along(g, x, gy, axes, "ArgMax" if n.op == "ReduceMax" else "ArgMin", n.where),)
    shape = keep_axes(g.shape(x), axes)
    hits = g.compare("Equal", x, g.reshape(n.outputs[0], shape))
    share = g.div(g.reshape(gy, shape), g.sum(hits, axes, keep=True))
    return (g.mul(hits, share),)


def give_to_first_along(g: OnnxGraph, x: str, gy: str, axes: list[int], kind: str, where: str) -> str:
    """gy given to the first extreme element along neighbouring axes, which count as one, row by row."""
    shape, first, last = g.shape(x), axes[0], axes[-1] + 1
    if axes != list(range(first, last)):
        raise UnsupportedPattern(f"an extremum with its index along axes {axes}", where, "reduce neighbouring axes")
    size = prod(as_numbers(shape[first:last], "an extremum with its index", where))
    merged, single = (*shape[:first], size, *shape[last:]), (*shape[:first], 1, *shape[last:])
    index = g.op(kind, g.reshape(x, merged), axis=first, keepdims=1, select_last_index=0, shape=single)
    places = g.constant(np.arange(size).reshape(size, *(1 for _ in shape[last:])))
    hits = g.as_float(g.op("Equal", index, places, shape=merged))
    return g.reshape(g.mul(hits, g.reshape(gy, single)), shape)


@rule("ReduceL2")
def reduce_l2(g: OnnxGraph, n: OnnxNode, gy: str, want: Want) -> Adjoints:
    """The slope is x / |x|, and 0 at the origin, as in torch."""
    x, axes = n.inputs[0], read_axes(g, n)
    shape = keep_axes(g.shape(x), axes)
    norm = g.reshape(n.outputs[0], shape)
    zero = g.compare("Equal", norm, g.scalar(0))
    safe = g.div(g.sub(g.scalar(1), zero), g.add(norm, zero))
    return (g.mul(x, g.mul(g.reshape(gy, shape), safe)),)


@rule("ReduceSumSquare")
def reduce_sum_square(g: OnnxGraph, n: OnnxNode, gy: str, want: Want) -> Adjoints:
    x, axes = n.inputs[0], read_axes(g, n)
    return (g.mul(g.scale(x, 2), g.reshape(gy, keep_axes(g.shape(x), axes))),)


@rule("ReduceLogSumExp")
def reduce_log_sum_exp(g: OnnxGraph, n: OnnxNode, gy: str, want: Want) -> Adjoints:
    """The slope is e^(x - y), the softmax of x."""
    x = n.inputs[0]
    shape = keep_axes(g.shape(x), read_axes(g, n))
    share = g.unary("Exp", g.sub(x, g.reshape(n.outputs[0], shape)))
    return (g.mul(g.reshape(gy, shape), share),)


@rule("ReduceL1")
def reduce_l1(g: OnnxGraph, n: OnnxNode, gy: str, want: Want) -> Adjoints:
    x, axes = n.inputs[0], read_axes(g, n)
    return (g.mul(g.unary("Sign", x), g.reshape(gy, keep_axes(g.shape(x), axes))),)


@rule("ReduceProd")
def reduce_prod(g: OnnxGraph, n: OnnxNode, gy: str, want: Want) -> Adjoints:
    """The product of all others: y / x, or what is left without the zero where there is exactly one."""
    x, axes = n.inputs[0], read_axes(g, n)
    as_numbers([g.shape(x)[a] for a in axes], "a product", n.where)
    shape = keep_axes(g.shape(x), axes)
    zero = g.binary("Equal", x, g.scalar(0))
    safe = g.select(zero, g.scalar(1), x)
    whole = g.op("ReduceProd", safe, g.ints(axes), keepdims=1, shape=shape)
    zeros = g.sum(g.as_float(zero), axes, keep=True)
    alone, none = (g.compare("Equal", zeros, g.scalar(count)) for count in (1, 0))
    others = g.select(zero, g.mul(whole, alone), g.div(g.mul(whole, none), safe))
    return (g.mul(g.reshape(gy, shape), others),)


@rule("CumSum")
def cumulative_sum(g: OnnxGraph, n: OnnxNode, gy: str, want: Want) -> Adjoints:
    """The adjoint is the cumulative sum from the other end."""
    x, axis = n.inputs
    if axis not in g.constants or isinstance(g.shape(x)[int(g.constants[axis])], BatchDim):
        raise UnsupportedPattern("CumSum along the batch axis", n.where, "samples must not depend on each other")
    reverse = 1 - n.attributes.get("reverse", 0)
    made = g.op("CumSum", gy, axis, reverse=reverse, exclusive=n.attributes.get("exclusive", 0), shape=g.shape(x))
    return (made,)


@rule("TopK")
def top_k(g: OnnxGraph, n: OnnxNode, gy: str, want: Want) -> Adjoints:
    """The gradient goes to the elements that were chosen, wherever they came to lie."""
    x, axis = n.inputs[0], n.attributes.get("axis", -1) % g.rank(n.inputs[0])
    if isinstance(g.shape(x)[axis], BatchDim):
        raise UnsupportedPattern("TopK along the batch axis", n.where, "samples must not depend on each other")
    zeros = g.zeros(g.shape(x), like=x)
    return (g.op("ScatterElements", zeros, n.outputs[1], gy, axis=axis, shape=g.shape(x)),)


@rule("Softmax")
def softmax(g: OnnxGraph, n: OnnxNode, gy: str, want: Want) -> Adjoints:
    """The adjoint y (gy - sum(gy y))."""
    y, axis = n.outputs[0], n.attributes.get("axis", -1)
    t = g.mul(gy, y)
    return (g.sub(t, g.mul(y, g.sum(t, [axis], keep=True))),)


@rule("LogSoftmax")
def log_softmax(g: OnnxGraph, n: OnnxNode, gy: str, want: Want) -> Adjoints:
    """The adjoint gy - softmax(x) sum(gy)."""
    y, axis = n.outputs[0], n.attributes.get("axis", -1)
    return (g.sub(gy, g.mul(g.unary("Exp", y), g.sum(gy, [axis], keep=True))),)
