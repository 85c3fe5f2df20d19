"""Biases in front of a norm that takes the mean of each channel away: left out, for they move nothing.

norm(x + b) = norm(x) for one b per channel, and the gradient of b is 0. In floats it is not idle: where x is far
smaller than b, x + b has few digits of x left, and the mean that is taken from it is rounded like b, not like x, which
moves all values of a channel to the same side. (Torch adds up means in double, and loses only the first of the two.)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from edge_sdk.models.ir.graph import OnnxGraph
from edge_sdk.models.ir.nodes import OnnxNode
from edge_sdk.models.ir.proto import list_reads

LAYERS = ("Conv", "ConvTranspose", "Gemm")
"""Operators whose third input is added last; a Gemm's counts only with one bias for each column."""


def drop_idle_biases(g: OnnxGraph, keep: Collection[str], is_centring: Callable[[OnnxNode], bool]) -> dict[str, str]:
    """Leave out the idle biases of a forward graph, in place.

    Args:
        keep: values that others refer to by name.
        is_centring: says of a node if it takes the mean of each channel of its first input away.

    Returns:
        output of a norm -> the bias (C,) that was left out in front of it
    """
    g.nodes = g.take_nodes()
    g.makers = {o: n for n in g.nodes for o in n.outputs}
    readers: dict[str, int] = {}
    for name in (i for n in g.nodes if n.op != "Shape" for i in list_reads(n)):
        readers[name] = readers.get(name, 0) + 1
    read_once = {k for k, count in readers.items() if count == 1 and k not in keep}
    dropped = {}
    for norm in filter(is_centring, g.nodes):
        layer = find_layer(g.makers, g, norm, read_once)
        if layer is not None:
            dropped[norm.outputs[0]] = layer.inputs[2]
            layer.inputs = layer.inputs[:2]
    return dropped


def find_layer(
    makers: Mapping[str, OnnxNode], g: OnnxGraph, norm: OnnxNode, read_once: Collection[str]
) -> OnnxNode | None:
    """The layer with a bias whose result only this norm reads, perhaps reshaped channel by channel."""
    x = norm.inputs[0]
    while x in read_once and x in makers:
        made = makers[x]
        if made.op in LAYERS:
            return made if has_bias(g, made) else None
        if made.op != "Reshape" or g.shape(made.inputs[0])[:2] != g.shape(x)[:2]:
            return None
        x = made.inputs[0]
    return None


def has_bias(g: OnnxGraph, layer: OnnxNode) -> bool:
    """True if a layer adds one number to each channel, times 1."""
    there = len(layer.inputs) == 3 and layer.inputs[2] != ""
    return there and g.shape(layer.inputs[2]) == g.shape(layer.outputs[0])[1:2] and layer.attributes.get("beta", 1) == 1


def is_instance_norm(n: OnnxNode) -> bool:
    """True for a norm with a mean of its own for each sample and channel; groups of one channel are exported as it."""
    return n.op == "InstanceNormalization"
