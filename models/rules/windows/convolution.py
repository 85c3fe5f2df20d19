"""Conv and ConvTranspose.

With y = conv(x, w) and gy the adjoint of y: the adjoint of x is a transposed convolution of gy with w; the adjoint of
w correlates gy with x, written as matrix products over columns of x (weight_gradient.py); the adjoint of the bias is
the sum of gy over samples and positions.
"""

from __future__ import annotations

from math import prod

from edge_sdk.models.ir.evaluation.padding import refuse_automatic
from edge_sdk.models.ir.graph import OnnxGraph
from edge_sdk.models.ir.nodes import OnnxNode
from edge_sdk.models.ir.shapes import Shape, as_numbers
from edge_sdk.models.rules.table import Adjoints, Want, rule
from edge_sdk.models.rules.windows import few_positions, weight_gradient
from edge_sdk.models.rules.windows.window import Window, read_window


@rule("Conv")
def conv(g: OnnxGraph, n: OnnxNode, gy: str, want: Want) -> Adjoints:
    """Adjoints of x (B, C, *positions), w (O, C / groups, *taps) and the bias (O,)."""
    x, w = n.inputs[:2]
    window = read_window(g, n, g.numbers(w)[2:])
    gx = write_input_adjoint(g, gy, w, window, g.shape(x)) if want[0] else None
    gw = weight_gradient.write_weight_adjoint(g, x, gy, window, g.numbers(w)) if want[1] else None
    gb = sum_channels(g, gy) if len(n.inputs) > 2 and want[2] else None
    return gx, gw, gb


def write_input_adjoint(g: OnnxGraph, gy: str, w: str, window: Window, sx: Shape) -> str:
    """The adjoint of x, of shape `sx`: a transposed convolution.

    Where the window is depthwise and dense, a Conv with the flipped kernel gives the same and runs faster; so do
    products over all samples where there are few positions.
    """
    sw, sy = g.numbers(w), g.sample_shape(gy)
    if few_positions.has_few_positions(window, sw, as_numbers(sx[2:]), sy[1:]):
        return few_positions.write_input_adjoint(g, gy, w, window, sx)
    inside = all(r >= p for r, p in zip(window.reach, window.pads, strict=False))
    if window.dense and window.group == sw[0] == sx[1] and inside:
        pads = [r - p for r, p in zip(window.reach * 2, window.pads, strict=True)]
        turned = g.flip(w, range(2, len(sw)))
        return g.op(
            "Conv", gy, turned, strides=[1] * len(window.kernel), dilations=list(window.dilation), pads=pads,
            group=window.group, shape=sx,
        )  # fmt: skip
    return g.op(
        "ConvTranspose", gy, w, strides=list(window.stride), dilations=list(window.dilation), pads=window.pads,
        group=window.group, output_padding=find_rest(window, as_numbers(sx[2:]), sy[1:]), shape=sx,
    )  # fmt: skip


def find_rest(window: Window, inputs: tuple[int, ...], outputs: tuple[int, ...]) -> list[int]:
    """Positions at the end of each axis that no stop of the window reaches."""
    covered = [(o - 1) * s + r + 1 for o, s, r in zip(outputs, window.stride, window.reach, strict=True)]
    padded = [d + p + q for d, p, q in zip(inputs, window.before, window.after, strict=True)]
    return [d - c for d, c in zip(padded, covered, strict=True)]


def sum_channels(g: OnnxGraph, gy: str) -> str:
    """The sum over samples and positions, in two steps: first the long one over neighbours in memory."""
    shape = g.shape(gy)
    positions = prod(g.sample_shape(gy)[1:])
    return g.sum(g.sum(g.reshape(gy, (*shape[:2], positions)), [2]), [0])


@rule("ConvTranspose")
def conv_transpose(g: OnnxGraph, n: OnnxNode, gy: str, want: Want) -> Adjoints:
    """The adjoints of a transposed convolution.

    y is the input adjoint of a Conv with the same window, so the adjoint of x is that Conv, and x and gy exchange
    their roles in the adjoint of w.
    """
    x, w = n.inputs[:2]
    sx, sw = g.shape(x), g.numbers(w)
    window = read_window(g, n, sw[2:])
    refuse_automatic(n.op, n.attributes.get("auto_pad"), n.attributes.get("output_shape"), n.where)
    gx = cut_to_shape(g, convolve(g, gy, w, window), sx) if want[0] else None
    gw = weight_gradient.write_weight_adjoint(g, gy, x, window, sw) if want[1] else None
    gb = sum_channels(g, gy) if len(n.inputs) > 2 and want[2] else None
    return gx, gw, gb


def convolve(g: OnnxGraph, x: str, w: str, window: Window) -> str:
    """The convolution of x with w."""
    sizes = zip(g.sample_shape(x)[1:], window.before, window.after, window.reach, window.stride, strict=True)
    spatial = [(d + p + q - r - 1) // s + 1 for d, p, q, r, s in sizes]
    return g.op(
        "Conv", x, w, strides=list(window.stride), dilations=list(window.dilation), pads=window.pads,
        group=window.group, shape=(g.shape(x)[0], g.numbers(w)[0], *spatial),
    )  # fmt: skip


def cut_to_shape(g: OnnxGraph, v: str, shape: Shape) -> str:
    """Drop the positions past the end (output_padding can make room for more)."""
    for axis, (have, need) in enumerate(zip(g.shape(v), shape, strict=True)):
        if have != need:
            v = g.slice(v, axis, 0, as_numbers((need,))[0])
    return v
