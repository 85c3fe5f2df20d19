"""What a copy of a graph is made of before its elementwise nodes become groups.

Identities and expansions lie in their way. A batch normalisation with given statistics is elementwise itself: a product
and a sum, with a number for each channel. A product of rows with one vector is an elementwise product and a sum along
the last axis, and a mean is a sum and a quotient.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import numpy as np

from edge_sdk.models.derive.tensors import rename
from edge_sdk.models.ir.graph import OnnxGraph
from edge_sdk.models.ir.nodes import OnnxNode
from edge_sdk.models.ir.shapes import Shape, as_number, broadcast
from edge_sdk.models.passes.native.elementwise_nodes import find_summed
from edge_sdk.models.passes.native.elementwise_program import is_writable


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


def write_composites(g: OnnxGraph, leave: Collection[str]) -> dict[str, list[str]]:
    """Write batch normalisations, products with one vector, and means as elementwise nodes and sums, in place.

    Args:
        leave: outputs of those that stay.

    Returns:
        output -> what the nodes in its place make that run over all of the input.
    """
    found: dict[str, list[str]] = {}
    for n in g.take_nodes():
        write = choose_writer(g, n)
        if write is None or n.outputs[0] in leave:
            g.put_back(n)
        else:
            found[n.outputs[0]] = write(g, n)
    return found


def choose_writer(g: OnnxGraph, n: OnnxNode) -> Callable[[OnnxGraph, OnnxNode], list[str]] | None:
    """What writes a node as others; None: it stays."""
    if n.domain or len(n.outputs) != 1 or any(i not in g.shapes for i in n.inputs) or n.inputs[0] in g.constants:
        return None
    if n.op == "BatchNormalization":
        return None if n.attributes.get("training_mode") else write_norm
    if n.op == "ReduceMean":
        return write_mean if isinstance(find_summed(g, n), int) else None
    if n.op == "MatMul" and g.rank(n.inputs[0]) > 1 and g.rank(n.inputs[1]) == 2:
        many, columns = g.shape(n.inputs[1])
        return write_row_sum if columns == 1 and many != 1 else None
    return None


def write_mean(g: OnnxGraph, n: OnnxNode) -> list[str]:
    """Append a sum and a quotient for a mean along the last axes."""
    y, count = n.outputs[0], as_number(find_summed(g, n) or 1)
    summed = g.op("ReduceSum", *n.inputs, shape=g.shape(y), output=g.new_name("sum"), **n.attributes)
    g.op("Div", summed, g.scalar(count), shape=g.shape(y), output=y)
    return [summed]


def write_row_sum(g: OnnxGraph, n: OnnxNode) -> list[str]:
    """Append the sum of x times a vector along the last axis for a product of rows with that vector."""
    (x, vector), (y,), made = n.inputs, n.outputs, list[str]()
    if not is_full_of(g, vector, 1):
        shape = g.shape(x)
        x = g.op("Mul", x, g.reshape(vector, shape[-1:]), shape=shape, output=g.new_name("weighted"))
        made = [x]
    return [*made, g.op("ReduceSum", x, g.ints([-1]), keepdims=1, shape=g.shape(y), output=y)]


def write_norm(g: OnnxGraph, n: OnnxNode) -> list[str]:
    """Append y = (x - mean) slope + shift for a batch normalisation, without what changes nothing."""
    (x, slope, shift, mean, variance), shape = n.inputs, g.shape(n.inputs[0])
    epsilon = n.attributes.get("epsilon", 1e-5)
    if epsilon or not is_full_of(g, variance, 1):
        rate = g.unary("Reciprocal", g.unary("Sqrt", g.add(variance, g.scalar(epsilon))))
        slope = rate if is_full_of(g, slope, 1) else g.mul(rate, slope)
    steps = [("Sub", mean, 0), ("Mul", slope, 1), ("Add", shift, 0)]
    steps, made = [step for step in steps if not is_full_of(g, *step[1:])] or steps[-1:], list[str]()
    for place, (kind, value, _) in enumerate(steps, 1):
        output = n.outputs[0] if place == len(steps) else g.new_name("norm")
        value = g.reshape(value, (shape[1], *(1 for _ in shape[2:])))
        x = g.op(kind, x, value, shape=shape, output=output)
        made.append(x)
    return made


def is_full_of(g: OnnxGraph, name: str, number: float) -> bool:
    """True if a value is known to be this number everywhere."""
    maker, array = g.makers.get(name), g.constants.get(name)
    if array is None and maker is not None and maker.op == "ConstantOfShape":
        array = np.asarray(maker.attributes.get("value", 0.0))
    return array is not None and bool((array == number).all())
