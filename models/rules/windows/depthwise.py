"""The weight adjoint of a depthwise convolution with many taps, written as a convolution whose kernel is the adjoint.

gw[c, k] = sum over b, p of gy[b, c, p] x[b, c, s p + d k - before]: x convolved with gy, where stride and dilation have
exchanged their roles. The sum over samples is part of it: along the first axis the samples of a channel lie one after
the other, with zeros between, so that no tap sees two of them. Columns of x by a one-hot convolution, as for few taps,
would multiply each value once per tap for each tap.
"""

from __future__ import annotations

from math import prod

from edge_sdk.models.ir.graph import OnnxGraph
from edge_sdk.models.ir.shapes import multiply
from edge_sdk.models.rules.windows.window import Window

MANY_TAPS = 10
TAPS_PER_ROW = 4  # at least so many for each row of the kernel, zeros counted, that is not a row of zeros

Sizes = tuple[int, ...]


def suits_stacking(window: Window, sx: Sizes, sy: Sizes) -> bool:
    """True for a convolution whose groups have one input channel each, with many taps, if zeros do not outweigh them.

    Args:
        sx, sy: shapes of a sample of x and y.
    """
    taps, rows = prod(window.kernel), sy[1]
    few_zeros = find_pitch(window, sx[1], rows) * TAPS_PER_ROW <= rows * taps
    return window.group == sx[0] > 1 and taps >= MANY_TAPS and few_zeros


def find_pitch(window: Window, height: int, rows: int) -> int:
    """Rows from one sample's adjoint to the next, so that no tap of x, `height` rows high, sees two samples."""
    s, reach, top = window.stride[0], window.reach[0], window.before[0]
    return max(-(-max(height + top, s * (rows - 1) + reach - top + 1) // s), rows)


def write_stacked(g: OnnxGraph, x: str, gy: str, window: Window, sw: Sizes) -> str:
    """gw of shape `sw` (out, 1, *kernel)."""
    (channels, height, *rest), (_, rows, *columns) = g.sample_shape(x), g.sample_shape(gy)
    s, pitch = window.stride[0], find_pitch(window, height, rows)
    image, kernel = stack_samples(g, x, s * pitch), stack_samples(g, gy, pitch)
    outputs = g.shape(kernel)[1]
    kernel = g.reshape(kernel, (outputs, 1, *g.shape(kernel)[2:]))
    spans = [v * (n - 1) + 1 - size for v, n, size in zip(window.stride[1:], columns, rest, strict=True)]
    ends = zip([1 - s, *spans], window.reach, window.before, strict=True)
    after, stops = [span + reach - before for span, reach, before in ends], window.kernel
    more = [-(min(0, v) // by) for v, by in zip(after, window.dilation, strict=True)]  # stops that no tap is for
    found = g.op(
        "Conv", image, kernel, group=channels, strides=list(window.dilation), dilations=list(window.stride),
        pads=[*window.before, *(max(0, v) for v in after)],
        shape=(1, sw[0], *(a + b for a, b in zip(stops, more, strict=True))),
    )  # fmt: skip
    axes = range(2, 2 + len(stops))
    return g.reshape(g.slices(found, axes, [0] * len(stops), stops, [1] * len(stops)), sw)


def stack_samples(g: OnnxGraph, v: str, pitch: int) -> str:
    """(B, C, H, ...) as one sample (1, C, B pitch, ...), with zeros up to `pitch` rows for each."""
    batch, (channels, height, *rest) = g.shape(v)[0], g.sample_shape(v)
    row = prod(rest)
    padded = g.pad(g.reshape(v, (batch, channels, height * row)), [0, 0, 0], [0, 0, (pitch - height) * row])
    return g.reshape(g.transpose(padded, [1, 0, 2]), (1, channels, multiply((batch, pitch)), *rest))
