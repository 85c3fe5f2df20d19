"""One place of each sample, as in `z[torch.arange(len(z)), last]`, written as a gather along the second axis.

The exporter would write an index over the batch axis, of which nobody can see that each sample only reads itself.
"""

from __future__ import annotations

from typing import Any

import torch

from edge_sdk.models.frontend.batch_sizes import insert_call

aten = torch.ops.aten


def gather_places(program: torch.export.ExportedProgram) -> None:
    """Write such indices as gathers, in place. Negative places count from the end, as they did."""
    graph = program.graph
    for node in [n for n in graph.nodes if n.target is aten.index.Tensor]:
        source, indices = node.args
        if len(indices) != 2 or not picks_one(source, *indices):
            continue
        size, *rest = source.meta["val"].shape[1:]
        places = insert_call(graph, node, aten.remainder.Scalar, indices[1], size)
        places = insert_call(graph, node, aten.reshape.default, places, [-1, 1, *[1] * len(rest)])
        places = insert_call(graph, node, aten.expand.default, places, [-1, 1, *rest])
        found = insert_call(graph, node, aten.gather.default, source, 1, places)
        node.replace_all_uses_with(insert_call(graph, node, aten.select.int, found, 1, 0))
        graph.erase_node(node)
    program.graph_module.recompile()


def picks_one(source: Any, rows: Any, places: Any) -> bool:
    """Are the rows those of the batch, in order, with one place for each?"""
    if not all(isinstance(n, torch.fx.Node) for n in (source, rows, places)):
        return False
    batch, *sizes = source.meta["val"].shape
    if not isinstance(batch, torch.SymInt) or not sizes or not all(isinstance(d, int) for d in sizes):
        return False
    alike = all(tuple(n.meta["val"].shape) == (batch,) for n in (rows, places))
    return alike and counts_up(rows) and places.meta["val"].dtype != torch.bool


def counts_up(node: torch.fx.Node) -> bool:
    """Is it 0, 1, 2 and so on?"""
    first, step = (node.args[0], 1) if node.target is aten.arange.start else (0, 1)
    if node.target is aten.arange.start_step:
        first, step = node.args[0], node.args[2] if len(node.args) > 2 else 1  # type: ignore[assignment]
    ranges = (aten.arange.default, aten.arange.start, aten.arange.start_step)
    return node.target in ranges and bool(first == 0) and bool(step == 1)
