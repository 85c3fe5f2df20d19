"""Losses as graphs: sum_i weight_i * loss_i over the samples, and the adjoint of that with respect to the output.

weights = 1/B gives the mean; weight 0 masks a sample. Where a sample has several outputs, loss_i is their mean.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod

import numpy as np

from edge_sdk.model.inputs import KNOWN_BELOW
from edge_sdk.models.ir.errors import CompileError
from edge_sdk.models.ir.graph import OnnxGraph
from edge_sdk.models.ir.marks import HEADS
from edge_sdk.models.ir.shapes import Dim, Shape, as_number

WriteLoss = Callable[[OnnxGraph, str], tuple[str, str]]
"""(graph, output of the module) -> names of the loss and of the adjoint of the output."""


def cross_entropy(g: OnnxGraph, output: str, smoothing: float = 0.0) -> tuple[str, str]:
    """-sum_k q_k log softmax(z)_k with labels y int64 (B,); its adjoint is w (softmax(z) - q).

    One LogSoftmax serves both. q is onehot(y), or with label smoothing (1 - s) onehot(y) + s / K over K classes, as in
    C. Szegedy et al., "Rethinking the Inception Architecture", CVPR 2016, section 7.
    """
    batch, classes = require_matrix(g, output)
    g.input("y", (batch,), "int64")
    weights = g.reshape(g.input("weights", (batch,)), (batch, 1))
    log_p = g.op("LogSoftmax", output, axis=1, shape=(batch, classes))
    count = as_number(classes, "the number of classes")
    values = g.constant(np.asarray([smoothing / count, 1 - smoothing + smoothing / count]))
    depth = g.constant(np.int64(count))
    hot = g.op("OneHot", "y", depth, values, axis=1, shape=(batch, classes))
    loss = g.neg(g.sum(g.mul(g.mul(log_p, hot), weights), [0, 1]))
    return loss, g.mul(g.sub(g.unary("Exp", log_p), hot), weights)


def soft_cross_entropy(g: OnnxGraph, output: str) -> tuple[str, str]:
    """-sum_k y_k log softmax(z)_k with y float, of the output's shape (B, K, ...): probabilities of K classes.

    Its adjoint is w (sum_k(y_k) softmax(z) - y) / P, with P positions of a sample, whose mean its loss is.

    Raises:
        CompileError: the output has no axis of classes.
    """
    if g.rank(output) < 2:
        raise CompileError("soft cross entropy needs an output of (batch, classes, ...), this module's is one number")
    y, weights, count = add_targets(g, output)
    shape = g.shape(output)
    positions = count // as_number(shape[1], "the number of classes")
    log_p = g.op("LogSoftmax", output, axis=1, shape=shape)
    loss = sum_weighted(g, g.neg(g.mul(y, log_p)), weights, positions)
    mass = g.sum(y, [1], keep=True)
    return loss, weigh_adjoint(g, g.sub(g.mul(g.unary("Exp", log_p), mass), y), weights, 1 / positions)


def binary_cross_entropy(g: OnnxGraph, output: str) -> tuple[str, str]:
    """max(z, 0) - z y + log(1 + exp(-|z|)) with y float in [0, 1], of the output's shape.

    Its adjoint is w (sigmoid(z) - y) / K, with K outputs per sample.
    """
    y, weights, count = add_targets(g, output)
    tail = g.unary("Log", g.add(g.unary("Exp", g.neg(g.unary("Abs", output))), g.scalar(1)))
    each = g.add(g.sub(g.unary("Relu", output), g.mul(output, y)), tail)
    return sum_weighted(g, each, weights, count), weigh_adjoint(
        g, g.sub(g.unary("Sigmoid", output), y), weights, 1 / count
    )


def mean_squared_error(g: OnnxGraph, output: str) -> tuple[str, str]:
    """(z - y)^2 with y float, of the output's shape; its adjoint is 2 w (z - y) / K, with K outputs per sample."""
    y, weights, count = add_targets(g, output)
    return squares(g, g.sub(output, y), weights, count)


def masked_squared_error(g: OnnxGraph, output: str) -> tuple[str, str]:
    """`mean_squared_error` where y is known, and 0 elsewhere: see `edge_sdk.model.inputs.UNKNOWN`."""
    y, weights, count = add_targets(g, output)
    return squares(g, known_difference(g, output, y), weights, count)


def squares(g: OnnxGraph, d: str, weights: str, count: int) -> tuple[str, str]:
    """The loss and the adjoint of squares of differences."""
    return sum_weighted(g, g.mul(d, d), weights, count), weigh_adjoint(g, d, weights, 2 / count)


