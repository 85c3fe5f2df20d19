"""Operators that act on each element, y_i = f(x_i), and arithmetic with broadcasting.

At a kink of f the gradient is the one that torch chooses.
"""

from __future__ import annotations

from math import pi, sqrt

from edge_sdk.models.ir.errors import UnsupportedPattern
from edge_sdk.models.ir.graph import OnnxGraph
from edge_sdk.models.ir.nodes import OnnxNode
from edge_sdk.models.rules.piecewise import keep_where, write_exact_sigmoid
from edge_sdk.models.rules.table import Adjoints, Want, rule


@rule("Add")
def add(g: OnnxGraph, n: OnnxNode, gy: str, want: Want) -> Adjoints:
    return [g.unbroadcast(gy, g.shape(x)) if w else None for x, w in zip(n.inputs, want, strict=True)]


@rule("Sub")
def sub(g: OnnxGraph, n: OnnxNode, gy: str, want: Want) -> Adjoints:
    a, b = n.inputs
    return (
        g.unbroadcast(gy, g.shape(a)) if want[0] else None,
        g.neg(g.unbroadcast(gy, g.shape(b))) if want[1] else None,
    )


@rule("Mul")
def mul(g: OnnxGraph, n: OnnxNode, gy: str, want: Want) -> Adjoints:
    a, b = n.inputs
    return (
        g.unbroadcast(g.mul(gy, b), g.shape(a)) if want[0] else None,
        g.unbroadcast(g.mul(gy, a), g.shape(b)) if want[1] else None,
    )


@rule("Div")
def div(g: OnnxGraph, n: OnnxNode, gy: str, want: Want) -> Adjoints:
    """d(a/b) = da/b - (a/b) db/b."""
    a, b = n.inputs
    q = g.div(gy, b)
    return (
        g.unbroadcast(q, g.shape(a)) if want[0] else None,
        g.neg(g.unbroadcast(g.mul(q, n.outputs[0]), g.shape(b))) if want[1] else None,
    )


@rule("Pow")
def power(g: OnnxGraph, n: OnnxNode, gy: str, want: Want) -> Adjoints:
    """x^p: p x^(p-1), and x^p log(x) for the exponent. For a constant p = 2 that needs no second Pow."""
    x, p = n.inputs
    if p not in g.constants or g.constants[p].size != 1 or want[1]:
        return differentiate_power(g, n, gy, want)
    exponent = float(g.constants[p].reshape(()))
    if exponent == 0:
        return (g.mul(gy, g.scalar(0)),)
    rest = x if exponent == 2 else g.op("Pow", x, g.scalar(exponent - 1), shape=g.shape(x))
    if n.call and "norm" in n.call.name and exponent < 1:  # the root of a p-norm: torch's gradient at the origin is 0
        rest = g.select(g.binary("Equal", x, g.scalar(0)), g.scalar(0), rest)
    return (g.mul(gy, g.scale(rest, exponent)),)


def differentiate_power(g: OnnxGraph, n: OnnxNode, gy: str, want: Want) -> Adjoints:
    """x^p with an exponent that is computed or trained.

    As in torch, x has no gradient where p = 0, and p has none where x = 0 and p >= 0: the formulas give NaN there.
    """
    x, p = n.inputs
    zero, y, gx, gp = g.scalar(0), n.outputs[0], None, None
    if want[0]:
        flat = g.binary("Equal", p, zero)
        slope = g.mul(p, g.op("Pow", x, g.sub(p, g.scalar(1)), shape=g.shape(y)))
        gx = g.unbroadcast(g.mul(gy, g.select(flat, zero, slope)), g.shape(x))
    if want[1]:
        origin, rising = g.binary("Equal", x, zero), g.binary("GreaterOrEqual", p, zero)
        dead = g.op("And", origin, rising, shape=g.shape(y))
        slope = g.mul(y, g.unary("Log", g.select(dead, g.scalar(1), x)))
        gp = g.unbroadcast(g.mul(gy, g.select(dead, zero, slope)), g.shape(p))
    return gx, gp


