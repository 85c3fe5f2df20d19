"""Places that each sample chooses for itself, as in `z[torch.arange(len(z)), last]`, written as gathers and scatters.

The exporter would write an index over the batch axis, of which nobody can see that each sample only reads itself. Here
the other indices become one place along the joined axes that they index: of z (batch, heads, length, width) with
indices (batch, 1, 1), (1, heads, 1) and (batch, heads, few) one of heads * length places.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

from edge_sdk.models.frontend.tracing.batch_sizes import insert_call

aten = torch.ops.aten
READ = (aten.index.Tensor,)
WRITTEN = (aten.index_put.default,)


def gather_places(program: torch.export.ExportedProgram) -> None:
    """Write such indices as gathers and scatters, in place. Negative places count from the end, as they did."""
    graph = program.graph
    for node in [n for n in graph.nodes if n.target in (*READ, *WRITTEN)]:
        source, indices = node.args[:2]
        if not picks_own(source, indices):
            continue
        if len(indices) == 1:  # every sample, whole
            node.replace_all_uses_with(source if node.target in READ else replace_all(graph, node, source))
            graph.erase_node(node)
            continue
        sizes, count = list(source.meta["val"].shape[1:]), len(indices) - 1
        chosen = join_places(graph, node, indices, sizes)
        found, rest = tuple(chosen.meta["val"].shape[1:]), sizes[count:]
        flat = insert_call(graph, node, aten.reshape.default, source, [-1, math.prod(sizes[:count]), *rest])
        places = insert_call(graph, node, aten.reshape.default, chosen, [-1, math.prod(found), *[1] * len(rest)])
        places = insert_call(graph, node, aten.expand.default, places, [-1, -1, *rest])
        if node.target in READ:
            made = insert_call(graph, node, aten.gather.default, flat, 1, places)
            made = insert_call(graph, node, aten.reshape.default, made, [-1, *found, *rest])
        else:
            made = put_values(graph, node, flat, places, [*found, *rest])
            made = insert_call(graph, node, aten.reshape.default, made, [-1, *sizes])
        node.replace_all_uses_with(made)
        graph.erase_node(node)


def replace_all(graph: Graph, node: Node, source: Node) -> Node:
    """What is set in, or added to, all places of a source."""
    adds = len(node.args) > 3 and node.args[3]
    old = source if adds else insert_call(graph, node, aten.zeros_like.default, source)
    return insert_call(graph, node, aten.add.Tensor, old, node.args[2])


def join_places(graph: Graph, node: Node, indices: list[Node], sizes: list[int]) -> Node:
    """One place (batch, ...) along the first axes of a sample, joined, for an index of each of them."""
    rows, *others = indices
    joined = insert_call(graph, node, aten.mul.Scalar, rows, 0)
    for index, size in zip(others, sizes, strict=False):
        place = insert_call(graph, node, aten.remainder.Scalar, index, size)
        joined = insert_call(graph, node, aten.mul.Scalar, joined, size)
        joined = insert_call(graph, node, aten.add.Tensor, joined, place)
    return joined


def put_values(graph: Graph, node: Node, flat: Node, places: Node, shape: Sequence[int]) -> Node:
    """The flat source (batch, places, ...) with the values of a call in these places, or with them added there.

    Args:
        shape: of the values of a sample, to which they may still have to be broadcast.
    """
    values, adds = node.args[2], len(node.args) > 3 and node.args[3]
    if tuple(values.meta["val"].shape) != (places.meta["val"].shape[0], *shape):  # type: ignore[union-attr]
        there = insert_call(graph, node, aten.gather.default, flat, 1, places)
        zeros = insert_call(graph, node, aten.zeros_like.default, there)
        zeros = insert_call(graph, node, aten.reshape.default, zeros, [-1, *shape])
        values = insert_call(graph, node, aten.add.Tensor, zeros, values)
    values = insert_call(graph, node, aten.reshape.default, values, [-1, *places.meta["val"].shape[1:]])
    return insert_call(graph, node, aten.scatter_add.default if adds else aten.scatter.src, flat, 1, places, values)


def picks_own(source: Any, indices: Any) -> bool:
    """Are the first indices the rows of the batch, and the others places in a sample of known sizes?"""
    if not all(isinstance(n, Node) for n in (source, *indices)):
        return False
    batch, *sizes = source.meta["val"].shape
    values = [n.meta["val"] for n in indices]
    if not isinstance(batch, torch.SymInt) or len(sizes) < len(indices) - 1 or not all_known(sizes):
        return False
    axes = max(v.dim() for v in values)
    rows = values[0].shape
    if len(rows) != axes or not statically_known_true(rows[0] == batch) or any(d != 1 for d in rows[1:]):
        return False
    if not counts_up(strip(indices[0])):
        return False
    return all(v.dtype == torch.int64 and all_known(v.shape[max(v.dim() - axes + 1, 0) :]) for v in values)


def all_known(sizes: Sequence[Any]) -> bool:
    """Does none of the sizes depend on the batch?"""
    return all(isinstance(d, int) for d in sizes)


def strip(node: Node) -> Node:
    """The range behind axes of size 1 that were added to it, and slices that take all."""
    added = (aten.unsqueeze.default, aten.view.default, aten.reshape.default, aten.slice.Tensor)
    while node.target in added and node.meta["val"].numel() == node.args[0].meta["val"].numel():  # type: ignore[union-attr]
        node = node.args[0]  # type: ignore[assignment]
    return node


def counts_up(node: Node) -> bool:
    """Is it 0, 1, 2 and so on?"""
    first, step = (node.args[0], 1) if node.target is aten.arange.start else (0, 1)
    if node.target is aten.arange.start_step:
        first, step = node.args[0], node.args[2] if len(node.args) > 2 else 1  # type: ignore[assignment]
    ranges = (aten.arange.default, aten.arange.start, aten.arange.start_step)
    return node.target in ranges and bool(first == 0) and bool(step == 1)
