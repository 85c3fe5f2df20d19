"""Exponential units in a form that keeps its digits near 0.

onnxruntime computes e^x - 1 as written, with an error of half a unit of 1's last place: for inputs of 1e-6 (EEG in
volts) nothing is left, and values that differ become equal, of which a pool chooses another one. With h = tanh(x / 2)
it is 2 h / (1 - h), which has no difference of nearly equal numbers for x <= 0, and takes less time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from edge_sdk.models.ir.graph import CustomGradient, OnnxGraph
from edge_sdk.models.ir.nodes import OnnxNode
from edge_sdk.models.rules.piecewise import SELU_ALPHA, SELU_GAMMA
from edge_sdk.models.rules.table import RULES


def write_precise_units(g: OnnxGraph) -> None:
    """Rewrite Elu, Selu and Celu in place; they are differentiated by the rules that they have."""
    for n in g.take_nodes():
        if n.op not in UNITS:
            g.put_back(n)
            continue
        g.where = n.where
        write_unit(g, n, *UNITS[n.op](n))
    g.where = ""


def write_unit(g: OnnxGraph, n: OnnxNode, slope: float, height: float, rate: float) -> None:
    """Append slope x above 0, and height (e^(rate x) - 1) below, for one node."""
    x, y = n.inputs[0], n.outputs[0]
    shape = g.shape(x)
    h = g.unary("Tanh", g.scale(g.op("Min", x, g.scalar(0), shape=shape), rate / 2))
    below = g.scale(g.div(h, g.sub(g.scalar(1), h)), 2 * height)
    g.op("Add", g.scale(g.unary("Relu", x), slope), below, shape=shape, output=y)

    def backward(g: OnnxGraph, gy: str, want: Sequence[bool]) -> Sequence[str | None]:
        return RULES[n.op](g, n, [gy], want)

    g.custom_gradients[y] = CustomGradient((x,), backward)


def single(n: OnnxNode, name: str, default: float) -> float:
    """An attribute as the operator has it, in float32: the rules count on values that end at exactly minus that."""
    return float(np.float32(n.attributes.get(name, default)))


def read_elu(n: OnnxNode) -> tuple[float, float, float]:
    return 1.0, single(n, "alpha", 1.0), 1.0


def read_selu(n: OnnxNode) -> tuple[float, float, float]:
    gamma = n.attributes.get("gamma", SELU_GAMMA)
    return gamma, single(n, "alpha", SELU_ALPHA) * single(n, "gamma", SELU_GAMMA), 1.0


def read_celu(n: OnnxNode) -> tuple[float, float, float]:
    alpha = n.attributes.get("alpha", 1.0)
    return 1.0, alpha, 1 / alpha


UNITS: dict[str, Callable[[OnnxNode], tuple[float, float, float]]] = {
    "Elu": read_elu,
    "Selu": read_selu,
    "Celu": read_celu,
}
"""Operator -> slope above 0, height and rate below."""