def known_difference(g: OnnxGraph, output: str, y: str) -> str:
    """z - y where y is known, else 0."""
    return g.select(g.binary("Less", y, g.scalar(KNOWN_BELOW)), g.sub(output, y), g.scalar(0))


def huber(g: OnnxGraph, output: str) -> tuple[str, str]:
    """c (d - c / 2) with d = z - y and c = d within [-1, 1], of the output's shape: d^2 / 2, and |d| - 1/2 outside.

    Its adjoint is w c / K, with K outputs per sample. So one value that was measured wrongly pulls no harder than 1.
    Source: P. J. Huber, "Robust estimation of a location parameter", Annals of Mathematical Statistics 1964.
    """
    y, weights, count = add_targets(g, output)
    return huber_of(g, g.sub(output, y), weights, count)


def masked_huber(g: OnnxGraph, output: str) -> tuple[str, str]:
    """`huber` where y is known, and 0 elsewhere."""
    y, weights, count = add_targets(g, output)
    return huber_of(g, known_difference(g, output, y), weights, count)


def huber_of(g: OnnxGraph, d: str, weights: str, count: int) -> tuple[str, str]:
    """The loss and the adjoint of differences."""
    c = g.op("Clip", d, g.constant(np.asarray(-1.0)), g.constant(np.asarray(1.0)), shape=g.shape(d))
    each = g.mul(c, g.sub(d, g.scale(c, 0.5)))
    return sum_weighted(g, each, weights, count), weigh_adjoint(g, c, weights, 1 / count)


def require_matrix(g: OnnxGraph, output: str) -> tuple[Dim, Dim]:
    """The shape (batch, classes) of the output.

    Raises:
        CompileError: it has another number of axes.
    """
    refuse_positions(shape := g.shape(output))
    return shape[0], shape[1]


def refuse_positions(shape: Shape) -> None:
    """Raise CompileError for an output of the cross entropy that is not (batch, classes), e.g. one of each position."""
    if len(shape) != 2:
        told = f"cross entropy needs an output of (batch, classes), this module's has shape {shape[1:]} per sample"
        advice = (
            "return one row of classes per sample, or, with a label for each position, compile with --loss "
            "soft_cross_entropy, whose y has the output's shape: 1 at a position's class, 0 elsewhere"
        )
        raise CompileError(f"{told}; {advice}")


def add_targets(g: OnnxGraph, output: str) -> tuple[str, str, int]:
    """Declare the inputs y and weights; y, the weights ready to broadcast, and K, the outputs per sample."""
    shape = g.shape(output)
    y = g.input("y", shape)
    weights = g.reshape(g.input("weights", shape[:1]), (shape[0], *(1 for _ in shape[1:])))
    return y, weights, prod(g.sample_shape(output))


def sum_weighted(g: OnnxGraph, each: str, weights: str, count: int) -> str:
    """The weighted sum over samples of the mean over a sample's `count` outputs."""
    return g.scale(g.sum(g.mul(each, weights), range(g.rank(each))), 1 / count)


def weigh_adjoint(g: OnnxGraph, d: str, weights: str, factor: float) -> str:
    """d times its sample's weight times a factor."""
    return g.mul(d, g.scale(weights, factor))


def choose_loss(kind: str, smoothing: float) -> WriteLoss:
    """The loss of this name; `smoothing` is for labels, and 0 for the others."""
    return partial(cross_entropy, smoothing=smoothing) if smoothing else LOSSES[kind]


LOSSES: dict[str, WriteLoss] = {
    "cross_entropy": cross_entropy,
    "soft_cross_entropy": soft_cross_entropy,
    "binary_cross_entropy": binary_cross_entropy,
    "mean_squared_error": mean_squared_error,
    "huber": huber,
    "masked_squared_error": masked_squared_error,
    "masked_huber": masked_huber,
}


def write_losses(g: OnnxGraph, loss: WriteLoss, output: str, heads: Sequence[float]) -> tuple[str, dict[str, str]]:
    """The loss of a batch, and value -> its adjoint, for the output and for further results.

    Args:
        heads: weights of the losses of further results, which a mark at the output names in this order.
    """
    value, seed = loss(g, output)
    seeds = {output: seed}
    joined = [n for n in g.nodes if n.op == HEADS] if heads else []
    for name, weight in zip(joined[0].inputs[1:] if joined else [], heads, strict=True):
        one, adjoint = loss(g, name)
        value, adjoint = g.add(value, g.scale(one, weight)), g.scale(adjoint, weight)
        seeds[name] = g.add(seeds[name], adjoint) if name in seeds else adjoint
    return value, seeds
