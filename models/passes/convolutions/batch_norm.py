"""Batch normalisation with the statistics of the batch, for training.

The module is always exported in evaluation form (torch writes that form in any mode). Here each BatchNormalization
is replaced by x -> scale (x - mean) / std + shift with mean and std over the batch, and the running statistics become
    running <- (1 - momentum) running + momentum statistic      (the variance with B P - 1 in the denominator)
as in torch's training mode. Where running statistics are part of theta, their gradient is
    (momentum / STEP) (running - statistic)
so that plain descent with the step size STEP does just that; with other steps and optimisers a run's devices see to it
(edge_sdk/algebra/running_statistics.py). The mean over devices, proximal terms and personal layers are theirs as they
are the parameters'.

Batch renormalisation (S. Ioffe, "Batch Renormalization", NeurIPS 2017, algorithm 1) is x -> scale (r (x - mean) / std
+ d) + shift, with r = std / running std in [1 / R_MAX, R_MAX] and d = (mean - running mean) / running std in [-D_MAX,
D_MAX], which the gradient takes for constants: within these bounds a small batch is normalised as evaluation does it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from torch import nn

from edge_sdk.models.ir.errors import UnsupportedPattern
from edge_sdk.models.ir.graph import CustomGradient, OnnxGraph
from edge_sdk.models.ir.nodes import OnnxNode
from edge_sdk.models.ir.shapes import BatchDim
from edge_sdk.models.rules.normalise import invert_root

STEP = 0.1  # torch's usual momentum, and the usual step size here
VARIANCE = "running_var"
R_MAX, D_MAX = 3.0, 5.0  # those that the paper's training ends with


def name_statistics(net: nn.Module) -> list[str]:
    """Names of all running statistics of batch normalisations."""
    norms = [path for path, m in net.named_modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    known = {f"{path}.{k}".lstrip(".") for path in norms for k in ("running_mean", VARIANCE)}
    return [name for name, _ in net.named_buffers() if name in known]


def find_momenta(net: nn.Module) -> dict[str, float]:
    """Path of each batch normalisation -> its momentum.

    Raises:
        UnsupportedPattern: a layer averages over all batches so far (momentum None).
    """
    found = {}
    for path, layer in net.named_modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            if layer.momentum is None:
                raise UnsupportedPattern("BatchNorm with a cumulative average (momentum None)", path, "give a momentum")
            found[path] = float(layer.momentum)
    return found


def is_running(n: OnnxNode) -> bool:
    """True for a batch normalisation with running statistics, in the place of which those of the batch may be used."""
    return n.op == "BatchNormalization" and n.inputs[3].startswith("b.")


def find_least_batch(g: OnnxGraph) -> int:
    """Samples that a step needs: 2 where a norm has one value of each sample and channel, whose variance is 0."""
    shapes = [g.shape(n.inputs[0]) for n in g.nodes if is_running(n)]
    return 2 if any(s[0] == BatchDim(1) and set(s[2:]) <= {1} for s in shapes) else 1


def use_batch_statistics(g: OnnxGraph, biases: Mapping[str, str], renorm: bool = False) -> dict[str, str]:
    """Rewrite all batch normalisations in place; name of a running statistic -> name of the batch's.

    Args:
        biases: output of a norm -> what was left out of its input, and is part of the mean all the same.
    """
    fresh: dict[str, str] = {}
    forward, g.nodes = g.nodes, []
    for n in forward:
        if not is_running(n):
            g.nodes.append(n)
            continue
        g.where = n.where
        if n.inputs[3] in fresh:
            what = "one BatchNorm called more than once, each time with statistics of the batch"
            raise UnsupportedPattern(what, n.where, "give each place a layer of its own, or compile with --norm frozen")
        fresh |= rewrite_norm(g, n, biases.get(n.outputs[0], ""), renorm)
    g.where = ""
    return fresh


def find_momentum(momenta: Mapping[str, float], statistic: str) -> float:
    """The momentum of the layer that a running statistic (`b.<path>.running_mean`) belongs to."""
    path = statistic.removeprefix("b.").rpartition(".")[0]
    if path not in momenta:
        raise UnsupportedPattern("batch_norm as a function beside layers", path, "use nn.BatchNorm1d or its like")
    return momenta[path]


def rewrite_norm(g: OnnxGraph, n: OnnxNode, bias: str = "", renorm: bool = False) -> dict[str, str]:
    """Append y = scale d / std + shift with d = x - mean; name of a running statistic -> name of the batch's.

    BatchNormalization with given statistics is an affine map per channel in one pass, so it does all three: d, y, and
    half of the adjoint.
    """
    x, scale, shift, mean, variance = n.inputs
    shape, axes = g.shape(x), [0, *range(2, g.rank(x))]
    zero, one = (g.constant(np.full(g.shape(scale), v)) for v in (0.0, 1.0))
    epsilon = n.attributes.get("epsilon", 1e-5)
    mu = average_channels(g, x)
    d = g.op("BatchNormalization", x, one, zero, mu, one, epsilon=0.0, shape=shape)
    v = average_channels(g, g.mul(d, d))
    mean_there = g.add(mu, bias) if bias else mu
    factor, offset = correct(g, mean_there, v, n) if renorm else ("", "")
    slope0 = g.mul(scale, factor) if renorm else scale
    shift0 = g.add(shift, g.mul(scale, offset)) if renorm else shift
    g.op("BatchNormalization", d, slope0, shift0, zero, v, epsilon=epsilon, shape=shape, output=n.outputs[0])
    rstd = invert_root(g, v, n)

    def backward(g: OnnxGraph, gy: str, want: Sequence[bool]) -> list[str]:
        """With the means m0 of gy and m1 of gy d: gx = scale rstd (gy - m0 - d rstd^2 m1)."""
        slopes, count = g.mul(gy, d), count_values(g, x, axes)
        slope = g.mul(slope0, rstd)
        s0, s1 = (add_up_channels(g, v) for v in (gy, slopes))
        m0, m1 = g.div(s0, count), g.div(s1, count)  # not as means: each of these would be one more pass
        by_d = g.neg(g.mul(slope, g.mul(g.mul(rstd, rstd), m1)))
        rest = g.op("BatchNormalization", d, by_d, g.neg(g.mul(slope, m0)), zero, one, epsilon=0.0, shape=shape)
        gx = g.add(g.mul(gy, g.reshape(slope, (*g.shape(slope), *(1 for _ in shape[2:])))), rest)
        by_scale = g.mul(s1, rstd)
        if renorm:
            by_scale = g.add(g.mul(by_scale, factor), g.mul(s0, offset))
        return [gx, by_scale, s0]

    g.custom_gradients[n.outputs[0]] = CustomGradient((x, scale, shift), backward)
    return {mean: mean_there, variance: g.mul(v, correct_bias(g, count_values(g, x, axes)))}


def correct(g: OnnxGraph, mu: str, v: str, n: OnnxNode) -> tuple[str, str]:
    """r and d of batch renormalisation, per channel, from the batch's mean and variance."""
    mean, known = n.inputs[3], invert_root(g, n.inputs[4], n)
    std = g.unary("Sqrt", g.add(v, g.scalar(n.attributes.get("epsilon", 1e-5))))
    r = clip(g, g.mul(std, known), 1 / R_MAX, R_MAX)
    d = clip(g, g.mul(g.sub(mu, mean), known), -D_MAX, D_MAX)
    return r, d


