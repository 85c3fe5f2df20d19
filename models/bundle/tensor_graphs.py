"""The graphs of a bundle that are in it a second time, because they are faster with the tensors of theta one by one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from edge_sdk.algebra.vectors import Slot
from edge_sdk.models.derive.targets import Target
from edge_sdk.models.derive.tensors import TensorGraph, is_worth_it, separate_tensors
from edge_sdk.models.gate.graphs.tensors import has_equal_bits
from edge_sdk.models.gate.references.runnable import RunnableGraph

Arrays = Mapping[str, np.ndarray]


def build_tensor_graphs(
    graphs: Mapping[str, Target],
    runs: Mapping[str, RunnableGraph],
    slots: Sequence[Slot],
    fixed: Arrays,
    data: Arrays,
    progress: Callable[[str], None],
) -> dict[str, TensorGraph]:
    """Name -> second form of a graph, for those that gain by one and give the same bits in it.

    Args:
        graphs, runs: name -> graph, and its session. slots: of theta. fixed: theta, statistics. data: one batch.
    """
    found = {}
    for name, target in graphs.items():
        graph = separate_tensors(target, slots) if is_worth_it(slots) else None
        if graph is None:
            continue
        if has_equal_bits(runs[name], RunnableGraph(graph.target.model()), graph, slots, fixed, data):
            found[name] = graph
        else:
            progress(f"{name}: is rounded differently where it takes the tensors of theta one by one, so it does not")
    return found
