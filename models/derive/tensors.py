"""Graphs of large models that take the tensors of theta one by one.

A graph cuts theta at its start: of millions of parameters a copy of theta, in every step. Here each tensor is an input
of its own, in the shape in which the graph uses it, and a device gives it to onnxruntime where it lies in theta
(edge_sdk/model/sessions/form_session.py). Gradients are still joined at the end. Products that write them to where
the caller gets them find that memory outside of the cache: for gradients below a million numbers that costs more than
the copy.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from edge_sdk.algebra.vectors import Slot
from edge_sdk.models.derive.targets import Target
from edge_sdk.models.ir.graph import OnnxGraph
from edge_sdk.models.ir.nodes import OnnxNode, ScanBody
from edge_sdk.models.ir.proto import list_reads, select_needed

LEAST = 1 << 18
"""Parameters of a model that gains: a dense network of 200,000 takes as long in both forms, one of 450,000 is 2 to 12 %
faster in the second."""
EACH = 1 << 14
"""Numbers of a tensor, on average: to hand one over takes onnxruntime as long as to copy some 3,000."""
PREFIX = "theta."
"""Before the name of a slot in the name of the input that is its tensor."""


@dataclass(frozen=True)
class TensorGraph:
    """A graph that takes the tensors of theta one by one.

    Attributes:
        target: the graph. slots: name of an input -> name of the slot that it is.
    """

    target: Target
    slots: dict[str, str]


def is_worth_it(slots: Sequence[Slot]) -> bool:
    """True if to hand over each tensor costs less than to copy all of theta."""
    size = sum(slot.size for slot in slots)
    return size >= max(LEAST, EACH * len(slots))


def separate_tensors(target: Target, slots: Sequence[Slot]) -> TensorGraph | None:
    """The graph with an input for each tensor that it reads; None: it does more with theta than to cut it.

    Args:
        target: takes `theta` (n,). slots: of theta.
    """
    g = copy.deepcopy(target.graph)
    g.nodes = select_needed(g, target.outputs)
    users = defaultdict[str, list[OnnxNode]](list)
    for n in g.nodes:
        for value in list_reads(n):
            users[value].append(n)
    if [n.op for n in users["theta"]] != ["Split"]:
        return None
    (cut,), names, reshapes = users["theta"], dict[str, Slot](), list[OnnxNode]()
    for piece, slot in zip(cut.outputs, slots, strict=True):
        reshape = find_reshape(g, users[piece], target.outputs)
        reshapes += [reshape] if reshape else []
        if users[piece]:
            names[reshape.outputs[0] if reshape else piece] = slot
    gone = {id(n) for n in (cut, *reshapes)}
    g.nodes = [n for n in g.nodes if id(n) not in gone]
    inputs = {PREFIX + slot.name: value for value, slot in names.items()}
    rename([*g.nodes, *chain(*g.native)], {value: name for name, value in inputs.items()})
    g.shapes |= {name: g.shapes[value] for name, value in inputs.items()}
    g.dtypes |= dict.fromkeys(inputs, "float")
    g.inputs = [*inputs, *(i for i in g.inputs if i != "theta")]
    return TensorGraph(Target(g, target.outputs, target.slots), {PREFIX + s.name: s.name for s in names.values()})


def find_reshape(g: OnnxGraph, users: Sequence[OnnxNode], outputs: Sequence[str]) -> OnnxNode | None:
    """The node that reshapes a piece of theta, if nothing else reads that, and the graph does not return it."""
    if len(users) != 1 or users[0].op != "Reshape" or users[0].outputs[0] in outputs:
        return None
    return users[0] if all(isinstance(size, int) for size in g.shape(users[0].outputs[0])) else None


def rename(nodes: Iterable[OnnxNode], names: Mapping[str, str]) -> None:
    """Give values new names, in place, also where the body of a Scan reads them."""
    for n in nodes:
        n.inputs[:] = [names.get(i, i) for i in n.inputs]
        n.outputs[:] = [names.get(o, o) for o in n.outputs]
        for value in n.attributes.values():
            if isinstance(value, ScanBody):
                rename(value.nodes, names)
