"""Values set where a mask says so, as in `z[z < 0] = 0`, written as a choice between the two.

The exporter would write the places at which the mask holds, whose number depends on values, and with it every shape.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Graph, Node

from edge_sdk.models.frontend.tracing.batch_sizes import insert_call
from edge_sdk.models.frontend.tracing.diagnose import find_path
from edge_sdk.models.ir.errors import UnsupportedPattern

aten = torch.ops.aten
FOUND = ("nonzero", "nonzero_numpy", "masked_select", "argwhere", "where")
FINDS = frozenset(getattr(aten, name).default for name in FOUND)


def without_assignments(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """The program with values made anew instead of changed in place, views of them included; itself if it sets none."""
    if not any(n.target is aten.index_put_.default for n in program.graph.nodes):
        return program
    made: torch.export.ExportedProgram = program.run_decompositions({})
    return made


def set_by_choice(program: torch.export.ExportedProgram) -> None:
    """Write assignments by one mask as `where`, in place, where one value is set, or one for each place after the mask.

    Raises:
        UnsupportedPattern: values of several samples are read by a mask, so that their number depends on them.
    """
    graph = program.graph
    refuse_chosen(graph)
    for node in [n for n in graph.nodes if n.target is aten.index_put.default]:
        source, indices, values = node.args[:3]
        at = find_mask(indices)
        if at is None or not fits(values, source, at + indices[at].meta["val"].dim()):
            continue
        mask = indices[at]
        after = source.meta["val"].dim() - at - mask.meta["val"].dim()
        for _ in range(after):
            mask = insert_call(graph, node, aten.unsqueeze.default, mask, -1)
        if len(node.args) > 3 and node.args[3]:
            values = insert_call(graph, node, aten.add.Tensor, source, values)
        made = insert_call(graph, node, aten.where.self, mask, values, source)
        node.replace_all_uses_with(made)
        program.graph_signature.replace_all_uses(node.name, made.name)  # where an input is what is set, it is a result
        graph.erase_node(node)


def refuse_chosen(graph: Graph) -> None:
    """Raise UnsupportedPattern where values are read by a mask that the samples have, or by the places found of one."""
    for node in graph.nodes:
        if node.target in FINDS and any(isinstance(d, torch.SymInt) for d in node.args[0].meta["val"].shape):
            advice = "compute all, and use torch.where(mask, new, old) or multiply by the mask"
            told = f"{node.target._opname}, whose number of results depends on values"
            raise UnsupportedPattern(told, find_path(node), advice)
        indices = node.args[1] if node.target is aten.index.Tensor else ()
        masks = [n.meta["val"] for n in indices if n is not None and n.meta["val"].dtype == torch.bool]
        if any(isinstance(d, torch.SymInt) for m in masks for d in m.shape):
            advice = "use torch.where(mask, new, old), or multiply by the mask"
            raise UnsupportedPattern("values read by a mask, whose number depends on them", find_path(node), advice)


def find_mask(indices: Sequence[Any]) -> int | None:
    """The place of the one index, which is a mask; None: there are others."""
    there = [i for i, n in enumerate(indices) if n is not None]
    if len(there) != 1 or not isinstance(indices[there[0]], Node):
        return None
    return there[0] if indices[there[0]].meta["val"].dtype == torch.bool else None


def fits(values: Any, source: Any, masked: int) -> bool:
    """Is it one value, or one for each place of the axes that follow those that the mask is for?"""
    if not isinstance(values, Node) or not isinstance(source, Node):
        return False
    value, whole = values.meta["val"], source.meta["val"]
    sizes = list(value.shape)
    while sizes and isinstance(sizes[0], int) and sizes[0] == 1:
        sizes = sizes[1:]
    alike = value.dtype == whole.dtype or value.dim() == 0
    return alike and len(sizes) <= whole.dim() - masked and all(isinstance(d, int) for d in sizes)
