"""Convolutions of few outputs as transposed convolutions with turned weights: the same sums, faster.

onnxruntime multiplies the weights, (outputs, inputs times taps), with columns that it copies from x; with few outputs
the copies count as much as the product. A transposed convolution multiplies (outputs times taps, inputs) with x as it
lies in memory, and adds up what comes out for each tap:

    y = conv(x, w)  =  transposed_conv(x, w'),   w'[i, o, k] = w[o, i, -k]

with a padding of (taps - 1 - padding). It multiplies at each position of x in place of y, so planes must stay about as
large (`EEGConformer` has a layer of 22 x 1 taps on 22 rows, of which one is left). For images and 3 x 3 taps it took
this share of the convolution's time: from 16 to 16 channels and from 32 to 32 0.75, from 64 to 64 0.85, from 128 to 32
0.55; but from 16 to 64 1.5, and for sequences 1.2 (onnxruntime 1.31 and 1.32; from 1.24 to 1.27 there is next to no
difference, in 1.22 and 1.23 it was 1.1 to 1.3, and in 1.20 up to 2). The gradient is that of the convolution.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from edge_sdk.models.ir.graph import CustomGradient, OnnxGraph
from edge_sdk.models.ir.nodes import OnnxNode
from edge_sdk.models.rules.windows.convolution import conv
from edge_sdk.models.rules.windows.window import Window, read_window

MOST_OUTPUTS = 64
"""Channels of y, which are also at most those of x."""
LEAST_POSITIONS = 0.8
"""Positions of y for each of x."""


def turn_convolutions(g: OnnxGraph) -> None:
    """Rewrite all convolutions that gain by it, in place. For graphs that will be differentiated."""
    for n in g.take_nodes():
        plain = n.op == "Conv" and not n.domain and n.outputs[0] not in g.custom_gradients
        window = read_window(g, n, g.numbers(n.inputs[1])[2:]) if plain else None
        if window is not None and gains(g, n, window):
            write_turned(g, n, window)
        else:
            g.put_back(n)
    g.where = ""


def gains(g: OnnxGraph, n: OnnxNode, window: Window) -> bool:
    """True for a dense convolution of images with several taps, few outputs beside its inputs, and planes that stay.

    It multiplies at each position of x, where the convolution does at each of y.
    """
    outputs, inputs, *kernel = g.numbers(n.inputs[1])
    before, after = (prod(g.sample_shape(value)[1:]) for value in (n.inputs[0], n.outputs[0]))
    inside = all(r >= p for r, p in zip(window.reach * 2, window.pads, strict=True))
    dense = window.dense and window.group == 1 and inside and after >= LEAST_POSITIONS * before
    return dense and len(kernel) == 2 and prod(kernel) > 1 and outputs <= min(inputs, MOST_OUTPUTS)


def write_turned(g: OnnxGraph, n: OnnxNode, window: Window) -> None:
    """Append the transposed convolution that gives what the convolution gave."""
    g.where = n.where
    (x, w, *bias), y = n.inputs, n.outputs[0]
    turned = g.transpose(g.flip(w, [2, 3]), [1, 0, 2, 3])
    pads = [r - p for r, p in zip(window.reach * 2, window.pads, strict=True)]
    g.op("ConvTranspose", x, turned, *bias, pads=pads, shape=g.shape(y), output=y)

    def backward(g: OnnxGraph, gy: str, want: Sequence[bool]) -> list[str | None]:
        return list(conv(g, n, gy, want))

    g.custom_gradients[y] = CustomGradient(tuple(n.inputs), backward)
