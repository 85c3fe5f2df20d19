"""GELU and SiLU, differentiated as one piece: each pass over the values of a wide layer costs as much as a tenth of its
product.

As torch's exporter writes them these are five and two operators; differentiated one by one, ten and six more. Here the
slope is one value, with which the adjoint is multiplied:

    GELU   y = x h,  t = x / sqrt(2),  h = (1 + erf(t)) / 2        slope = h + t / e^(t t) / sqrt(pi)
    SiLU   y = x s,  s = sigmoid(x)                                slope = s + y (1 - s)

(D. Hendrycks, K. Gimpel: "Gaussian Error Linear Units", arXiv:1606.08415.) Where e^(t t) is above all floats, the
second term is 0, which it is there. h is a hard sigmoid of erf(t) with slope and offset 1/2, whose bounds erf does not
pass.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import pi, sqrt

import numpy as np

from edge_sdk.models.ir.graph import CustomGradient, OnnxGraph
from edge_sdk.models.ir.nodes import OnnxNode
from edge_sdk.models.ir.proto import list_reads

Makers = Mapping[str, OnnxNode]


def write_smooth_units(g: OnnxGraph, keep: Collection[str], trained: Collection[str] | None = None) -> None:
    """Rewrite GELUs, and give GELUs and SiLUs a backward pass of their own, in place.

    Args:
        keep: values that others refer to by name.
        trained: values that parameters change; a GELU of others has no backward pass, and stays as it predicts. None:
            all values.
    """
    nodes = g.take_nodes()
    makers, readers = {o: n for n in nodes for o in n.outputs}, count_readers(nodes, keep)
    gelus = {n.outputs[0]: found for n in nodes if (found := find_gelu(g, n, makers, readers))}
    gelus = {y: found for y, found in gelus.items() if trained is None or found[1] in trained}
    gone = {id(n) for inner, _ in gelus.values() for n in inner}
    for n in nodes:
        if id(n) in gone:
            continue
        g.where = n.where
        if n.outputs[0] in gelus:
            write_gelu(g, gelus[n.outputs[0]][1], n.outputs[0])
            continue
        g.put_back(n)
        if gate := find_silu(n, makers, readers):
            note_silu(g, n, gate)
    g.where = ""


def count_readers(nodes: Sequence[OnnxNode], keep: Collection[str]) -> dict[str, int]:
    """Value -> how many nodes read it; one more for a value to keep."""
    found = dict.fromkeys(keep, 1)
    for name in (i for n in nodes for i in list_reads(n)):
        found[name] = found.get(name, 0) + 1
    return found


# GELU ---------------------------------------------------------------------------------------------------------------
def find_gelu(
    g: OnnxGraph, last: OnnxNode, makers: Makers, readers: Mapping[str, int]
) -> tuple[list[OnnxNode], str] | None:
    """The nodes of a GELU before its last one, and x; None where a node is no such last one.

    The exporter's form is x (0.5 (1 + erf(x / sqrt(2)))), in which nobody else reads what is in between.
    """
    for x, h in factors(last):
        half = inner(h, "Mul", makers, readers)
        summed = half and other_than(g, half, 0.5)
        added = inner(summed, "Add", makers, readers) if summed else None
        risen = added and other_than(g, added, 1.0)
        erf = inner(risen, "Erf", makers, readers) if risen else None
        scaled = inner(erf.inputs[0], "Div", makers, readers) if erf else None
        if half and added and erf and scaled and scaled.inputs[0] == x and is_number(g, scaled.inputs[1], sqrt(2)):
            return [half, added, erf, scaled], x
    return None


def factors(n: OnnxNode) -> list[tuple[str, str]]:
    """Both orders of the factors of a product of two values; none for other nodes."""
    if n.op != "Mul" or n.inputs[0] == n.inputs[1]:
        return []
    a, b = n.inputs
    return [(a, b), (b, a)]


def inner(name: str, op: str, makers: Makers, readers: Mapping[str, int]) -> OnnxNode | None:
    """The node with this operator that makes a value for one reader; None if there is none."""
    made = makers.get(name)
    return made if made is not None and made.op == op and readers.get(name) == 1 else None


def other_than(g: OnnxGraph, n: OnnxNode, number: float) -> str:
    """The input beside a constant number; "": there is none."""
    a, b = n.inputs
    return b if is_number(g, a, number) else a if is_number(g, b, number) else ""


def is_number(g: OnnxGraph, name: str, number: float) -> bool:
    value = g.constants.get(name)
    return value is not None and value.size == 1 and bool(np.float32(value.item()) == np.float32(number))


def write_gelu(g: OnnxGraph, x: str, y: str) -> None:
    t = g.scale(x, sqrt(0.5))
    h = g.unary("HardSigmoid", g.unary("Erf", t), alpha=0.5, beta=0.5)
    g.op("Mul", x, h, shape=g.shape(x), output=y)

    def backward(g: OnnxGraph, gy: str, want: Sequence[bool]) -> Sequence[str]:
        rest = g.scale(g.div(t, g.unary("Exp", g.mul(t, t))), 1 / sqrt(pi))
        return [g.mul(gy, g.add(h, rest))]

    g.custom_gradients[y] = CustomGradient((x,), backward)


# SiLU ---------------------------------------------------------------------------------------------------------------
def find_silu(n: OnnxNode, makers: Makers, readers: Mapping[str, int]) -> OnnxNode | None:
    """The sigmoid of a product x sigmoid(x); None where a node is no such product."""
    for x, s in factors(n):
        gate = inner(s, "Sigmoid", makers, readers)
        if gate and gate.inputs[0] == x:
            return gate
    return None


def note_silu(g: OnnxGraph, product: OnnxNode, gate: OnnxNode) -> None:
    x, s, y = gate.inputs[0], gate.outputs[0], product.outputs[0]

    def backward(g: OnnxGraph, gy: str, want: Sequence[bool]) -> Sequence[str]:
        return [g.mul(gy, g.add(s, g.mul(y, g.sub(g.scalar(1), s))))]

    g.custom_gradients[y] = CustomGradient((x,), backward)
