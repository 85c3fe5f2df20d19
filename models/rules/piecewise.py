"""Functions of one value whose formula changes at a point: units of neural networks, and clamps.

Slopes of two sides are written with masks of 0 and 1 and with min(x, 0): onnxruntime takes thirty times as long for a
Where as for a product. Where the adjoint may be infinite, 0 times it would be no number, so there it is a Where.
"""

from __future__ import annotations

import numpy as np

from edge_sdk.models.ir.errors import UnsupportedPattern
from edge_sdk.models.ir.graph import OnnxGraph
from edge_sdk.models.ir.nodes import OnnxNode
from edge_sdk.models.rules.table import Adjoints, Want, rule

# nearly the largest float32: every positive y but a subnormal one is at least 1 when multiplied by it
LARGEST = 3e38


@rule("Relu")
def relu(g: OnnxGraph, n: OnnxNode, gy: str, want: Want) -> Adjoints:
    if n.outputs[0] in g.steep:
        return (keep_where(g, n, gy, g.binary("Greater", n.outputs[0], g.scalar(0))),)
    return (g.mul(gy, mark_positive(g, n.outputs[0])),)


def keep_where(g: OnnxGraph, n: OnnxNode, gy: str, condition: str) -> str:
    """The adjoint of a node's output where a condition holds, 0 elsewhere, even where that adjoint is infinite."""
    if n.outputs[0] in g.steep:
        return g.select(condition, gy, g.scalar(0))
    return g.mul(gy, g.as_float(condition))


def mark_positive(g: OnnxGraph, y: str) -> str:
    """1 where y > 0, else 0, for y >= 0: written as min(1, y times a large number), one pass instead of two."""
    return g.unary("HardSigmoid", y, alpha=LARGEST, beta=0.0)


@rule("LeakyRelu")
def leaky_relu(g: OnnxGraph, n: OnnxNode, gy: str, want: Want) -> Adjoints:
    alpha = n.attributes.get("alpha", 0.01)
    slope = g.add(g.scale(g.compare("Greater", n.inputs[0], g.scalar(0)), 1 - alpha), g.scalar(alpha))
    return (g.mul(gy, slope),)


@rule("PRelu")
def prelu(g: OnnxGraph, n: OnnxNode, gy: str, want: Want) -> Adjoints:
    """y = x if x > 0 else slope * x."""
    x, slope = n.inputs
    above = g.compare("Greater", x, g.scalar(0))
    below = g.sub(g.scalar(1), above)
    gx = g.mul(gy, g.add(above, g.mul(below, slope))) if want[0] else None
    gs = g.unbroadcast(g.mul(gy, keep_negative(g, x)), g.shape(slope)) if want[1] else None
    return gx, gs


def keep_negative(g: OnnxGraph, x: str) -> str:
    """x where it is below 0, else 0."""
    return g.op("Min", x, g.scalar(0), shape=g.shape(x))


@rule("Elu")
def elu(g: OnnxGraph, n: OnnxNode, gy: str, want: Want) -> Adjoints:
    """y' = 1 above 0; below, y = alpha (e^x - 1) and y' = y + alpha."""
    alpha = n.attributes.get("alpha", 1.0)
    return (g.mul(gy, write_unit_slope(g, n, keep_negative(g, n.outputs[0]), 1.0, alpha)),)


def write_unit_slope(g: OnnxGraph, n: OnnxNode, below: str, above: float, at_zero: float) -> str:
    """The slope of an exponential unit: `above` where x > 0; elsewhere `below`, which is 0 at 0, plus `at_zero`."""
    slope = g.add(below, g.scalar(at_zero))
    if above == at_zero:
        return slope
    return g.add(slope, g.scale(g.compare("Greater", n.inputs[0], g.scalar(0)), above - at_zero))


@rule("Selu")
def selu(g: OnnxGraph, n: OnnxNode, gy: str, want: Want) -> Adjoints:
    """y' = gamma above 0; below, y = gamma alpha (e^x - 1) and y' = y + gamma alpha."""
    alpha, gamma = (n.attributes.get(k, v) for k, v in (("alpha", SELU_ALPHA), ("gamma", SELU_GAMMA)))
    at_zero = float(np.float32(alpha)) * float(np.float32(gamma))
    return (g.mul(gy, write_unit_slope(g, n, keep_negative(g, n.outputs[0]), gamma, at_zero)),)


