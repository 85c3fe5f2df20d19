"""Graphs that read the tensors of theta where they lie, as a bundle's manifest describes them.

A graph takes theta as one vector, and cuts it at its start: of millions of parameters a copy of theta, in every step.
So graphs of a large model are in the bundle a second time, with an input for each tensor (models/derive/tensors.py). In
the manifest, the entry of such a graph has `tensors`, a list of these inputs, and the part `GRAPH.tensors.onnx` is the
graph itself. An entry names the slot of theta's layout that it is; where that lies in theta, the layout says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from edge_sdk.algebra.vectors import Layout
from edge_sdk.errors import UsageError
from edge_sdk.model.inputs import Floats

TENSORS = "tensors"
ALIGNED = 16
"""Bytes; the data of numpy's arrays begins at a multiple of them. Where a tensor begins decides about the order of some
of onnxruntime's sums, and so about their last bit. So that never depends on the vector that a caller has, one that
begins elsewhere, such as a slice, is copied."""


@dataclass(frozen=True)
class ThetaTensor:
    """An input of a graph that is a tensor of theta.

    Attributes:
        name: of the input.
        shape: in which the graph takes it: not always the slot's, but of as many numbers.
        span: of theta.
    """

    name: str
    shape: tuple[int, ...]
    span: slice


@dataclass(frozen=True)
class ThetaTensors:
    """All tensors of theta that a graph takes.

    Attributes:
        each: in order. size: of theta, n.
    """

    each: tuple[ThetaTensor, ...]
    size: int

    def cut(self, theta: Floats) -> dict[str, Floats]:
        """Input -> tensor, views of theta (n,) where that allows it, else of a copy."""
        if theta.ctypes.data % ALIGNED or not theta.flags.c_contiguous:
            theta = theta.copy()
        return {one.name: theta[one.span].reshape(one.shape) for one in self.each}


def tensor_part(graph: str) -> str:
    """Name of the part that has a graph's second form."""
    return f"{graph}.{TENSORS}.onnx"


def read_tensors(graph: str, entry: Mapping[str, Any], layout: Layout) -> ThetaTensors:
    """The tensors that the manifest's entry of a graph lists.

    Raises:
        UsageError: naming the input that does not fit the layout.
    """
    slots, found = {slot.name: slot for slot in layout.slots}, dict[str, ThetaTensor]()
    if not isinstance(entry[TENSORS], list):
        raise UsageError(f"graphs.{graph}.{TENSORS} must be a list")
    for value in entry[TENSORS]:
        name, shape, slot = value["name"], tuple(value["shape"]), slots.get(value["slot"])
        what = f"graphs.{graph}.{TENSORS}.{str(name)[:100]}"
        if not isinstance(name, str) or name in found:
            raise UsageError(f"{what}: two inputs have this name")
        if slot is None:
            raise UsageError(f"{what}: slot {str(value['slot'])[:100]!r} is not in the layout")
        if not all(type(size) is int and size > 0 for size in shape) or prod(shape) != slot.size:
            raise UsageError(f"{what}: {str(shape)[:100]} is no shape of the {slot.size:,} numbers of {slot.name!r}")
        found[name] = ThetaTensor(name, shape, slot.span)
    return ThetaTensors(tuple(found.values()), layout.size)
