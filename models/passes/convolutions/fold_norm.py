"""Batch normalisation with fixed statistics, folded into the convolution before it.

With s = scale / sqrt(variance + epsilon) per channel,
    s (conv(x, w) + b - mean) + shift  =  conv(x, s w) + s (b - mean) + shift
which costs passes over the weights instead of passes over the activations, forward and backward: reverse mode needs no
rule of its own, for it goes through the products. It pays where a step has more activations than weights.
"""

from __future__ import annotations

from collections.abc import Collection
from math import prod

import numpy as np

from edge_sdk.models.ir.graph import OnnxGraph
from edge_sdk.models.ir.nodes import OnnxNode
from edge_sdk.models.ir.proto import list_reads
from edge_sdk.models.rules.normalise import invert_root

SAMPLES = 8  # that a step has at least, for the comparison


def fold_norms(g: OnnxGraph, keep: Collection[str]) -> None:
    """Fold all that pay, in place; the values `keep` stay."""
    readers: dict[str, int] = {}
    for name in (i for n in g.nodes for i in list_reads(n)):
        readers[name] = readers.get(name, 0) + 1
    nodes = g.take_nodes()
    makers = {o: n for n in nodes for o in n.outputs}
    folded = {}
    for n in nodes:
        conv = makers.get(n.inputs[0]) if n.op == "BatchNormalization" else None
        if conv and conv.op == "Conv" and readers[n.inputs[0]] == 1 and n.inputs[0] not in keep and pays(g, conv, n):
            folded[n.outputs[0]] = conv
    gone = {conv.outputs[0] for conv in folded.values()}
    for n in nodes:
        if n.outputs[0] in folded:
            write_folded(g, folded[n.outputs[0]], n)
        elif n.outputs[0] not in gone:
            g.put_back(n)
    g.where = ""


def pays(g: OnnxGraph, conv: OnnxNode, norm: OnnxNode) -> bool:
    """True if a step has more activations than the convolution has weights, and the norm has fixed statistics."""
    weights, plane = prod(g.numbers(conv.inputs[1])[1:]), prod(g.sample_shape(norm.outputs[0])[1:])
    return not norm.attributes.get("training_mode") and SAMPLES * plane >= weights


def write_folded(g: OnnxGraph, conv: OnnxNode, norm: OnnxNode) -> None:
    """Append the convolution that gives what the norm gave."""
    g.where = norm.where
    (x, w, *bias), (_, scale, shift, mean, variance) = conv.inputs, norm.inputs
    s = g.mul(scale, invert_root(g, variance, norm))
    sizes = g.numbers(w)
    weight = g.mul(w, g.reshape(s, (sizes[0], *(1 for _ in sizes[1:]))))
    centre = g.sub(bias[0], mean) if bias and bias[0] else g.sub(g.constant(np.zeros(sizes[0])), mean)
    offset = g.add(g.mul(s, centre), shift)
    y = norm.outputs[0]
    g.op("Conv", x, weight, offset, shape=g.shape(y), output=y, **conv.attributes)
