"""Values whose adjoint may be infinite, or no number, although the loss is a number.

The slopes of roots, logarithms and quotients are infinite at 0, and those of arc functions at 1. Behind a unit that is
off, torch drops such an adjoint, for it chooses where a product with a mask would make 0 times infinity of it. Rules
choose as well for the values here, and multiply for all others, which is faster (rules/piecewise.py).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from edge_sdk.models.ir.graph import OnnxGraph
from edge_sdk.models.ir.nodes import OnnxNode

POSITIVE, NOT_NEGATIVE, UNKNOWN = 2, 1, 0
# by what they give whatever they are given
SIGNS = {
    **dict.fromkeys(("Exp", "Sigmoid", "Softplus", "Cosh"), POSITIVE),
    **dict.fromkeys(("Abs", "Relu", "Softmax", "HardSigmoid", "ReduceL1", "ReduceL2", "ReduceSumSquare"), NOT_NEGATIVE),
}
# which keep the sign of their first input
SAME = frozenset(
    {"Identity", "Cast", "Reshape", "Transpose", "Expand", "Squeeze", "Unsqueeze", "Slice", "Split", "Gather"}
    | {"Flatten", "Tile", "ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "CumSum"}
    | {"AveragePool", "GlobalAveragePool", "MaxPool", "GlobalMaxPool", "Sqrt", "Reciprocal"}
)
LEAST = frozenset({"Mul", "Div", "Concat", "Min"})  # which have the least sign of all their inputs
STEEP = {"Sqrt": 0, "Log": 0, "Reciprocal": 0, "Div": 1}  # operator -> the input at whose 0 the slope is infinite
STEEP_AT_ONE = frozenset({"Asin", "Acos", "Acosh", "Atanh"})


def find_steep(g: OnnxGraph, seeds: Collection[str], depends: Collection[str]) -> set[str]:
    """Names of the values of a forward graph whose adjoint may be infinite.

    Args:
        seeds: the values that are differentiated. depends: what the leaves change.
    """
    signs, reached, steep = find_signs(g), set(seeds), set[str]()
    for node in reversed(g.nodes):
        if not any(o in reached and o in depends for o in node.outputs):
            continue
        own = g.custom_gradients.get(node.outputs[0])
        inputs = [i for i in (own.inputs if own else node.inputs) if i in depends]
        reached.update(inputs)
        if any(o in steep for o in node.outputs) or (own.steep if own else is_steep(g, node, signs, depends)):
            steep.update(inputs)
    return steep


def is_steep(g: OnnxGraph, node: OnnxNode, signs: Mapping[str, int], depends: Collection[str]) -> bool:
    """True if a slope of a node may be infinite, along an input that the leaves change."""
    if node.op == "Pow":
        base, exponent = node.inputs
        powers = g.constants.get(exponent)
        return signs.get(base) != POSITIVE and base in depends and (powers is None or bool((powers < 1).any()))
    if node.op in STEEP:
        at = node.inputs[STEEP[node.op]]
        return at in depends and signs.get(at) != POSITIVE
    return node.op in STEEP_AT_ONE


def find_signs(g: OnnxGraph) -> dict[str, int]:
    """Value -> POSITIVE, NOT_NEGATIVE or UNKNOWN, by the operators that make it."""
    signs = {name: read_sign(values) for name, values in g.constants.items()}
    for node in g.nodes:
        sign = SIGNS.get(node.op, UNKNOWN) or infer_sign(g, node, [signs.get(i, UNKNOWN) for i in node.inputs])
        signs.update(dict.fromkeys(node.outputs, sign))
    return signs


def read_sign(values: np.ndarray) -> int:
    """The sign of a constant."""
    if values.dtype.kind not in "fiu" or not values.size:
        return UNKNOWN
    return POSITIVE if (values > 0).all() else NOT_NEGATIVE if (values >= 0).all() else UNKNOWN


def infer_sign(g: OnnxGraph, node: OnnxNode, given: Sequence[int]) -> int:
    """The sign of what a node makes of inputs with these signs."""
    if node.op in SAME:
        return given[0]
    if node.op == "Max":
        return max(given)
    if node.op == "Clip":
        return max(given[:2])
    if node.op == "Where":
        return min(given[1:])
    if node.op == "Add":
        return max(given) if min(given) else UNKNOWN
    if node.op == "Pow":
        powers = g.constants.get(node.inputs[1])
        return given[0] or (NOT_NEGATIVE if powers is not None and (powers % 2 == 0).all() else UNKNOWN)
    if node.op == "Mul" and node.inputs[0] == node.inputs[1]:
        return given[0] or NOT_NEGATIVE
    return min(given) if node.op in LEAST else UNKNOWN
