"""Conv and ConvTranspose.

With y = conv(x, w): the input adjoint is a transposed convolution of gy with w; the weight adjoint correlates
gy with x,
written as matrix products over columns of x (weight_gradient.py); the bias adjoint is the sum over samples and
positions.
"""

from __future__ import annotations

from math import prod

from models.ir.errors import UnsupportedPattern
from models.ir.graph import OnnxGraph
from models.ir.nodes import OnnxNode
from models.ir.shapes import Shape
from models.rules import weight_gradient
from models.rules.geometry import Window, read_geometry
from models.rules.table import Adjoints, Want, rule


@rule("Conv")
def conv(g: OnnxGraph, n: OnnxNode, gy: str, want: Want) -> Adjoints:
    x, w = n.inputs[:2]
    geo = read_geometry(g, n, g.shape(w)[2:])
    gx = write_input_adjoint(g, gy, w, geo, g.shape(x)) if want[0] else None
    gw = weight_gradient.write_weight_adjoint(g, x, gy, geo, g.shape(w)) if want[1] else None
    gb = sum_channels(g, gy) if len(n.inputs) > 2 and want[2] else None
    return gx, gw, gb


def write_input_adjoint(g: OnnxGraph, gy: str, w: str, geo: Window, sx: Shape) -> str:
    """Transposed convolution. Depthwise and dense windows: the flipped kernel convolved, which runs faster there."""
    sw, sy = g.shape(w), g.shape(gy)
    if geo.dense and geo.group == sw[0] == sx[1] and all(r >= p for r, p in zip(geo.reach, geo.pads, strict=False)):
        pads = [r - p for r, p in zip(geo.reach * 2, geo.pads, strict=True)]
        turned = g.flip(w, range(2, len(sw)))
        return g.op("Conv", gy, turned, pads=pads, group=geo.group, shape=sx, **step_attributes(geo, 1))
    covered = [(o - 1) * s + r + 1 for o, s, r in zip(sy[2:], geo.stride, geo.reach, strict=True)]
    padded = [d + p + q for d, p, q in zip(sx[2:], geo.before, geo.after, strict=True)]
    rest = [d - c for d, c in zip(padded, covered, strict=True)]
    return g.op(
        "ConvTranspose", gy, w, strides=list(geo.stride), dilations=list(geo.dilation), pads=geo.pads, group=geo.group,
        output_padding=rest, shape=sx,
    )  # fmt: skip


def step_attributes(geo: Window, stride: int) -> dict[str, list[int]]:
    return {"strides": [stride] * len(geo.kernel), "dilations": list(geo.dilation)}


def sum_channels(g: OnnxGraph, gy: str) -> str:
    """Sum over samples and positions, in two steps: the long contiguous one first."""
    shape = g.shape(gy)
    positions = prod(shape[2:])
    return g.sum(g.sum(g.reshape(gy, (*shape[:2], positions)), [2]), [0])


@rule("ConvTranspose")
def conv_transpose(g: OnnxGraph, n: OnnxNode, gy: str, want: Want) -> Adjoints:
    """y is the input adjoint of a Conv with the same window, so its adjoint is that Conv; the roles of x and
    gy swap.
    """
    x, w = n.inputs[:2]
    sx, sw, sy = g.shape(x), g.shape(w), g.shape(gy)
    geo = read_geometry(g, n, sw[2:])
    if n.attributes.get("output_shape") or n.attributes.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        raise UnsupportedPattern("ConvTranspose with automatic padding", n.where, "give padding and output_padding")
    at = dict(strides=list(geo.stride), dilations=list(geo.dilation), pads=geo.pads, group=geo.group)
    gx = cut_to_shape(g, g.op("Conv", gy, w, shape=find_conv_shape(sy, sw, geo), **at), sx) if want[0] else None
    gw = weight_gradient.write_weight_adjoint(g, gy, x, geo, sw) if want[1] else None
    gb = sum_channels(g, gy) if len(n.inputs) > 2 and want[2] else None
    return gx, gw, gb


def find_conv_shape(sx: Shape, sw: Shape, geo: Window) -> Shape:
    spatial = (
        (d + p + q - r - 1) // s + 1
        for d, p, q, r, s in zip(sx[2:], geo.before, geo.after, geo.reach, geo.stride, strict=True)
    )
    return (sx[0], sw[0], *spatial)


def cut_to_shape(g: OnnxGraph, v: str, shape: Shape) -> str:
    """Drop the positions past the end (output_padding can make room for one more)."""
    for axis, (have, need) in enumerate(zip(g.shape(v), shape, strict=True)):
        if have != need:
            v = g.slice(v, axis, 0, need)
    return v
