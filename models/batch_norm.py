"""Batch normalisation with the statistics of the batch, for training.

The module is always exported in evaluation form (torch writes that form in any mode). Here each BatchNormalization
is replaced by x -> scale (x - mean) / std + shift with mean and std over the batch, and the running statistics become
    running <- (1 - momentum) running + momentum statistic      (the variance with B P - 1 in the denominator)
which is what torch does in training mode.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import nn

from models.errors import UnsupportedPattern
from models.graph import Block, Graph, Node
from models.rules.normalise import inverse_root, normalised_adjoint


def momenta(net: nn.Module) -> dict[str, float]:
    """Name of a layer -> its momentum."""
    found = {}
    for path, layer in net.named_modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            if layer.momentum is None:
                raise UnsupportedPattern("BatchNorm with a cumulative average (momentum None)", path, "give a momentum")
            found[path] = float(layer.momentum)
    return found


def use_batch_statistics(g: Graph, momentum: Mapping[str, float]) -> dict[str, str]:
    """Rewrite all nodes in place. Graph input of a buffer -> its new value."""
    updates: dict[str, str] = {}
    forward, g.nodes = g.nodes, []
    for n in forward:
        if n.op != "BatchNormalization" or not n.inputs[3].startswith("b."):
            g.nodes.append(n)
            continue
        g.where = n.where
        updates |= normalise(g, n, momentum[n.inputs[3].removeprefix("b.").rpartition(".")[0]])
    g.where = ""
    return updates


def normalise(g: Graph, n: Node, momentum: float) -> dict[str, str]:
    x, scale, shift, mean, variance = n.inputs
    shape = g.shape(x)
    channels = shape[1]
    per_channel = (1, channels, *(1 for _ in shape[2:]))
    axes = [0, *range(2, len(shape))]
    mu = g.mean(x, axes, keep=True)
    d = g.sub(x, mu)
    v = g.mean(g.mul(d, d), axes, keep=True)
    rstd = inverse_root(g, v, n)
    xhat = g.mul(d, rstd)
    scaled = g.mul(xhat, g.reshape(scale, per_channel))
    g.op("Add", scaled, g.reshape(shift, per_channel), shape=shape, output=n.outputs[0])

    def backward(g: Graph, gy: str, want: Sequence[bool]) -> list[str]:
        return [normalised_adjoint(g, gy, xhat, rstd, axes)]

    g.blocks[xhat] = Block((x,), backward)
    fresh = g.reshape(mu, (channels,)), g.mul(g.reshape(v, (channels,)), unbiased(g, x, axes))
    return {old: mixed(g, old, new, momentum) for old, new in zip((mean, variance), fresh, strict=True)}


def unbiased(g: Graph, x: str, axes: Sequence[int]) -> str:
    """N / (N - 1), N = batch times positions, known when the graph runs."""
    dims = g.op("Gather", g.op("Shape", x, shape=(g.rank(x),)), g.ints(axes), axis=0, shape=(len(axes),))
    count = g.op("Cast", g.op("ReduceProd", dims, keepdims=0, shape=()), to="float", shape=())
    return g.div(count, g.sub(count, g.scalar(1)))


def mixed(g: Graph, old: str, new: str, momentum: float) -> str:
    return g.add(g.scaled(old, 1 - momentum), g.scaled(new, momentum))
