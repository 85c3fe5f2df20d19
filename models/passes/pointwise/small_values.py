"""log1p, expm1 and some sigmoids in forms that keep the digits of small values.

The exporter writes log(1 + x) and e^x - 1, of which nothing is left where x is below the last place of 1, and
onnxruntime's sigmoid is off by half of 1's last place, however small it is itself. Here

    log1p(x) = log(u) + (x - (u - 1)) / u  with u = 1 + x      the second term is what u has lost of x
    expm1(x) = -sign(x) m e^max(x, 0)                          m = expm1(-|x|) = 2 h / (1 - h), h = tanh(-|x| / 2)
    sigmoid(x) = 1 / (1 + e^-x)                                where a logarithm or a quotient reads it

(W. Kahan's way with logarithms: N. Higham, "Accuracy and Stability of Numerical Algorithms", 1.14.1.) Where x is near
-1, u is exact and the second term 0, so that its divisor is kept away from 0.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from edge_sdk.models.derive.steep import LEAST, SAME
from edge_sdk.models.ir.graph import CustomGradient, OnnxGraph
from edge_sdk.models.ir.nodes import OnnxNode
from edge_sdk.models.rules.piecewise import write_exact_sigmoid

Makers = Mapping[str, OnnxNode]
LAST = {"log1p": ("Log", "Add", 0), "expm1": ("Sub", "Exp", 0)}
"""Function -> the last operator that the exporter writes it with, the one before, and which input of the last that is.
"""
RATIOS = {"Log": 0, "Reciprocal": 0, "Div": 1, "Pow": 0}
"""Operator -> the input whose relative error counts, however small the input is."""
CARRY = SAME | LEAST | {"Add", "Sub", "Max"}


def write_small_values(g: OnnxGraph) -> None:
    """Rewrite the functions in place; they have backward passes of their own."""
    nodes = g.take_nodes()
    makers = {o: n for n in nodes for o in n.outputs}
    exact = find_read_as_ratios(nodes, makers)
    for n in nodes:
        g.where = n.where
        if x := find_argument(n, makers):
            (write_log1p if n.op == "Log" else write_expm1)(g, x, n.outputs[0])
        elif n.op == "Sigmoid" and n.outputs[0] in exact:
            write_sigmoid(g, n.inputs[0], n.outputs[0])
        else:
            g.put_back(n)
    g.where = ""


def find_argument(n: OnnxNode, makers: Makers) -> str:
    """What log1p or expm1 is taken of, if a node is the last one of such a call; else ""."""
    name = n.call.name.rstrip("_").removeprefix("special_") if n.call else ""
    op, before, at = LAST.get(name, ("", "", 0))
    made = makers.get(n.inputs[at]) if n.op == op else None
    return made.inputs[0] if made is not None and made.op == before else ""


def find_read_as_ratios(nodes: Sequence[OnnxNode], makers: Makers) -> Collection[str]:
    """The values of which a logarithm, a root of a quotient or a quotient is taken, with all that they are made of."""
    left = [n.inputs[RATIOS[n.op]] for n in nodes if n.op in RATIOS]
    found = set[str]()
    while left:
        value = left.pop()
        if value in found:
            continue
        found.add(value)
        maker = makers.get(value)
        left += maker.inputs if maker is not None and maker.op in CARRY else []
    return found


def write_log1p(g: OnnxGraph, x: str, y: str) -> None:
    one = g.scalar(1)
    u = g.add(x, one)
    lost = g.sub(x, g.sub(u, one))
    rest = g.div(lost, g.op("Max", u, g.scalar(0.5), shape=g.shape(x)))
    g.op("Add", g.unary("Log", u), rest, shape=g.shape(x), output=y)

    def backward(g: OnnxGraph, gy: str, want: Sequence[bool]) -> Sequence[str]:
        return [g.div(gy, u)]

    g.custom_gradients[y] = CustomGradient((x,), backward, steep=True)


def write_expm1(g: OnnxGraph, x: str, y: str) -> None:
    h = g.unary("Tanh", g.scale(g.unary("Abs", x), -0.5))
    below = g.scale(g.div(h, g.sub(g.scalar(1), h)), -2)
    g.op("Mul", g.mul(g.unary("Sign", x), below), g.unary("Exp", g.unary("Relu", x)), shape=g.shape(x), output=y)

    def backward(g: OnnxGraph, gy: str, want: Sequence[bool]) -> Sequence[str]:
        return [g.mul(gy, g.unary("Exp", x))]

    g.custom_gradients[y] = CustomGradient((x,), backward)


def write_sigmoid(g: OnnxGraph, x: str, y: str) -> None:
    write_exact_sigmoid(g, x, y)

    def backward(g: OnnxGraph, gy: str, want: Sequence[bool]) -> Sequence[str]:
        return [g.mul(gy, g.mul(y, g.sub(g.scalar(1), y)))]

    g.custom_gradients[y] = CustomGradient((x,), backward)
