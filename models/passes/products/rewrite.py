"""Rewrites of the forward graph: patterns that are differentiated as one piece, or run faster in another form."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import prod

import numpy as np

from edge_sdk.models.ir.graph import CustomGradient, OnnxGraph
from edge_sdk.models.ir.nodes import OnnxNode
from edge_sdk.models.ir.shapes import BatchDim, as_numbers, reshape_sizes
from edge_sdk.models.passes.products.arrange import arrange
from edge_sdk.models.passes.products.attention import fuse_attention
from edge_sdk.models.rules.normalise import write_group_norm_adjoints


def rewrite(g: OnnxGraph, keep: Collection[str]) -> None:
    """Apply all rewrites, in place; the values `keep` keep their names."""
    arrange(g, keep, under=True)
    fuse_attention(g, keep)
    use_layer_norm(g)
    split_instance_norms(g)
    fuse_group_norms(g)


def use_layer_norm(g: OnnxGraph) -> None:
    """Replace InstanceNormalization without a learned scale (part of an exported GroupNorm) by LayerNormalization.

    LayerNormalization's kernel also returns the mean and 1/std, which the backward pass needs.
    """
    for n in g.nodes:
        if n.op == "InstanceNormalization" and is_unit(g, n) and g.rank(n.inputs[0]) == 3:
            size = g.shape(n.inputs[0])[2]
            n.op, n.inputs = "LayerNormalization", [n.inputs[0], g.constant(np.ones(size))]
            n.attributes = {"axis": 2, "epsilon": n.attributes.get("epsilon", 1e-5)}


def split_instance_norms(g: OnnxGraph) -> None:
    """Replace what is left of InstanceNormalization by LayerNormalization, and a scale and shift per channel, in place.

    The two kernels differ in rounding: of a channel of equal values (a black image) the first leaves up to 2e-3, times
    1/std = 316, the second nothing.
    """
    for n in g.take_nodes():
        if n.op != "InstanceNormalization":
            g.put_back(n)
            continue
        x, scale, shift = n.inputs
        shape, unit = g.shape(x), is_unit(g, n)
        sizes, g.where = as_numbers(shape[1:], n.op, n.where), n.where
        flat, ends = (shape[0], sizes[0], prod(sizes[1:])), (sizes[0], *(1 for _ in sizes[1:]))
        rows = g.op("Reshape", x, g.ints(reshape_sizes(flat)), shape=flat)  # also where it changes nothing: a mark
        epsilon = n.attributes.get("epsilon", 1e-5)
        ones = g.constant(np.ones(flat[2]))
        xhat = g.op("LayerNormalization", rows, ones, axis=2, epsilon=epsilon, shape=flat)
        sizes_back = g.ints(reshape_sizes(shape))
        if unit:
            g.op("Reshape", xhat, sizes_back, shape=shape, output=n.outputs[0])
            continue
        scaled = g.mul(g.op("Reshape", xhat, sizes_back, shape=shape), g.reshape(scale, ends))
        g.op("Add", scaled, g.reshape(shift, ends), shape=shape, output=n.outputs[0])
    g.where = ""


def is_unit(g: OnnxGraph, n: OnnxNode) -> bool:
    """True if a norm has scale 1 and shift 0 everywhere."""
    scale, shift = (g.constants.get(i) for i in n.inputs[1:])
    return scale is not None and shift is not None and bool((scale == 1).all() and (shift == 0).all())


def fuse_group_norms(g: OnnxGraph) -> None:
    """Differentiate Reshape, LayerNormalization, Reshape, Mul, Add with a scale and shift per channel as one piece.

    The affine part becomes a BatchNormalization with mean 0 and variance 1: one pass over the data instead of two.
    """
    users: dict[str, list[OnnxNode]] = {}
    for n in g.nodes:
        for i in n.inputs:
            users.setdefault(i, []).append(n)
    producers = {o: n for n in g.nodes for o in n.outputs}
    for n in list(g.nodes):
        found = n.op == "LayerNormalization" and follow_chain(users, n, ["Reshape", "Mul", "Add"])
        if found and producers.get(n.inputs[0], n).op == "Reshape":
            fuse_group_norm(g, n, producers[n.inputs[0]], *found)


def follow_chain(users: dict[str, list[OnnxNode]], n: OnnxNode, ops: Sequence[str]) -> list[OnnxNode]:
    """The chain of nodes with these operators after `n`, each the only reader of the one before; [] if none."""
    chain = []
    for op in ops:
        after = users.get(n.outputs[0], [])
        if len(after) != 1 or after[0].op != op or after[0].inputs[0] != n.outputs[0]:
            return []
        n = after[0]
        chain.append(n)
    return chain


def fuse_group_norm(
    g: OnnxGraph, norm: OnnxNode, split: OnnxNode, merge: OnnxNode, scale: OnnxNode, shift: OnnxNode
) -> None:
    x, y = split.inputs[0], shift.outputs[0]
    shape = g.shape(x)
    channels, groups = g.sample_shape(x)[0], g.sample_shape(norm.inputs[0])[0]
    per_channel = (channels, *(1 for _ in shape[2:]))
    values = (scale.inputs[1], shift.inputs[1])
    fits = g.shape(y) == shape and isinstance(shape[0], BatchDim) and channels % groups == 0
    if not fits or any(g.shape(v) not in (per_channel, (1, *per_channel)) for v in values):
        return
    norm.outputs = [norm.outputs[0], g.new_name("mean"), g.new_name("rstd")]
    g.shapes[norm.outputs[1]] = g.shapes[norm.outputs[2]] = (shape[0], groups, 1)
    xhat, rstd = merge.outputs[0], norm.outputs[2]
    at = g.nodes.index(scale)
    after = g.nodes[at + 1 :]
    del g.nodes[at:]
    g.where = norm.where
    # scale and shift may be made after the place of the Mul: the nodes that make them move up
    early = [n for n in after if n is not shift and set(n.outputs) & set(values)]
    g.nodes += early
    gamma, beta = (g.reshape(v, (channels,)) for v in values)
    zero, one = g.constant(np.zeros(channels)), g.constant(np.ones(channels))
    g.op("BatchNormalization", xhat, gamma, beta, zero, one, epsilon=0.0, shape=shape, output=y)
    g.nodes += [n for n in after if n is not shift and n not in early]

    def backward(g: OnnxGraph, gy: str, want: Sequence[bool]) -> list[str]:
        gx, *affine = write_group_norm_adjoints(g, gy, xhat, rstd, gamma, groups)
        return [gx, *(g.reshape(a, g.shape(v)) for a, v in zip(affine, values, strict=True))]

    g.custom_gradients[y] = CustomGradient((x, *values), backward)
