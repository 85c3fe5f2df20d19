"""Convolutions in onnxruntime's blocked layout: an optional second version of a training graph.

onnxruntime's fastest CPU convolution works on images whose channels are stored in blocks (com.microsoft.nchwc). Its own
optimiser uses it only where weights are constants, which in training they are not; but the kernel takes weights that
are computed, so the graph reorders them on the way. The operators are onnxruntime's own and may change: a device uses
such a graph only after a probe and the golden vectors have passed there, and says so where they do not.

Shapes: an image (B, C, H, W) becomes [B, C/b, H, W, b]; dense weights (O, I, K) become [O/b, I/b, K, b of I, b of O],
those of few input channels and of depthwise convolutions [O/b, I, K, b of O]. A value keeps its nominal shape. How many
channels b are in a block depends on the processor: 16 with AVX-512 and on 64-bit Arm, 8 with AVX and AVX2.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from edge_sdk.models.ir.graph import CustomGradient, OnnxGraph
from edge_sdk.models.ir.nodes import OnnxNode
from edge_sdk.models.ir.shapes import Dim, Shape, as_number, as_numbers, multiply
from edge_sdk.models.rules.windows import weight_gradient
from edge_sdk.models.rules.windows.convolution import sum_channels, write_input_adjoint
from edge_sdk.models.rules.windows.window import Window, read_window

DOMAIN = "com.microsoft.nchwc"
BLOCKS = (16, 8)
"""Channels that a block may have."""
Sizes = tuple[int, ...]
Image = tuple[Dim, int, int, int]
"""Shape of images: (B, C, H, W)."""


def use_blocked_layout(g: OnnxGraph, b: int) -> int:
    """Rewrite every convolution that fits blocks of b channels, in place; the number of them."""
    forward, g.nodes, count = g.nodes, [], 0
    for n in forward:
        window = read_window(g, n, g.numbers(n.inputs[1])[2:]) if n.op == "Conv" else None
        if window is None or not fits(g, n, window, b):
            g.nodes.append(n)
            continue
        g.where, count = n.where, count + 1
        rewrite_convolution(g, n, window, b)
    g.where = ""
    return count


def fits(g: OnnxGraph, n: OnnxNode, window: Window, b: int) -> bool:
    """True if the channels of a convolution fill whole blocks."""
    outputs, per_group, *_ = g.numbers(n.inputs[1])
    channels = g.sample_shape(n.inputs[0])[0]
    if len(window.kernel) > 2 or outputs % b:
        return False
    dense = window.group == 1 and (per_group % b == 0 or per_group < b)
    grouped = per_group % b == 0 and outputs // window.group % b == 0
    return is_depthwise(window, outputs, channels) or dense or grouped


def is_depthwise(window: Window, outputs: int, channels: int) -> bool:
    """True if every channel has a kernel of its own."""
    return window.group == outputs == channels


def rewrite_convolution(g: OnnxGraph, n: OnnxNode, window: Window, b: int) -> None:
    """Append a convolution in the blocked layout, with its backward pass."""
    x, w = n.inputs[:2]
    sx, sw, sy = g.shape(x), g.numbers(w), g.shape(n.outputs[0])
    depthwise = is_depthwise(window, sw[0], as_number(sx[1]))
    weights = block_outputs(g, w) if depthwise or sw[1] < b else block_weights(g, w, b)
    y = convolve(g, x, weights, sw, sy, window, b, bias=n.inputs[2] if len(n.inputs) > 2 else "")
    g.op("Identity", y, shape=sy, output=n.outputs[0])

    def backward(g: OnnxGraph, gy: str, want: Sequence[bool]) -> list[str | None]:
        gx = write_blocked_input_adjoint(g, gy, w, window, sx, b) if want[0] else None
        gw = write_blocked_weight_adjoint(g, x, gy, window, sw, b) if want[1] else None
        return [gx, gw, sum_channels(g, gy) if len(want) > 2 and want[2] else None]

    g.custom_gradients[n.outputs[0]] = CustomGradient(tuple(n.inputs), backward)


# -- layouts ---------------------------------------------------------------------------------------------------------


def as_image(shape: Shape) -> Image:
    """The shape as that of images: a sequence is an image of height 1."""
    channels, *sizes = as_numbers(shape[1:])
    height, width = sizes if len(sizes) == 2 else (1, sizes[0])
    return shape[0], channels, height, width


def reorder(g: OnnxGraph, v: str) -> str:
    """An image (or weights shaped like one) in the blocked layout."""
    return g.op("ReorderInput", v, domain=DOMAIN, shape=g.shape(v))


def to_blocked(g: OnnxGraph, v: str) -> str:
    """An ordinary value as a blocked image."""
    return reorder(g, g.reshape(v, as_image(g.shape(v))))


def from_blocked(g: OnnxGraph, v: str, shape: Shape) -> str:
    """A blocked image as an ordinary value of `shape`."""
    image = as_image(shape)
    return g.reshape(g.op("ReorderOutput", v, domain=DOMAIN, channels=image[1], shape=image), shape)


def block_outputs(g: OnnxGraph, w: str) -> str:
    """Weights (O, I, K) as [O/b, I K, b]."""
    sw = g.numbers(w)
    return reorder(g, g.reshape(w, (1, sw[0], 1, prod(sw[1:]))))


def block_weights(g: OnnxGraph, w: str, b: int) -> str:
    """Weights (O, I, K) as [O/b, I/b, K, b of I, b of O]."""
    outputs, inputs, *kernel = g.numbers(w)
    taps = prod(kernel)
    if taps > 1:  # before the outputs are blocked: afterwards it takes twice the time
        w = g.transpose(g.reshape(w, (outputs, inputs // b, b, taps)), [0, 1, 3, 2])
    return g.reshape(reorder(g, g.reshape(w, (1, outputs, 1, inputs * taps))), (outputs // b, inputs // b, taps, b, b))


def block_turned_weights(g: OnnxGraph, w: str, groups: int, b: int) -> str:
    """Weights (O, I, K) flipped, inputs and outputs of each group exchanged: [I/b, O/b, K, b of O, b of I]."""
    outputs, inputs, *kernel = g.numbers(w)
    taps = prod(kernel)
    rows = reorder(g, g.reshape(w, (outputs, inputs, 1, taps)))
    shape = (groups, outputs // groups // b, b, inputs // b, taps)
    if taps == 1:
        return g.transpose(g.reshape(rows, (*shape, b)), [0, 3, 1, 4, 2, 5])
    order = count_rows(g, shape, (0, 3, 1, 4, 2), flipped=4)
    return g.op("Gather", g.reshape(rows, (prod(shape), b)), order, axis=0, shape=(prod(shape), b))


def count_rows(g: OnnxGraph, shape: Sizes, order: Sequence[int], flipped: int) -> str:
    """Indices, int64, of the rows of an array [*shape, b] with its axes in another order and one of them from its end.

    They are written as a sum of one short constant for each axis: onnxruntime adds constants when it loads a graph.
    """
    found = g.constant(np.zeros((1,) * len(shape), np.int64))
    for place, axis in enumerate(order):
        first = np.arange(shape[axis])[:: -1 if axis == flipped else 1] * prod(shape[axis + 1 :])
        part = np.expand_dims(first, [at for at in range(len(shape)) if at != place])
        found = g.op("Add", found, g.constant(part), shape=np.broadcast_shapes(g.numbers(found), part.shape))
    return g.reshape(found, (prod(shape),))


def pick(g: OnnxGraph, v: str, axis: int, index: Sequence[int]) -> str:
    """The entries `index` of an axis, in that order."""
    shape = list(g.shape(v))
    if list(index) == list(range(as_number(shape[axis]))):
        return v
    shape[axis] = len(index)
    return g.op("Gather", v, g.ints(index), axis=axis, shape=tuple(shape))


# -- convolutions ----------------------------------------------------------------------------------------------------


def convolve(g: OnnxGraph, x: str, weights: str, sw: Sizes, sy: Shape, window: Window, b: int, bias: str = "") -> str:
    """The convolution of an ordinary value with blocked weights, as an ordinary value of shape `sy`."""
    image = g.reshape(x, as_image(g.shape(x)))
    image = image if g.sample_shape(image)[0] < b else reorder(g, image)
    return from_blocked(g, write_kernel(g, image, weights, sw, as_image(sy), window, bias), sy)


def write_kernel(g: OnnxGraph, image: str, weights: str, sw: Sizes, sy: Image, window: Window, bias: str = "") -> str:
    """One call of the blocked convolution; a window of one axis gets a first axis of size 1."""
    one = (1,) * (2 - len(window.kernel))
    none = (0,) * len(one)
    inputs = [image, g.reshape(weights, (*sw[:2], *one, *window.kernel)), *([bias] if bias else [])]
    return g.op(
        "Conv", *inputs, domain=DOMAIN, shape=sy, group=window.group, kernel_shape=[*one, *window.kernel],
        strides=[*one, *window.stride], dilations=[*one, *window.dilation],
        pads=[*none, *window.before, *none, *window.after],
    )  # fmt: skip


def write_blocked_input_adjoint(g: OnnxGraph, gy: str, w: str, window: Window, sx: Shape, b: int) -> str:
    """The adjoint of x: by phases or a convolution with turned weights where these fit, else as in convolution.py."""
    sw, (channels, *positions) = g.numbers(w), as_numbers(sx[1:])
    depthwise = is_depthwise(window, sw[0], channels)
    if depthwise and has_phases(window, positions):
        return write_phases(g, gy, w, window, sx, b)
    inside = all(r >= p for r, p in zip(window.reach * 2, window.pads, strict=True))
    if not window.dense or not inside or (not depthwise and sw[1] % b):
        return write_input_adjoint(g, gy, w, window, sx)
    before, after = (
        tuple(r - p for r, p in zip(window.reach, pads, strict=True)) for pads in (window.before, window.after)
    )
    turned = Window(window.kernel, window.stride, before, after, window.dilation, window.group)
    if not depthwise:
        weights, groups = block_turned_weights(g, w, window.group, b), window.group
        return convolve(g, gy, weights, (sw[1] * groups, sw[0] // groups, *window.kernel), sx, turned, b)
    taps = prod(window.kernel)
    rows = g.reshape(block_outputs(g, w), (sw[0] // b, taps, b))
    return convolve(g, gy, pick(g, rows, 1, range(taps - 1, -1, -1)), sw, sx, turned, b)


def has_phases(window: Window, positions: Sequence[int]) -> bool:
    """True for windows of one axis with a stride of 1 or 2 that divides the length."""
    plain = len(window.kernel) == 1 and window.dilation == (1,)
    return plain and window.stride[0] <= 2 and positions[0] % window.stride[0] == 0


def write_phases(g: OnnxGraph, gy: str, w: str, window: Window, sx: Shape, b: int) -> str:
    """Depthwise on one axis: gx[s j + r] = sum over taps k = r + p (mod s) of gy[j + (r + p - k) / s] w[k].

    There is one convolution per phase r; their results are interleaved in the blocked layout.
    """
    batch, (channels, length) = sx[0], as_numbers(sx[1:])
    (taps,), (s,), p = window.kernel, window.stride, window.before[0]
    image = to_blocked(g, gy)
    rows = g.reshape(block_outputs(g, w), (channels // b, taps, b))
    lanes, many, out = multiply((batch, channels // b)), length // s, g.sample_shape(gy)[1]
    parts = []
    for r in range(s):
        ks = [k for k in range(taps - 1, -1, -1) if (r + p - k) % s == 0]
        first, last = (r + p - ks[0]) // s, (r + p - ks[-1]) // s
        one = Window((len(ks),), (1,), (-first,), (last + many - out,), (1,), channels)
        part = write_kernel(g, image, pick(g, rows, 1, ks), (channels, 1, len(ks)), (batch, channels, 1, many), one)
        parts.append(g.reshape(part, (lanes, many, 1, b)))
    together = g.reshape(g.concat(parts, 2), (batch, channels, 1, length))
    return from_blocked(g, together, sx)


def write_blocked_weight_adjoint(g: OnnxGraph, x: str, gy: str, window: Window, sw: Sizes, b: int) -> str:
    """The adjoint of w: where a convolution is depthwise, it is a depthwise convolution as well."""
    if not is_depthwise(window, sw[0], g.sample_shape(x)[0]):
        return weight_gradient.write_weight_adjoint(g, x, gy, window, sw)
    return write_depthwise_weight_adjoint(g, x, gy, window, sw, b)


def write_depthwise_weight_adjoint(g: OnnxGraph, x: str, gy: str, window: Window, sw: Sizes, b: int) -> str:
    """gw[c, k] = sum over b, p of gy[b, c, p] x[b, c, s p + d k - before]: x convolved with the kernel gy.

    Stride and dilation exchange their roles. The sum over samples is part of it: the images of a channel lie below each
    other, with rows of zeros between them, so that no tap sees two images; so do the adjoints, each s rows of x high.
    """
    flat = (1,) * (2 - len(window.kernel))
    (tall, wide), (s, t), (d, e) = ((*flat, *v) for v in (window.kernel, window.stride, window.dilation))
    top, left = (*(0 for _ in flat), *window.before)
    _, channels, height, width = as_image(g.shape(x))
    *_, rows, columns = as_image(g.shape(gy))
    need = max(height + top, s * (rows - 1) + d * (tall - 1) - top + 1)
    pitch = max(-(-need // s), rows)
    image, kernel = stack_images(g, to_blocked(g, x), s * pitch, b), stack_images(g, to_blocked(g, gy), pitch, b)
    bottom, right = d * (tall - 1) - top - s + 1, e * (wide - 1) + t * (columns - 1) + 1 - width - left
    more = tuple(-(min(0, v) // by) for v, by in ((bottom, d), (right, e)))  # stops that no tap is for
    found = g.op(
        "Conv", image, g.reshape(kernel, (channels, 1, *g.shape(kernel)[2:])), domain=DOMAIN, group=channels,
        strides=[d, e], dilations=[s, t], pads=[top, left, max(0, bottom), max(0, right)],
        shape=(1, channels, tall + more[0], wide + more[1]),
    )  # fmt: skip
    taps = from_blocked(g, found, (1, channels, tall + more[0], wide + more[1]))
    return g.reshape(g.slices(taps, [2, 3], [0, 0], [tall, wide], [1, 1]) if any(more) else taps, sw)


def stack_images(g: OnnxGraph, image: str, pitch: int, b: int) -> str:
    """Blocked images (B, C, H, W) below each other as one, (1, C, B pitch, W), with zeros up to `pitch` rows."""
    batch, channels, height, width = as_image(g.shape(image))
    blocks, row = channels // b, width * b
    planes = g.reshape(image, (batch, blocks, height * row))
    stacked = g.transpose(g.pad(planes, [0, 0, 0], [0, 0, (pitch - height) * row]), [1, 0, 2])
    return g.reshape(stacked, (1, channels, multiply((batch, pitch)), width))


# -- probe -----------------------------------------------------------------------------------------------------------


def write_probe(b: int) -> OnnxGraph:
    """The graph x (1, 2 b, 1, 3) -> y: the blocked layout as a machine's onnxruntime makes it."""
    g = OnnxGraph()
    g.input("x", (1, 2 * b, 1, 3))
    g.op("ReorderInput", "x", domain=DOMAIN, shape=g.shape("x"), output="y")
    return g
