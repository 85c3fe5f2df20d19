"""The weight adjoint of a convolution, gw[o, c, k] = sum over b, p of gy[b, o, p] x[b, c, at(p, k)].

Three ways to write it, fastest first where they apply (measured on onnxruntime's CPU kernels):
    pointwise    kernel 1: no columns
    shifted      3x3, stride 1, padding 1: shift gy sideways and x up and down, three products give all nine taps
    columns      everything else: gather at(p, k) as columns
                 - by a constant one-hot depthwise Conv where that is quicker, by slices elsewhere
The product is one per sample, summed after, or one for the whole batch after exchanging batch and channels: the first
copies a weight per sample, the second copies the images (`many_weights` says which is less).
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
# from this many input channels on, shifting both sides beats nine columns per channel
CHANNELS_FOR_SHIFTS = 8
# from this width on, shifting by Pad is faster than by a multiplication with a mask
WIDE = 64


def write(g: Graph, x: str, gy: str, geo: Geometry, sw: Shape) -> str:
    """gw of shape `sw` (out, in / groups, *kernel)."""
    dense_3x3 = geo.group == 1 and geo.dense and geo.kernel == (3, 3) and geo.pads == [1, 1, 1, 1]
    if dense_3x3 and int(sw[1]) >= CHANNELS_FOR_SHIFTS:
        return shifted(g, x, gy, sw)
    cols = columns(g, later(g, x, gy), geo, g.shape(gy)[2:])
    return product_with_columns(g, cols, gy, geo.group, sw)


def many_weights(outputs: Dim, columns: Dim, positions: Dim) -> bool:
    """Whether a weight per sample is more to write than images and columns are to exchange axes."""
    o, c, p = int(outputs), int(columns), int(positions)
    return o * c >= (o + c) * p


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
    if group == 1 and many_weights(out, channels * taps, positions):
        merged = product((batch, positions))
        left = g.reshape(g.transpose(g.reshape(gy, (batch, out, positions)), [1, 0, 2]), (out, merged))
        right = g.reshape(g.transpose(cols, [1, 2, 0, 3]), (channels * taps, merged))
        return g.reshape(g.gemm(left, right, tb=True), sw)
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

    Tap (kh, kw) needs gy[h, w] x[h + kh - 1, w + kw - 1]. Shifting gy by kw - 1 sideways and x by kh - 1 upwards, both
    on flat planes, leaves for each kh one product (3 O x P)(P x I): no wasted work, six copies instead of nine.
    """
    out, channels, height, width = int(sw[0]), int(sw[1]), *g.shape(x)[2:]
    positions = int(height) * int(width)
    at_once = many_weights(out, 9 * channels, positions)
    if at_once:
        x, gy = (g.transpose(v, [1, 0, 2, 3]) for v in (x, gy))

    def plane(v: str, count: int) -> str:
        """(B, count, P), or (count, B P) for one product."""
        batch = quotient(product(g.shape(v)), count * positions)
        return g.reshape(v, (count, product((batch, positions))) if at_once else (batch, count, positions))

    sideways = g.concat([plane(shift_sideways(g, gy, d), out) for d in (-1, 0, 1)], 0 if at_once else 1)
    rows = [plane(shift_rows(g, x, d), channels) for d in (1, 0, -1)]
    products = [g.matmul(sideways, g.swap_last(r)) for r in rows]
    taps = products if at_once else [g.sum(p, [0]) for p in products]  # each (3 O, I): kw, o, i
    stacked = g.reshape(g.concat([g.reshape(t, (1, 3 * out, channels)) for t in taps], 0), (9, out * channels))
    return g.reshape(g.transpose(stacked, [1, 0]), sw)


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