@rule("Min", "Max")
def extremum(g: OnnxGraph, n: OnnxNode, gy: str, want: Want) -> Adjoints:
    """The larger or smaller of two values.

    Equal ones get half of the gradient each, as in torch's maximum; clamp, with one bound, gives it to the value.
    """
    if len(n.inputs) != 2:
        raise UnsupportedPattern(f"{n.op} of {len(n.inputs)} values", n.where, "nest calls of two")
    if n.call and n.call.name.startswith("clamp"):
        return clamp_at_one_bound(g, n, gy, want)
    out = []
    for mine, other, w in zip(n.inputs, reversed(n.inputs), want, strict=True):
        out.append(g.unbroadcast(share_by_halves(g, n, gy, mine, other), g.shape(mine)) if w else None)
    return out


def share_by_halves(g: OnnxGraph, n: OnnxNode, gy: str, mine: str, other: str) -> str:
    """The adjoint of a larger or smaller value: all where it wins, half where both are equal."""
    wins, ties = g.binary("Greater" if n.op == "Max" else "Less", mine, other), g.binary("Equal", *n.inputs)
    if n.outputs[0] in g.steep:
        return g.select(wins, gy, g.select(ties, g.scale(gy, 0.5), g.scalar(0)))
    return g.mul(gy, g.add(g.as_float(wins), g.scale(g.as_float(ties), 0.5)))


def clamp_at_one_bound(g: OnnxGraph, n: OnnxNode, gy: str, want: Want) -> Adjoints:
    """The value, which is the first input, gets the gradient up to the bound and on it, the bound beyond."""
    inside = g.binary("GreaterOrEqual" if n.op == "Max" else "LessOrEqual", *n.inputs)
    mine, rest = keep_where(g, n, gy, inside), g.unary("Not", inside)
    return (
        g.unbroadcast(mine, g.shape(n.inputs[0])) if want[0] else None,
        g.unbroadcast(keep_where(g, n, gy, rest), g.shape(n.inputs[1])) if want[1] else None,
    )


@rule("Where")
def where(g: OnnxGraph, n: OnnxNode, gy: str, want: Want) -> Adjoints:
    condition, a, b = n.inputs
    zero = g.scalar(0)
    return (
        None,
        g.unbroadcast(g.select(condition, gy, zero), g.shape(a)) if want[1] else None,
        g.unbroadcast(g.select(condition, zero, gy), g.shape(b)) if want[2] else None,
    )


@rule("Neg")
def neg(g: OnnxGraph, n: OnnxNode, gy: str, want: Want) -> Adjoints:
    return (g.neg(gy),)


@rule("Identity", "Cast")
def identity(g: OnnxGraph, n: OnnxNode, gy: str, want: Want) -> Adjoints:
    """Pass the adjoint on: casts between float types change no derivative, and casts to integers never get here."""
    return (gy,)


@rule("Abs")
def absolute(g: OnnxGraph, n: OnnxNode, gy: str, want: Want) -> Adjoints:
    return (g.mul(gy, g.unary("Sign", n.inputs[0])),)


@rule("Tanh")
def tanh(g: OnnxGraph, n: OnnxNode, gy: str, want: Want) -> Adjoints:
    y = n.outputs[0]
    return (g.mul(gy, g.sub(g.scalar(1), g.mul(y, y))),)


@rule("Sigmoid")
def sigmoid(g: OnnxGraph, n: OnnxNode, gy: str, want: Want) -> Adjoints:
    y = n.outputs[0]
    return (g.mul(gy, g.mul(y, g.sub(g.scalar(1), y))),)


@rule("Exp")
def exp(g: OnnxGraph, n: OnnxNode, gy: str, want: Want) -> Adjoints:
    return (g.mul(gy, n.outputs[0]),)


@rule("Log")
def log(g: OnnxGraph, n: OnnxNode, gy: str, want: Want) -> Adjoints:
    return (g.div(gy, n.inputs[0]),)


@rule("Sqrt")
def square_root(g: OnnxGraph, n: OnnxNode, gy: str, want: Want) -> Adjoints:
    return (g.div(g.scale(gy, 0.5), n.outputs[0]),)


