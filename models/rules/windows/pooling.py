"""Pooling and upsampling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

import numpy as np

from edge_sdk.models.ir.graph import OnnxGraph
from edge_sdk.models.ir.nodes import OnnxNode
from edge_sdk.models.ir.shapes import Shape, as_number, as_numbers, divide, multiply
from edge_sdk.models.rules.reduction import give_to_first_along
from edge_sdk.models.rules.table import Adjoints, Want, rule
from edge_sdk.models.rules.windows.convolution import find_rest
from edge_sdk.models.rules.windows.window import Window, read_window


def read_pool(g: OnnxGraph, n: OnnxNode) -> Window:
    """The window of a pooling node; where the last one reaches beyond the input (ceil_mode), padded to its end."""
    window = read_window(g, n, tuple(n.attributes["kernel_shape"]))
    if not n.attributes.get("ceil_mode", 0):
        return window
    inputs, outputs = g.sample_shape(n.inputs[0])[1:], g.sample_shape(n.outputs[0])[1:]
    ends = zip(inputs, outputs, window.stride, window.reach, window.before, window.after, strict=True)
    after = tuple(max(q, (o - 1) * s + r + 1 - p - i) for i, o, s, r, p, q in ends)
    return replace(window, after=after)


@rule("MaxPool")
def max_pool(g: OnnxGraph, n: OnnxNode, gy: str, want: Want) -> Adjoints:
    """The gradient goes to the largest element of each window, the first of equal ones.

    Pairs are compared again in the backward pass: onnxruntime's MaxPool is several times faster when nobody asks for
    its indices. Other windows use the indices, which count in the whole flattened input.
    """
    window, shape = read_pool(g, n), g.shape(n.inputs[0])
    if len(n.outputs) < 2 and is_halving(window, shape):
        return (write_pair_adjoint(g, n.inputs[0], n.outputs[0], gy),)
    if len(n.outputs) < 2:
        n.outputs.append(g.new_name("argmax"))
        g.shapes[n.outputs[1]] = g.shape(n.outputs[0])
    index = n.outputs[1]
    apart = all(s >= k for s, k in zip(window.stride, window.kernel, strict=True)) and not any(window.pads)
    if apart and all(d == 1 for d in window.dilation):
        target = g.op("Shape", n.inputs[0], shape=(len(shape),))
        kernel, strides = list(window.kernel), list(window.stride)
        return (g.op("MaxUnpool", gy, index, target, shape=shape, kernel_shape=kernel, strides=strides),)
    return (scatter_windows(g, gy, index, n.inputs[0]),)


def is_halving(window: Window, shape: Shape) -> bool:
    """True for windows of two side by side that cover everything, on one or two axes."""
    twos = all(v == 2 for v in (*window.kernel, *window.stride)) and len(window.kernel) <= 2
    plain = not any(window.pads) and all(d == 1 for d in window.dilation)
    return twos and plain and all(d % 2 == 0 for d in as_numbers(shape[2:]))


def write_pair_adjoint(g: OnnxGraph, x: str, y: str, gy: str) -> str:
    """gy given to the largest of each pair, or of each two by two.

    The order is row by row from the left, and the first of equal ones gets all of it, as in torch.
    """
    *lead, length = g.shape(x)
    many, half = multiply(lead), as_number(length) // 2
    pairs = g.transpose(g.reshape(x, (multiply((many, half)), 2)), [1, 0])  # one Transpose: faster than strided slices
    if len(lead) == 2:
        left, right = split_in_two(g, g.reshape(pairs, (2, *lead, half)), 0)
        return interleave(g, *give_to_larger(g, left, right, gy), 2)
    rows, flat = divide(many, 2), (divide(many, 2), half)
    quarters = split_in_two(g, g.reshape(pairs, (2, rows, 2, half)), 2)
    quarters = [g.reshape(q, flat) for both in quarters for q in split_in_two(g, both, 0)]
    shares = give_to_first(g, quarters, g.reshape(y, flat), g.reshape(gy, flat))
    top, bottom = (interleave(g, shares[i], shares[i + 1], 1) for i in (0, 2))
    return g.reshape(g.concat([top, bottom], 1), g.shape(x))


def split_in_two(g: OnnxGraph, x: str, axis: int) -> list[str]:
    """The two entries of an axis of length 2, each without that axis."""
    shape = g.shape(x)
    one, rest = (*shape[:axis], 1, *shape[axis + 1 :]), (*shape[:axis], *shape[axis + 1 :])
    return [g.reshape(v, rest) for v in g.ops("Split", x, g.ints([1, 1]), shapes=[one, one], axis=axis)]


def give_to_first(g: OnnxGraph, values: Sequence[str], most: str, gy: str) -> list[str]:
    """gy given to the first of the values that equals `most`; one of them does."""
    shares = []
    for v in values[:-1]:
        shares.append(g.mul(gy, g.compare("Equal", v, most)))
        gy = g.sub(gy, shares[-1])
    return [*shares, gy]


def give_to_larger(g: OnnxGraph, a: str, b: str, gy: str) -> tuple[str, str]:
    """gy given to b where it is greater, else to a: the shares of a and b."""
    to_b = g.mul(gy, g.compare("Less", a, b))
    return g.sub(gy, to_b), to_b


def interleave(g: OnnxGraph, a: str, b: str, axis: int) -> str:
    """a[0], b[0], a[1], b[1], ... along an axis."""
    shape = g.shape(a)
    apart = (*shape[: axis + 1], 1, *shape[axis + 1 :])
    both = g.concat([g.reshape(a, apart), g.reshape(b, apart)], axis + 1)
    return g.reshape(both, (*shape[:axis], 2 * as_number(shape[axis]), *shape[axis + 1 :]))


def scatter_windows(g: OnnxGraph, gy: str, index: str, x: str) -> str:
    """gy added up at the positions that won; windows may overlap."""
    shape = g.shape(x)
    many, size = multiply(g.shape(gy)), multiply(shape)
    zero = g.zeros((size,), like=g.reshape(x, (size,)))
    flat = g.op(
        "ScatterElements",
        zero,
        g.reshape(index, (many,)),
        g.reshape(gy, (many,)),
        axis=0,
        reduction="add",
        shape=(size,),
    )
    return g.reshape(flat, shape)


@rule("AveragePool")
def average_pool(g: OnnxGraph, n: OnnxNode, gy: str, want: Want) -> Adjoints:
    """The adjoint is a transposed convolution: the mean is a depthwise convolution with 1 / K everywhere.

    Where a window's padding does not count, K differs from place to place, and gy is divided by it beforehand.
    """
    window, shape = read_pool(g, n), g.shape(n.inputs[0])
    channels, *spatial = g.sample_shape(n.inputs[0])
    counts = count_positions(n, window, spatial, g.sample_shape(gy)[1:])
    share = 1 / prod(window.kernel)
    if (counts != prod(window.kernel)).any():
        gy, share = g.mul(gy, g.constant(1 / counts)), 1.0
    weight = g.constant(np.full((channels, 1, *window.kernel), share))
    return (
        g.op(
            "ConvTranspose", gy, weight, strides=list(window.stride), dilations=list(window.dilation), pads=window.pads,
            group=channels, output_padding=find_rest(window, tuple(spatial), g.sample_shape(gy)[1:]), shape=shape,
        ),
    )  # fmt: skip


def count_positions(n: OnnxNode, window: Window, inputs: Sequence[int], outputs: Sequence[int]) -> np.ndarray:
    """By how many positions each output's window is divided: those in the input and, if it counts, in the padding."""
    pads = n.attributes.get("pads") or [0] * 2 * len(inputs)
    with_padding, found = n.attributes.get("count_include_pad", 0), np.ones(())
    for axis, (size, stops) in enumerate(zip(inputs, outputs, strict=True)):
        before, after = (pads[axis], pads[len(inputs) + axis]) if with_padding else (0, 0)
        first = np.arange(stops)[:, None] * window.stride[axis] - window.before[axis]
        taps = first + np.arange(window.kernel[axis]) * window.dilation[axis]
        counted = ((taps >= -before) & (taps < size + after)).sum(1)
        found = found[..., None] * counted
    return found


@rule("GlobalAveragePool")
def global_average_pool(g: OnnxGraph, n: OnnxNode, gy: str, want: Want) -> Adjoints:
    x = n.inputs[0]
    return (g.expand_like(g.scale(gy, 1 / prod(g.sample_shape(x)[1:])), x),)


@rule("GlobalMaxPool")
def global_max_pool(g: OnnxGraph, n: OnnxNode, gy: str, want: Want) -> Adjoints:
    """The gradient goes to the first of the largest elements, as in torch's adaptive max pooling."""
    x = n.inputs[0]
    return (give_to_first_along(g, x, gy, list(range(2, g.rank(x))), "ArgMax", n.where),)
