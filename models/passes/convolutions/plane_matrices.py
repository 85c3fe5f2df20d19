"""Depthwise convolutions on small planes, as one product per channel.

onnxruntime's depthwise convolutions take a copy of each plane's taps or go through the padding tap by tap, plane by
plane: for a plane of 2 x 2 and 7 x 7 taps most of them meet zeros. There the taps of a channel, put where they meet an
input, are a small matrix M (P inputs, Q outputs), and with x (C, B, P) and y (C, B, Q)
    y = x M,    gx = gy M',    gM = x' gy
which reverse mode makes of the products. M = w S with a constant S (taps, P Q) of ones and zeros, so that gw = gM S'.
"""

from __future__ import annotations

from math import prod

import numpy as np

from edge_sdk.models.ir.graph import OnnxGraph
from edge_sdk.models.ir.nodes import OnnxNode
from edge_sdk.models.rules.windows.few_positions import select_taps
from edge_sdk.models.rules.windows.window import Window, read_window

LARGEST_MATRIX = 256
"""Entries of M up to which the product was faster, by 3 (3 x 3 taps) to 15 times (7 x 7 and more)."""


def use_plane_matrices(g: OnnxGraph) -> None:
    """Rewrite all convolutions that gain by it, in place."""
    for n in g.take_nodes():
        window = read_window(g, n, g.numbers(n.inputs[1])[2:]) if n.op == "Conv" and not n.domain else None
        if window is not None and has_small_planes(g, n, window):
            write_products(g, n, window)
        else:
            g.put_back(n)
    g.where = ""


def has_small_planes(g: OnnxGraph, n: OnnxNode, window: Window) -> bool:
    """True for a depthwise convolution, one kernel a channel, with more than one tap and a small matrix."""
    (channels, *inputs), (made, *outputs) = (g.sample_shape(v) for v in (n.inputs[0], n.outputs[0]))
    depthwise = window.group == channels == made
    return depthwise and prod(window.kernel) > 1 and prod(inputs) * prod(outputs) <= LARGEST_MATRIX


def write_products(g: OnnxGraph, n: OnnxNode, window: Window) -> None:
    """Append the products that give what the convolution gave."""
    g.where = n.where
    (x, w, *bias), y = n.inputs, n.outputs[0]
    batch, (channels, *inputs), shape = g.shape(x)[0], g.sample_shape(x), g.shape(y)
    outputs = g.sample_shape(y)[1:]
    taps, before, after = prod(window.kernel), prod(inputs), prod(outputs)
    met = select_taps(window, tuple(inputs), outputs).reshape(before, after, taps)
    spread = g.constant(np.moveaxis(met, 2, 0).reshape(taps, before * after))
    matrices = g.reshape(g.matmul(g.reshape(w, (channels, taps)), spread), (channels, before, after))
    rows = g.transpose(g.reshape(x, (batch, channels, before)), [1, 0, 2])
    made = g.transpose(g.matmul(rows, matrices), [1, 0, 2])
    if bias and bias[0]:
        made = g.add(made, g.reshape(bias[0], (channels, 1)))
    g.op("Reshape", made, g.ints([0, *g.numbers(w)[:1], *outputs]), shape=shape, output=y)
