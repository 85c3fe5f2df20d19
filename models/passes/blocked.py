"""Convolutions in onnxruntime's blocked layout: an optional second version of a training graph.

onnxruntime's fastest CPU convolution works on images whose channels are stored in blocks (com.microsoft.nchwc). Its own
optimiser uses it only where weights are constants, which in training they are not; but the kernel takes
weights that are
computed, so the graph reorders them on the way. The operators are onnxruntime's own and may change: a device uses such
a graph only after a probe and the golden vectors have passed there, and says so where they do not.

Shapes: an image (B, C, H, W) becomes [B, C/b, H, W, b]; dense weights (O, I, K) become [O/b, I/b, K, b of I, b of O],
those of few input channels and of depthwise convolutions [O/b, I, K, b of O]. A value keeps its nominal shape.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from models.ir.graph import CustomGradient, OnnxGraph
from models.ir.nodes import OnnxNode
from models.ir.shapes import Dim, Shape, multiply
from models.rules import weight_gradient
from models.rules.convolution import sum_channels, write_input_adjoint
from models.rules.window import Window, read_window

DOMAIN = "com.microsoft.nchwc"
BLOCK = 16
Four = tuple[Dim, int, int, int]
WeightGradient = Callable[[OnnxGraph, str, str, Window, Shape], str]


def use_blocked_layout(g: OnnxGraph) -> int:
    """Rewrite every convolution that fits, in place; how many did."""
    forward, g.nodes, count = g.nodes, [], 0
    for n in forward:
        window = read_window(g, n, g.shape(n.inputs[1])[2:]) if n.op == "Conv" else None
        if window is None or not fits(g, n, window):
            g.nodes.append(n)
            continue
        g.where, count = n.where, count + 1
        rewrite_convolution(g, n, window)
    g.where = ""
    return count


def fits(g: OnnxGraph, n: OnnxNode, window: Window) -> bool:
    outputs, per_group, *_ = g.shape(n.inputs[1])
    channels = g.shape(n.inputs[0])[1]
    if len(window.kernel) > 2 or outputs % BLOCK:
        return False
    return is_depthwise(window, outputs, channels) or (window.group == 1 and (per_group % BLOCK == 0 or per_group < BLOCK))


def is_depthwise(window: Window, outputs: Dim, channels: Dim) -> bool:
    return window.group == outputs == channels


def rewrite_convolution(g: OnnxGraph, n: OnnxNode, window: Window) -> None:
    x, w = n.inputs[:2]
    sx, sw, sy = g.shape(x), g.shape(w), g.shape(n.outputs[0])
    depthwise = is_depthwise(window, sw[0], sx[1])
    weights = block_outputs(g, w) if depthwise or sw[1] < BLOCK else block_weights(g, w)
    y = convolve(g, x, weights, sw, sy, window, bias=n.inputs[2] if len(n.inputs) > 2 else "")
    g.op("Identity", y, shape=sy, output=n.outputs[0])

    def backward(g: OnnxGraph, gy: str, want: Sequence[bool]) -> list[str | None]:
        gx = write_blocked_input_adjoint(g, gy, w, window, sx) if want[0] else None
        gw = write_blocked_weight_adjoint(g, x, gy, window, sw) if want[1] else None
        return [gx, gw, sum_channels(g, gy) if len(want) > 2 and want[2] else None]

    g.custom_gradients[n.outputs[0]] = CustomGradient(tuple(n.inputs), backward)


# -- layouts ---------------------------------------------------------------------------------------------------------


def as_image(shape: Shape) -> Four:
    """A shape as that of images: a sequence is an image of height 1."""
    return (shape[0], shape[1], 1, shape[2]) if len(shape) == 3 else shape  # type: ignore[return-value]


def reorder(g: OnnxGraph, v: str) -> str:
    return g.op("ReorderInput", v, domain=DOMAIN, shape=g.shape(v))


def to_blocked(g: OnnxGraph, v: str) -> str:
    return reorder(g, g.reshape(v, as_image(g.shape(v))))


def from_blocked(g: OnnxGraph, v: str, shape: Shape) -> str:
    """A blocked image as an ordinary value of `shape`."""
    four = as_image(shape)
    return g.reshape(g.op("ReorderOutput", v, domain=DOMAIN, channels=four[1], shape=four), shape)


def block_outputs(g: OnnxGraph, w: str) -> str:
    """(O, I, K) -> [O/b, I K, b]."""
    sw = g.shape(w)
    inner = int(prod(sw[1:]))
    return reorder(g, g.reshape(w, (1, sw[0], 1, inner)))


def block_weights(g: OnnxGraph, w: str) -> str:
    """(O, I, K) -> [O/b, I/b, K, b of I, b of O]."""
    outputs, inputs, *kernel = g.shape(w)
    taps, b = prod(kernel), BLOCK
    split = g.reshape(block_outputs(g, w), (outputs // b, inputs // b, b, taps, b))
    return g.transpose(split, [0, 1, 3, 2, 4]) if taps > 1 else split


def block_turned_weights(g: OnnxGraph, w: str) -> str:
    """(O, I, K) -> the flipped kernel with inputs and outputs exchanged: [I/b, O/b, K, b of O, b of I]."""
    outputs, inputs, *kernel = g.shape(w)
    taps, b = prod(kernel), BLOCK
    rows = reorder(g, g.reshape(w, (outputs, inputs, 1, taps)))
    split = g.transpose(g.reshape(rows, (outputs // b, b, inputs // b, taps, b)), [2, 0, 3, 1, 4])
    return pick(g, split, 2, range(taps - 1, -1, -1))


def pick(g: OnnxGraph, v: str, axis: int, index: Sequence[int]) -> str:
    shape = list(g.shape(v))
    if list(index) == list(range(int(shape[axis]))):
        return v
    shape[axis] = len(index)
    return g.op("Gather", v, g.ints(index), axis=axis, shape=tuple(shape))


# -- convolutions ----------------------------------------------------------------------------------------------------


def convolve(g: OnnxGraph, x: str, weights: str, sw: Shape, sy: Shape, window: Window, bias: str = "") -> str:
    """The convolution of an ordinary value with blocked weights, as an ordinary value of shape `sy`."""
    image = g.reshape(x, as_image(g.shape(x)))
    image = image if g.shape(image)[1] < BLOCK else reorder(g, image)
    return from_blocked(g, write_kernel(g, image, weights, sw, as_image(sy), window, bias), sy)


def write_kernel(g: OnnxGraph, image: str, weights: str, sw: Shape, sy: Four, window: Window, bias: str = "") -> str:
    one = len(window.kernel) == 1
    window = (1, *window.kernel) if one else window.kernel
    before, after = ((0, *window.before), (0, *window.after)) if one else (window.before, window.after)
    at = {
        "strides": [1, *window.stride] if one else list(window.stride),
        "dilations": [1, *window.dilation] if one else list(window.dilation),
        "pads": [*before, *after],
        "kernel_shape": list(window),
        "group": window.group,
    }
    inputs = [image, g.reshape(weights, (*sw[:2], *window)), *([bias] if bias else [])]
    return g.op("Conv", *inputs, domain=DOMAIN, shape=sy, **at)


def write_blocked_input_adjoint(g: OnnxGraph, gy: str, w: str, window: Window, sx: Shape) -> str:
    sw = g.shape(w)
    depthwise = is_depthwise(window, sw[0], sx[1])
    inside = all(r >= p for r, p in zip(window.reach * 2, window.pads, strict=True))
    if (
        depthwise
        and len(window.kernel) == 1
        and window.dilation == (1,)
        and window.stride[0] <= 2
        and int(sx[2]) % window.stride[0] == 0
    ):
        return write_phases(g, gy, w, window, sx)
    if not window.dense or not inside or (not depthwise and sw[1] % BLOCK):
        return write_input_adjoint(g, gy, w, window, sx)
    turned = Window(
        window.kernel,
        window.stride,
        tuple(r - p for r, p in zip(window.reach, window.before, strict=True)),
        tuple(r - p for r, p in zip(window.reach, window.after, strict=True)),
        window.dilation,
        window.group,
    )
    if depthwise:
        rows = g.reshape(block_outputs(g, w), (sw[0] // BLOCK, prod(window.kernel), BLOCK))
        weights, shape = pick(g, rows, 1, range(prod(window.kernel) - 1, -1, -1)), sw
    else:
        weights, shape = block_turned_weights(g, w), (sw[1], sw[0], *window.kernel)
    return convolve(g, gy, weights, shape, sx, turned)


def write_phases(g: OnnxGraph, gy: str, w: str, window: Window, sx: Shape) -> str:
    """Depthwise in one dimension: gx[s j + r] = sum over taps k = r + p (mod s) of gy[j + (r + p - k) / s] w[k].

    One convolution per phase r, put side by side in the blocked layout.
    """
    batch, channels, length = sx
    (taps,), (s,), p, b = window.kernel, window.stride, window.before[0], BLOCK
    image = to_blocked(g, gy)
    rows = g.reshape(block_outputs(g, w), (channels // b, taps, b))
    lanes, many, out = multiply((batch, channels // b)), int(length) // s, int(g.shape(gy)[2])
    parts = []
    for r in range(s):
        ks = [k for k in range(taps - 1, -1, -1) if (r + p - k) % s == 0]
        first, last = (r + p - ks[0]) // s, (r + p - ks[-1]) // s
        one = Window((len(ks),), (1,), (-first,), (last + many - out,), (1,), int(channels))
        part = write_kernel(g, image, pick(g, rows, 1, ks), (channels, 1, len(ks)), (batch, channels, 1, many), one)
        parts.append(g.reshape(part, (lanes, many, 1, b)))
    together = g.reshape(g.concat(parts, 2), (batch, channels, 1, length))
    return from_blocked(g, together, sx)


def write_blocked_weight_adjoint(g: OnnxGraph, x: str, gy: str, window: Window, sw: Shape) -> str:
    """Depthwise in one dimension: for each tap multiply and sum, all channels of a block at once."""
    sx, sy, b = g.shape(x), g.shape(gy), BLOCK
    if not (is_depthwise(window, sw[0], sx[1]) and len(window.kernel) == 1):
        return weight_gradient.write_weight_adjoint(g, x, gy, window, sw)
    batch, channels, length = sx
    lanes, out, stride = multiply((batch, channels // b)), int(sy[2]), window.stride[0]
    rows = g.pad(g.reshape(to_blocked(g, x), (lanes, length, b)), [0, window.before[0], 0], [0, window.after[0], 0])
    adjoint, taps = g.reshape(to_blocked(g, gy), (lanes, out, b)), []
    for k in range(window.kernel[0]):
        first = k * window.dilation[0]
        seen = g.slice(rows, 1, first, first + (out - 1) * stride + 1, stride)
        summed = g.reshape(g.sum(g.mul(seen, adjoint), [1]), (batch, channels))
        taps.append(g.sum(summed, [0], keep=True))
    return g.reshape(g.transpose(g.concat(taps, 0), [1, 0]), sw)


# -- probe -----------------------------------------------------------------------------------------------------------


def write_probe() -> OnnxGraph:
    """x (1, 2 b, 1, 3) -> y: the blocked layout as this machine's onnxruntime makes it."""
    g = OnnxGraph()
    g.input("x", (1, 2 * BLOCK, 1, 3))
    g.op("ReorderInput", "x", domain=DOMAIN, shape=g.shape("x"), output="y")
    return g


def expect_probe() -> tuple[np.ndarray, np.ndarray]:
    """(x, y) of the probe where the block is the one that the graphs were written for."""
    x = np.arange(6 * BLOCK, dtype=np.float32).reshape(1, 2 * BLOCK, 1, 3)
    return x, x.reshape(2, BLOCK, 3).transpose(0, 2, 1).reshape(x.shape)
