"""What a copy of a graph is made of before its elementwise nodes become groups.

Identities and expansions lie in their way, and a batch normalisation with given statistics is elementwise itself: a
product and a sum, with a number for each channel.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from edge_sdk.models.derive.tensors import rename
from edge_sdk.models.ir.graph import OnnxGraph
from edge_sdk.models.ir.nodes import OnnxNode
from edge_sdk.models.ir.shapes import Shape, broadcast
from edge_sdk.models.passes.elementwise_program import is_writable


def drop_identities(g: OnnxGraph, outputs: Collection[str]) -> None:
    """Let all nodes read what an Identity passes on, in place; one that makes an output of the graph stays."""
    names: dict[str, str] = {}
    for n in g.nodes:
        if n.op == "Identity" and not n.domain and n.outputs[0] not in outputs:
            names[n.outputs[0]] = names.get(n.inputs[0], n.inputs[0])
    g.nodes = [n for n in g.nodes if n.outputs[0] not in names]
    rename(g.nodes, names)


def skip_expansions(g: OnnxGraph) -> None:
    """Let elementwise nodes read what an Expand repeats, in place, where another operand has the whole shape."""
    small = {n.outputs[0]: n.inputs[0] for n in g.nodes if n.op == "Expand" and not n.domain}
    for n in g.nodes:
        if any(i in small for i in n.inputs) and is_writable(g, n):
            inputs, whole = [small.get(i, i) for i in n.inputs], Shape()
            for i in inputs:
                whole = broadcast(whole, g.shapes.get(i, ()))
            n.inputs = inputs if whole == g.shapes.get(n.outputs[0]) else n.inputs


def write_norms(g: OnnxGraph, leave: Collection[str]) -> dict[str, set[str]]:
    """Write batch normalisations as products and sums, in place.

    Args:
        leave: outputs of those that stay.

    Returns:
        output -> what the nodes in its place make that is as large.
    """
    found: dict[str, set[str]] = {}
    for n in g.take_nodes():
        plain = n.op == "BatchNormalization" and not n.domain and len(n.outputs) == 1
        if not plain or n.outputs[0] in leave or n.attributes.get("training_mode") or n.inputs[0] not in g.shapes:
            g.nodes.append(n)
            g.makers.update(dict.fromkeys(n.outputs, n))
            continue
        count = len(g.nodes)
        write_norm(g, n)
        found[n.outputs[0]] = {m.outputs[0] for m in g.nodes[count:] if g.shape(m.outputs[0]) == g.shape(n.outputs[0])}
    return found


def write_norm(g: OnnxGraph, n: OnnxNode) -> None:
    """Append y = (x - mean) slope + shift for a batch normalisation, without what changes nothing."""
    (x, slope, shift, mean, variance), shape = n.inputs, g.shape(n.inputs[0])
    epsilon = n.attributes.get("epsilon", 1e-5)
    if epsilon or not is_full_of(g, variance, 1):
        rate = g.unary("Reciprocal", g.unary("Sqrt", g.add(variance, g.scalar(epsilon))))
        slope = rate if is_full_of(g, slope, 1) else g.mul(rate, slope)
    steps = [("Sub", mean, 0), ("Mul", slope, 1), ("Add", shift, 0)]
    steps = [step for step in steps if not is_full_of(g, *step[1:])] or steps[-1:]
    for place, (kind, value, _) in enumerate(steps, 1):
        output = n.outputs[0] if place == len(steps) else g.new_name("norm")
        value = g.reshape(value, (shape[1], *(1 for _ in shape[2:])))
        x = g.op(kind, x, value, shape=shape, output=output)


def is_full_of(g: OnnxGraph, name: str, number: float) -> bool:
    """True if a value is known to be this number everywhere."""
    maker, array = g.makers.get(name), g.constants.get(name)
    if array is None and maker is not None and maker.op == "ConstantOfShape":
        array = np.asarray(maker.attributes.get("value", 0.0))
    return array is not None and bool((array == number).all())