@rule("Reciprocal")
def reciprocal(g: OnnxGraph, n: OnnxNode, gy: str, want: Want) -> Adjoints:
    y = n.outputs[0]
    return (g.neg(g.mul(gy, g.mul(y, y))),)


@rule("Sin")
def sin(g: OnnxGraph, n: OnnxNode, gy: str, want: Want) -> Adjoints:
    return (g.mul(gy, g.unary("Cos", n.inputs[0])),)


@rule("Cos")
def cos(g: OnnxGraph, n: OnnxNode, gy: str, want: Want) -> Adjoints:
    return (g.neg(g.mul(gy, g.unary("Sin", n.inputs[0]))),)


@rule("Tan")
def tan(g: OnnxGraph, n: OnnxNode, gy: str, want: Want) -> Adjoints:
    y = n.outputs[0]
    return (g.mul(gy, g.add(g.mul(y, y), g.scalar(1))),)


@rule("Atan")
def arc_tangent(g: OnnxGraph, n: OnnxNode, gy: str, want: Want) -> Adjoints:
    x = n.inputs[0]
    return (g.div(gy, g.add(g.mul(x, x), g.scalar(1))),)


@rule("Sinh")
def sinh(g: OnnxGraph, n: OnnxNode, gy: str, want: Want) -> Adjoints:
    return (g.mul(gy, g.unary("Cosh", n.inputs[0])),)


@rule("Cosh")
def cosh(g: OnnxGraph, n: OnnxNode, gy: str, want: Want) -> Adjoints:
    return (g.mul(gy, g.unary("Sinh", n.inputs[0])),)


@rule("Asin", "Acos")
def arc_sine(g: OnnxGraph, n: OnnxNode, gy: str, want: Want) -> Adjoints:
    x = n.inputs[0]
    slope = g.unary("Reciprocal", g.unary("Sqrt", g.sub(g.scalar(1), g.mul(x, x))))
    return (g.mul(gy, slope if n.op == "Asin" else g.neg(slope)),)


@rule("Asinh", "Acosh")
def inverse_hyperbolic(g: OnnxGraph, n: OnnxNode, gy: str, want: Want) -> Adjoints:
    """1 / sqrt(x^2 + 1), and 1 / sqrt(x^2 - 1)."""
    x = n.inputs[0]
    square = g.add(g.mul(x, x), g.scalar(1 if n.op == "Asinh" else -1))
    return (g.div(gy, g.unary("Sqrt", square)),)


@rule("Atanh")
def inverse_hyperbolic_tangent(g: OnnxGraph, n: OnnxNode, gy: str, want: Want) -> Adjoints:
    x = n.inputs[0]
    return (g.div(gy, g.sub(g.scalar(1), g.mul(x, x))),)


@rule("Mod")
def remainder(g: OnnxGraph, n: OnnxNode, gy: str, want: Want) -> Adjoints:
    """x - c floor(x / c): the slope of x is 1, also where it jumps."""
    if want[1]:
        raise UnsupportedPattern("a remainder whose divisor is trained", n.where, "divide by a fixed number")
    return (g.unbroadcast(gy, g.shape(n.inputs[0])),)


@rule("Erf")
def erf(g: OnnxGraph, n: OnnxNode, gy: str, want: Want) -> Adjoints:
    """erf'(x) = 2/sqrt(pi) exp(-x^2)."""
    x = n.inputs[0]
    bell = g.unary("Exp", g.neg(g.mul(x, x)))
    return (g.mul(gy, g.scale(bell, 2 / sqrt(pi))),)


@rule("Mish")
def mish(g: OnnxGraph, n: OnnxNode, gy: str, want: Want) -> Adjoints:
    """x t with t = tanh(softplus(x)): the slope is t + x (1 - t^2) sigmoid(x)."""
    x = n.inputs[0]
    t = g.unary("Tanh", g.unary("Softplus", x))
    rest = g.mul(g.sub(g.scalar(1), g.mul(t, t)), write_exact_sigmoid(g, x))
    return (g.mul(gy, g.add(t, g.mul(x, rest))),)