# torch's numbers, which ONNX rounds to float32
SELU_ALPHA, SELU_GAMMA = 1.6732632423543772, 1.0507009873554805


@rule("Celu")
def celu(g: OnnxGraph, n: OnnxNode, gy: str, want: Want) -> Adjoints:
    """y' = 1 above 0; below, y = alpha (e^(x/alpha) - 1) and y' = y / alpha + 1."""
    below = g.scale(keep_negative(g, n.outputs[0]), 1 / n.attributes.get("alpha", 1.0))
    return (g.mul(gy, write_unit_slope(g, n, below, 1.0, 1.0)),)


@rule("Softplus")
def softplus(g: OnnxGraph, n: OnnxNode, gy: str, want: Want) -> Adjoints:
    """log(1 + e^x)' = sigmoid(x)."""
    return (g.mul(gy, write_exact_sigmoid(g, n.inputs[0])),)


def write_exact_sigmoid(g: OnnxGraph, x: str, y: str = "") -> str:
    """1 / (1 + e^-x), as `y`: onnxruntime's own operator is off by half of 1's last place where it is near 0."""
    return g.op("Reciprocal", g.add(g.unary("Exp", g.neg(x)), g.scalar(1)), shape=g.shape(x), output=y)


@rule("HardSigmoid")
def hard_sigmoid(g: OnnxGraph, n: OnnxNode, gy: str, want: Want) -> Adjoints:
    """max(0, min(1, a x + b)): the slope is a strictly between the bounds, else 0."""
    y, alpha = n.outputs[0], n.attributes.get("alpha", 0.2)
    bounds = [g.binary("Greater", y, g.scalar(0)), g.binary("Less", y, g.scalar(1))]
    if y in g.steep:
        return (g.scale(keep_where(g, n, gy, g.op("And", *bounds, shape=g.shape(y))), alpha),)
    return (g.mul(gy, g.scale(g.mul(*map(g.as_float, bounds)), alpha)),)


@rule("HardSwish")
def hard_swish(g: OnnxGraph, n: OnnxNode, gy: str, want: Want) -> Adjoints:
    """x max(0, min(1, x/6 + 1/2)): the slope is 0 up to -3, x/3 + 1/2 between, 1 from 3 on."""
    x, above = n.inputs[0], g.binary("Greater", n.inputs[0], g.scalar(-3))
    inside = g.mul(g.compare("Less", x, g.scalar(3)), g.add(g.scale(x, 1 / 3), g.scalar(-0.5)))
    slope = g.add(inside, g.scalar(1))
    if n.outputs[0] in g.steep:
        return (g.mul(keep_where(g, n, gy, above), slope),)
    return (g.mul(gy, g.mul(g.as_float(above), slope)),)


@rule("Clip")
def clip(g: OnnxGraph, n: OnnxNode, gy: str, want: Want) -> Adjoints:
    """Torch's clamp passes the gradient between the bounds and on them; hardtanh and relu6 do not pass it on them."""
    x, *bounds = n.inputs
    if any(want[1:]):
        raise UnsupportedPattern("Clip with bounds that are trained", n.where, "use torch.maximum and torch.minimum")
    if not n.call or n.call.name.rstrip("_") not in ("hardtanh", "relu6"):
        return (keep_where(g, n, gy, g.binary("Equal", x, n.outputs[0])),)
    beyond, y = zip(("Greater", "Less"), bounds, strict=False), n.outputs[0]
    # y, not x: both are inside alike, and a value that nobody else reads is joined with the convolution that makes it
    inside = [g.op(kind, y, bound, shape=g.shape(x)) for kind, bound in beyond if bound]
    both = inside[0] if len(inside) == 1 else g.op("And", *inside, shape=g.shape(x))
    return (keep_where(g, n, gy, both),)