def clip(g: OnnxGraph, x: str, low: float, high: float) -> str:
    """x between two bounds."""
    return g.op("Clip", x, g.scalar(low), g.scalar(high), shape=g.shape(x))


def average_channels(g: OnnxGraph, x: str) -> str:
    """The mean per channel: over positions, which are neighbours in memory, and then over samples."""
    return g.mean(g.mean(x, range(2, g.rank(x))), [0])


def add_up_channels(g: OnnxGraph, x: str) -> str:
    """The sum per channel, in the same order."""
    return g.sum(g.sum(x, range(2, g.rank(x))), [0])


def count_values(g: OnnxGraph, x: str, axes: Sequence[int]) -> str:
    """N, the values of a channel: batch times positions, which is known when the graph runs."""
    dims = g.op("Gather", g.op("Shape", x, shape=(g.rank(x),)), g.ints(axes), axis=0, shape=(len(axes),))
    return g.op("Cast", g.op("ReduceProd", dims, keepdims=0, shape=()), to="float", shape=())


def correct_bias(g: OnnxGraph, count: str) -> str:
    """N / (N - 1); 1 for a single value."""
    return g.div(count, g.op("Max", g.sub(count, g.scalar(1)), g.scalar(1), shape=()))


def mix(g: OnnxGraph, old: str, new: str, momentum: float) -> str:
    """The running statistic after one more batch."""
    return g.add(g.scale(old, 1 - momentum), g.scale(new, momentum))


def write_pull(g: OnnxGraph, old: str, new: str, momentum: float) -> str:
    """The gradient of a running statistic that is part of theta, for the share of a batch that `weights` add up to."""
    share = g.sum("weights", [0])
    return g.mul(g.mul(g.sub(old, new), g.scalar(momentum / STEP)), share)
