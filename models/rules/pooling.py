"""Pooling and upsampling."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from models.ir.errors import UnsupportedPattern
from models.ir.graph import OnnxGraph
from models.ir.nodes import OnnxNode
from models.ir.shapes import Shape, divide, multiply
from models.rules.geometry import Window, read_geometry
from models.rules.table import Adjoints, Want, rule


def read_pool(g: OnnxGraph, n: OnnxNode) -> Window:
    if n.attributes.get("ceil_mode", 0):
        raise UnsupportedPattern(f"{n.op} with ceil_mode", n.where, "pad the input instead")
    return read_geometry(g, n, tuple(n.attributes["kernel_shape"]))


@rule("MaxPool")
def max_pool(g: OnnxGraph, n: OnnxNode, gy: str, want: Want) -> Adjoints:
    """The gradient goes to the element that won, the first of equal ones.

    Pairs are compared again in the backward pass: onnxruntime's MaxPool is several times faster when nobody asks for
    its indices. Other windows use the indices, which count in the whole flattened input.
    """
    geo, shape = read_pool(g, n), g.shape(n.inputs[0])
    if len(n.outputs) < 2 and is_halving(geo, shape):
        return (write_pair_adjoint(g, n.inputs[0], n.outputs[0], gy),)
    if len(n.outputs) < 2:
        n.outputs.append(g.new_name("argmax"))
        g.shapes[n.outputs[1]] = g.shape(n.outputs[0])
    index = n.outputs[1]
    apart = all(s >= k for s, k in zip(geo.stride, geo.kernel, strict=True)) and all(d == 1 for d in geo.dilation)
    if apart and not any(geo.pads):
        target = g.op("Shape", n.inputs[0], shape=(len(shape),))
        at = dict(kernel_shape=list(geo.kernel), strides=list(geo.stride))
        return (g.op("MaxUnpool", gy, index, target, shape=shape, **at),)
    return (scatter_windows(g, gy, index, n.inputs[0]),)


def is_halving(geo: Window, shape: Shape) -> bool:
    """Windows of two, side by side, that cover everything; one or two axes."""
    twos = all(v == 2 for v in (*geo.kernel, *geo.stride)) and len(geo.kernel) <= 2
    return twos and not any(geo.pads) and all(d == 1 for d in geo.dilation) and all(d % 2 == 0 for d in shape[2:])


def write_pair_adjoint(g: OnnxGraph, x: str, y: str, gy: str) -> str:
    """gy to the winner of each pair, or of each two by two.

    Row by row from the left: the first of equal ones wins, as in torch.
    """
    *lead, length = g.shape(x)
    many, half = multiply(lead), int(length) // 2
    pairs = g.transpose(g.reshape(x, (multiply((many, half)), 2)), [1, 0])  # one Transpose: faster than strided slices
    if len(lead) == 2:
        left, right = split_in_two(g, g.reshape(pairs, (2, *lead, half)), 0)
        return interleave(g, *give_to_larger(g, left, right, gy), 2)
    rows, flat = divide(many, 2), (divide(many, 2), half)
    quarters = split_in_two(g, g.reshape(pairs, (2, rows, 2, half)), 2)
    quarters = [g.reshape(q, flat) for both in quarters for q in split_in_two(g, both, 0)]
    shares = give_to_first(g, quarters, g.reshape(y, flat), g.reshape(gy, flat))
    top, bottom = (interleave(g, *shares[i : i + 2], 1) for i in (0, 2))
    return g.reshape(g.concat([top, bottom], 1), g.shape(x))


def split_in_two(g: OnnxGraph, x: str, axis: int) -> list[str]:
    """The two entries of an axis, without it."""
    shape = g.shape(x)
    one, rest = (*shape[:axis], 1, *shape[axis + 1 :]), (*shape[:axis], *shape[axis + 1 :])
    return [g.reshape(v, rest) for v in g.ops("Split", x, g.ints([1, 1]), shapes=[one, one], axis=axis)]


def give_to_first(g: OnnxGraph, values: Sequence[str], most: str, gy: str) -> list[str]:
    """gy to the first of the values that is `most`, which one of them is."""
    shares = []
    for v in values[:-1]:
        shares.append(g.mul(gy, g.compare("Equal", v, most)))
        gy = g.sub(gy, shares[-1])
    return [*shares, gy]


def give_to_larger(g: OnnxGraph, a: str, b: str, gy: str) -> tuple[str, str]:
    """gy split between a and b: to b where it is greater, else to a."""
    to_b = g.mul(gy, g.compare("Less", a, b))
    return g.sub(gy, to_b), to_b


def interleave(g: OnnxGraph, a: str, b: str, axis: int) -> str:
    """a[0], b[0], a[1], b[1], ... along an axis."""
    shape = g.shape(a)
    apart = (*shape[: axis + 1], 1, *shape[axis + 1 :])
    both = g.concat([g.reshape(a, apart), g.reshape(b, apart)], axis + 1)
    return g.reshape(both, (*shape[:axis], 2 * int(shape[axis]), *shape[axis + 1 :]))


def scatter_windows(g: OnnxGraph, gy: str, index: str, x: str) -> str:
    """Windows overlap: add up."""
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
    """A depthwise convolution with 1 / K everywhere, so a transposed one back."""
    geo, shape = read_pool(g, n), g.shape(n.inputs[0])
    if any(geo.pads) and not n.attributes.get("count_include_pad", 0):
        raise UnsupportedPattern(
            "padded AveragePool that does not count the padding", n.where, "count_include_pad=True"
        )
    weight = g.constant(np.full((shape[1], 1, *geo.kernel), 1 / prod(geo.kernel)))
    covered = [(o - 1) * s + r + 1 for o, s, r in zip(g.shape(gy)[2:], geo.stride, geo.reach, strict=True)]
    rest = [d + p + q - c for d, p, q, c in zip(shape[2:], geo.before, geo.after, covered, strict=True)]
    return (
        g.op(
            "ConvTranspose", gy, weight, strides=list(geo.stride), dilations=list(geo.dilation), pads=geo.pads,
            group=shape[1], output_padding=rest, shape=shape,
        ),
    )  # fmt: skip


@rule("GlobalAveragePool")
def global_average_pool(g: OnnxGraph, n: OnnxNode, gy: str, want: Want) -> Adjoints:
    x = n.inputs[0]
    return (g.expand_like(g.scale(gy, 1 / prod(g.shape(x)[2:])), x),)


@rule("GlobalMaxPool")
def global_max_pool(g: OnnxGraph, n: OnnxNode, gy: str, want: Want) -> Adjoints:
    x = n.inputs[0]
    hits = g.compare("Equal", x, n.outputs[0])
    return (g.mul(hits, g.div(gy, g.sum(hits, range(2, g.rank(x)), keep=True))),)


@rule("Resize")
def resize(g: OnnxGraph, n: OnnxNode, gy: str, want: Want) -> Adjoints:
    """Nearest-neighbour by whole factors: each input is repeated, so sum over the copies."""
    x = n.inputs[0]
    sx, sy = g.shape(x), g.shape(n.outputs[0])
    mode, rounding = n.attributes.get("mode", "nearest"), n.attributes.get("nearest_mode", "round_prefer_floor")
    place = n.attributes.get("coordinate_transformation_mode", "half_pixel")
    whole = sx[:2] == sy[:2] and all(o % i == 0 for i, o in zip(sx[2:], sy[2:], strict=True))
    if mode != "nearest" or not whole or (rounding, place) not in COPIES:
        raise UnsupportedPattern(f"Resize {mode} from {sx[2:]} to {sy[2:]}", n.where, "nearest, by whole factors")
    apart = [d for i, o in zip(sx[2:], sy[2:], strict=True) for d in (i, o // i)]
    split = g.reshape(gy, (*sx[:2], *apart))
    return (g.sum(split, range(3, 3 + 2 * (len(sx) - 2), 2)),)


# ways of choosing the nearest neighbour that amount to repeating each element, for whole factors
COPIES = {("floor", "asymmetric"), ("round_prefer_floor", "half_pixel"), ("round_prefer_ceil", "half_pixel")}
