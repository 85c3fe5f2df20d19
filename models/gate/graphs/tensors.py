"""The comparison of a graph that takes the tensors of theta one by one with that which takes theta as a whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from edge_sdk.algebra.vectors import Slot
from edge_sdk.model.theta_tensors import ALIGNED
from edge_sdk.models.derive.tensors import TensorGraph
from edge_sdk.models.gate.references.runnable import RunnableGraph
from edge_sdk.models.ir.graph import OnnxGraph

LINE = 64
"""Bytes of a line of the cache. Wherever in it a vector begins, results are the same."""

Arrays = Mapping[str, np.ndarray]


def has_equal_bits(
    whole: RunnableGraph,
    separate: RunnableGraph,
    graph: TensorGraph,
    slots: Sequence[Slot],
    fixed: Arrays,
    data: Arrays,
) -> bool:
    """True if both give the same bits, wherever theta begins that devices leave it (`edge_sdk.model.theta_tensors`).

    Args:
        whole, separate: the two graphs at work. slots: of theta. fixed: theta (n,), statistics. data: one batch.
    """
    given = {**fixed, **data} | draw_cotangent(graph.target.graph, len(data["weights"]))
    wanted = whole(given)
    for start in range(0, LINE, ALIGNED):
        found = separate(given, cut(graph, place(fixed["theta"], start), slots))
        if any(found[name].tobytes() != value.tobytes() for name, value in wanted.items()):
            return False
    return True


def draw_cotangent(g: OnnxGraph, count: int) -> dict[str, np.ndarray]:
    """The cotangent of `count` samples, for a graph that takes one."""
    if "cotangent" not in g.inputs:
        return {}
    shape = [d if isinstance(d, int) else d.times * count for d in g.shape("cotangent")]
    return {"cotangent": np.random.default_rng(403).standard_normal(shape)}


def place(theta: np.ndarray, start: int) -> np.ndarray:
    """A copy of theta as float32 whose first number is `start` bytes behind the start of a line."""
    memory = np.empty(theta.size + 2 * LINE // 4, np.float32)
    first = (start - memory.ctypes.data) % LINE // 4
    memory[first : first + theta.size] = theta
    return memory[first : first + theta.size]


def cut(graph: TensorGraph, theta: np.ndarray, slots: Sequence[Slot]) -> dict[str, np.ndarray]:
    """Input -> tensor of theta, of the shape that the graph takes."""
    spans, g = {slot.name: slot.span for slot in slots}, graph.target.graph
    return {name: theta[spans[slot]].reshape(g.numbers(name)) for name, slot in graph.slots.items()}
