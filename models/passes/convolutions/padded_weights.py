"""Paddings of weights, kept apart from the convolutions that read them.

onnxruntime makes a padding part of the convolution behind it, whichever of its inputs that pads: a kernel that is put
into a larger one (RepVGG, ACNet) is lost, and the graph refused. With one more axis in front it sees no such pair.
"""

from __future__ import annotations

import numpy as np

from edge_sdk.models.ir.graph import OnnxGraph
from edge_sdk.models.ir.nodes import OnnxNode

CONVOLUTIONS = ("Conv", "ConvTranspose")


def keep_padded_weights(g: OnnxGraph) -> None:
    """Rewrite all such paddings, in place."""
    weights = {n.inputs[1] for n in g.nodes if n.op in CONVOLUTIONS}
    for n in g.take_nodes():
        if n.op == "Pad" and n.outputs[0] in weights and n.inputs[1] in g.constants and not any(n.inputs[3:]):
            write_deeper(g, n)
        else:
            g.put_back(n)
    g.where = ""


def write_deeper(g: OnnxGraph, n: OnnxNode) -> None:
    """Append a padding of the same value with an axis of size 1 in front."""
    g.where, (w, pads, *value), made = n.where, n.inputs, g.shape(n.outputs[0])
    before, after = np.split(g.constants[pads], 2)
    deeper = g.ints([0, *before, 0, *after])
    padded = g.op("Pad", g.reshape(w, (1, *g.shape(w))), deeper, *value, shape=(1, *made), **n.attributes)
    g.op("Reshape", padded, g.ints(g.numbers(n.outputs[0])), shape=made, output=n.outputs[0])
