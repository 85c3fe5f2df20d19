"""The weight adjoint of a convolution, gw[o, c, k] = sum over b, p of gy[b, o, p] x[b, c, at(p, k)].

Four ways to write it, fastest first where they apply (measured on onnxruntime's CPU kernels):
    pointwise    kernel 1: one matrix product per sample
    shifted      3x3, stride 1, padding 1: shift gy sideways and x up and down, three products give all nine taps
    columns      everything else: gather at(p, k) as columns, then one matrix product per sample
                 - by a constant one-hot depthwise Conv where that is quicker, by slices elsewhere
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np

from models.graph import Batch, Dim, Graph, Shape, product

if TYPE_CHECKING:
    from models.rules.convolution import Geometry

# from this many channels on, a one-hot Conv builds 2-D columns faster than slices do
CHANNELS_FOR_ONE_HOT = 16
# from this width on, shifting by Pad is faster than by a multiplication with a mask
WIDE = 64


def write(g: Graph, x: str, gy: str, geo: Geometry, sw: Shape) -> str:
    """gw of shape `sw` (out, in / groups, *kernel)."""
    if geo.group == 1 and geo.dense and geo.kernel == (3, 3) and geo.pads == [1, 1, 1, 1]:
        return shifted(g, x, gy, sw)
    cols = columns(g, later(g, x, gy), geo, g.shape(gy)[2:])
    return product_with_columns(g, cols, gy, geo.group, sw)


def later(g: Graph, x: str, gy: str) -> str:
    """`x`, but not before `gy` is known.

    Without this dependency a runtime may build all column buffers during the forward pass, and hold them.
    """
    shape = g.shape(x)
    batch = g.op("Shape", gy, start=0, end=1, shape=(1,))
    target = g.op("Concat", batch, g.ints(shape[1:]), axis=0, shape=(len(shape),))
    return g.op("Reshape", x, target, shape=shape)


def product_with_columns(g: Graph, cols: str, gy: str, group: int, sw: Shape) -> str:
    """cols (B, C, K, P) and gy (B, O, *out) -> gw."""
    batch, channels, taps, positions = g.shape(cols)
    out = sw[0]
    if group == out == channels:  # depthwise: K x P times P x 1 for every channel
        per_sample = g.matmul(cols, g.reshape(gy, (batch, out, positions, 1)))
    else:
        left = g.reshape(gy, (batch, group, out // group, positions))
        right = g.reshape(cols, (batch, group, channels // group * taps, positions))
        if group == 1:
            left, right = (g.reshape(v, (batch, *g.shape(v)[2:])) for v in (left, right))
        per_sample = g.matmul(left, g.swap_last(right))
    return g.reshape(g.sum(per_sample, [0]), sw)


def columns(g: Graph, x: str, geo: Geometry, out: Shape) -> str:
    """What each tap sees at each position: (B, C, K, P)."""
    batch, channels, *spatial = g.shape(x)
    taps, positions = prod(geo.kernel), prod(out)
    if taps == 1 and geo.dense and not any(geo.pads):
        return g.reshape(x, (batch, channels, 1, positions))
    two_dimensional = len(spatial) == 2 and channels >= CHANNELS_FOR_ONE_HOT
    if two_dimensional or (len(spatial) == 1 and geo.group > 1):
        return one_hot_columns(g, x, geo, out)
    return sliced_columns(g, x, geo, out)


def one_hot_columns(g: Graph, x: str, geo: Geometry, out: Shape) -> str:
    batch, channels = g.shape(x)[:2]
    taps = prod(geo.kernel)
    one = np.eye(taps).reshape(taps, 1, *geo.kernel)
    weight = g.constant(np.tile(one, (channels,) + (1,) * (one.ndim - 1)))
    cols = g.op(
        "Conv", x, weight, strides=list(geo.stride), dilations=list(geo.dilation), pads=geo.pads, group=channels,
        shape=(batch, channels * taps, *out),
    )  # fmt: skip
    return g.reshape(cols, (batch, channels, taps, prod(out)))


def sliced_columns(g: Graph, x: str, geo: Geometry, out: Shape) -> str:
    """Axis by axis, the last one first: a few long copies instead of one short one per tap and row."""
    batch, channels, *spatial = g.shape(x)
    cols, taps = g.pad(x, [0, 0, *geo.before], [0, 0, *geo.after]), 1
    for i in reversed(range(len(spatial))):
        sizes = g.shape(cols)[-len(spatial) :]
        cols = g.reshape(cols, (batch, channels, taps, *sizes))
        span = (int(out[i]) - 1) * geo.stride[i] + 1
        firsts = [t * geo.dilation[i] for t in range(geo.kernel[i])]
        parts = [g.slice(cols, 3 + i, f, f + span, geo.stride[i]) for f in firsts]
        left = g.shape(parts[0])[3:]
        cols = g.concat([g.reshape(v, (batch, channels, 1, taps, *left)) for v in parts], 2)
        taps *= geo.kernel[i]
        cols = g.reshape(cols, (batch, channels, taps, *left))
    return g.reshape(cols, (batch, channels, taps, prod(int(d) for d in out)))


def shifted(g: Graph, x: str, gy: str, sw: Shape) -> str:
    """3x3, stride 1, padding 1 on planes of H x W = P.

    Tap (kh, kw) needs gy[h, w] x[h + kh - 1, w + kw - 1]. Shifting gy by kw - 1 sideways and x by kh - 1
    upwards, both on
    flat planes, leaves for each kh one product (3 O x P)(P x I): no wasted work, six copies instead of nine.
    """
    _, channels, height, width = g.shape(x)
    positions, out = height * width, sw[0]
    sideways = g.concat([plane(g, shift_sideways(g, gy, d), out, positions) for d in (-1, 0, 1)], 1)
    rows = [plane(g, shift_rows(g, x, d), channels, positions) for d in (1, 0, -1)]
    taps = [g.sum(g.matmul(sideways, g.swap_last(r)), [0]) for r in rows]  # each (3 O, I): kw, o, i
    stacked = g.reshape(g.concat([g.reshape(t, (1, 3 * out, channels)) for t in taps], 0), (9, out * channels))
    return g.reshape(g.transpose(stacked, [1, 0]), sw)


def plane(g: Graph, v: str, channels: int, positions: int) -> str:
    """Any shape with the same elements -> (B, channels, positions)."""
    samples = quotient(product(g.shape(v)), channels * positions)
    return g.reshape(v, (samples, channels, positions))


def quotient(size: Dim, by: int) -> Dim:
    return Batch(size.times // by) if isinstance(size, Batch) else size // by


def shift_sideways(g: Graph, v: str, d: int) -> str:
    """v[h, w - d], zero outside. The column that would wrap around is cleared, then the whole is shifted as one row."""
    if d == 0:
        return v
    _, _, height, width = g.shape(v)
    if width > WIDE:
        return g.pad(v, [0, 0, 0, d], [0, 0, 0, -d])
    mask = np.ones((height, width))
    mask[:, -1 if d > 0 else 0] = 0
    masked = g.mul(v, g.constant(mask))
    return g.pad(g.reshape(masked, (product(g.shape(v)),)), [d], [-d])


def shift_rows(g: Graph, v: str, d: int) -> str:
    """v[h - d, w], zero outside."""
    if d == 0:
        return v
    batch, channels, height, width = g.shape(v)
    rows = g.reshape(v, (product((batch, channels)), height * width))
    return g.pad(rows, [0, d * width], [0, -d * width])
