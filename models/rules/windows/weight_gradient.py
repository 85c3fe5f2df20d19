"""The weight adjoint of a convolution, gw[o, c, k] = sum over b, p of gy[b, o, p] x[b, c, at(p, k)].

There are five ways to write it; which one is chosen was measured on onnxruntime's CPU kernels:
    pointwise    kernel 1: no columns are needed
    shifted      3x3, stride 1, padding 1: gy is shifted sideways and x up and down, three products give all nine taps
    stacked      depthwise with many taps: a convolution of x with gy (depthwise.py)
    by rows      stride 1 in two dimensions: columns of one row of taps at a time, so that they stay in the cache
    columns      everything else: at(p, k) is gathered as columns, by a constant one-hot depthwise Conv or by slices
The product is either one per sample, summed after, or one for the whole batch after batch and channels have changed
places. The first writes a weight per sample, the second copies the images (`has_many_weights` says which is less).
"""

from __future__ import annotations

from math import prod

import numpy as np

from edge_sdk.models.ir.graph import OnnxGraph
from edge_sdk.models.ir.shapes import as_numbers, multiply
from edge_sdk.models.rules.windows.depthwise import suits_stacking, write_stacked
from edge_sdk.models.rules.windows.native import note_weight_adjoint
from edge_sdk.models.rules.windows.window import Window

# from this many channels on, or up to this many taps, a one-hot Conv builds 2-D columns faster than slices do
CHANNELS_FOR_ONE_HOT, TAPS_FOR_ONE_HOT = 16, 9
# from this many input channels on, shifting both sides beats nine columns per channel
CHANNELS_FOR_SHIFTS = 8
# up to this many positions, shifting sideways by masks and Pad is faster than by a one-hot Conv
FEW_POSITIONS = 256
# columns that onnxruntime's product packs at once; a product by rows, or with its factors exchanged, needs as many
PANEL = 16
# numbers of repeated kernels that are written into the file
LARGEST_IN_FILE = 4096

Sizes = tuple[int, ...]


def write_weight_adjoint(g: OnnxGraph, x: str, gy: str, window: Window, sw: Sizes) -> str:
    """gw of shape `sw` (out, in / groups, *kernel)."""
    gw = write_products(g, x, gy, window, sw)
    note_weight_adjoint(g, x, gy, window, gw)
    return gw


def write_products(g: OnnxGraph, x: str, gy: str, window: Window, sw: Sizes) -> str:
    """The weight adjoint, with standard operators."""
    dense_3x3 = window.dense and window.kernel == (3, 3) and window.pads == [1, 1, 1, 1]
    if dense_3x3 and sw[1] >= CHANNELS_FOR_SHIFTS:
        return write_shifted(g, x, gy, sw) if window.group == 1 else write_shifted_groups(g, x, gy, window.group, sw)
    if suits_stacking(window, g.sample_shape(x), g.sample_shape(gy)):
        return write_stacked(g, x, gy, window, sw)
    outputs = g.sample_shape(gy)[1:]
    if suits_rows(window, sw, outputs):
        return write_by_rows(g, wait_for(g, x, gy), gy, window, sw)
    return multiply_columns(g, write_columns(g, wait_for(g, x, gy), window, outputs), gy, window.group, sw)


def has_many_weights(outputs: int, columns: int, positions: int) -> bool:
    """True if a weight per sample is more to write than images and columns are to copy."""
    return outputs * columns >= (outputs + columns) * positions


def wait_for(g: OnnxGraph, x: str, gy: str) -> str:
    """`x`, but not before `gy` is known.

    Without this dependency a runtime may build all column buffers during the forward pass, and hold them.
    """
    shape = g.shape(x)
    batch = g.op("Shape", gy, start=0, end=1, shape=(1,))
    target = g.op("Concat", batch, g.ints(g.sample_shape(x)), axis=0, shape=(len(shape),))
    return g.op("Reshape", x, target, shape=shape)


# -- products --------------------------------------------------------------------------------------------------------


def multiply_columns(g: OnnxGraph, cols: str, gy: str, group: int, sw: Sizes) -> str:
    """gw from columns (B, C, K, P) and gy (B, O, *out)."""
    batch, (channels, taps, positions), out = g.shape(cols)[0], g.sample_shape(cols), sw[0]
    if group == 1 and has_many_weights(out, channels * taps, positions):
        merged = multiply((batch, positions))
        left = g.reshape(g.transpose(g.reshape(gy, (batch, out, positions)), [1, 0, 2]), (out, merged))
        right = g.reshape(g.transpose(cols, [1, 2, 0, 3]), (channels * taps, merged))
        return g.reshape(g.gemm(left, right, tb=True), sw)
    if group == out == channels:  # depthwise: K x P times P x 1 for every channel
        per_sample = g.matmul(cols, g.reshape(gy, (batch, out, positions, 1)))
        return g.reshape(g.sum(per_sample, [0]), sw)
    left = g.reshape(gy, (batch, group, out // group, positions))
    right = g.reshape(cols, (batch, group, channels // group * taps, positions))
    if group == 1:
        left, right = (g.reshape(v, (batch, *g.shape(v)[2:])) for v in (left, right))
    if packs_less(out // group, channels // group * taps):
        turned = g.sum(g.matmul(right, g.swap_last(left)), [0])
        return g.reshape(g.swap_last(turned), sw)
    return g.reshape(g.sum(g.matmul(left, g.swap_last(right)), [0]), sw)


def packs_less(outputs: int, columns: int) -> bool:
    """True if columns gy' is faster than gy columns': the product packs a copy of its second factor."""
    return PANEL <= outputs <= -(-columns // PANEL) * PANEL


# -- by rows ---------------------------------------------------------------------------------------------------------


def suits_rows(window: Window, sw: Sizes, positions: Sizes) -> bool:
    """True if one product per row of taps is the fastest way."""
    outputs, channels, *kernel = sw
    plain = window.group == 1 and len(kernel) == 2 and kernel[0] > 1 and window.stride == (1, 1)
    many = has_many_weights(outputs, channels * prod(kernel), prod(positions))
    return plain and channels * kernel[1] >= PANEL and not many


def write_by_rows(g: OnnxGraph, x: str, gy: str, window: Window, sw: Sizes) -> str:
    """gw by one product per row of taps, each over the columns of that row."""
    batch, (outputs, height, width) = g.shape(gy)[0], g.sample_shape(gy)
    channels, (tall, wide) = sw[1], window.kernel
    rows = write_side_columns(g, g.pad(x, [0, 0, *window.before], [0, 0, *window.after]), window, width)
    rows = g.reshape(rows, (batch, channels * wide, *g.shape(rows)[3:]))
    positions = height * width
    turned, taps = g.reshape(gy, (batch, outputs, positions)), []
    for k in range(tall):
        first = k * window.dilation[0]
        seen = g.reshape(g.slice(rows, 2, first, first + height), (batch, channels * wide, positions))
        summed = g.sum(g.matmul(seen, g.swap_last(turned)), [0])
        taps.append(g.reshape(summed, (channels, 1, wide, outputs)))
    return g.reshape(g.transpose(g.reshape(g.concat(taps, 1), (channels * tall * wide, outputs)), [1, 0]), sw)


# -- columns ---------------------------------------------------------------------------------------------------------


def write_side_columns(g: OnnxGraph, padded: str, window: Window, width: int) -> str:
    """The input that each tap of the last axis sees: (B, C, K, ..., width)."""
    batch, (channels, *sizes) = g.shape(padded)[0], g.sample_shape(padded)
    span = (width - 1) * window.stride[-1] + 1
    firsts = [t * window.dilation[-1] for t in range(window.kernel[-1])]
    parts = [g.slice(padded, len(sizes) + 1, f, f + span, window.stride[-1]) for f in firsts]
    return g.concat([g.reshape(v, (batch, channels, 1, *sizes[:-1], width)) for v in parts], 2)


def write_columns(g: OnnxGraph, x: str, window: Window, out: Sizes) -> str:
    """The input that each tap sees at each position: (B, C, K, P)."""
    batch, (channels, *spatial) = g.shape(x)[0], g.sample_shape(x)
    taps, positions = prod(window.kernel), prod(out)
    if taps == 1 and window.dense and not any(window.pads):
        return g.reshape(x, (batch, channels, 1, positions))
    few = channels >= CHANNELS_FOR_ONE_HOT or taps <= TAPS_FOR_ONE_HOT
    if (len(spatial) == 2 and few) or (len(spatial) == 1 and window.group > 1):
        return write_one_hot_columns(g, x, window, out)
    return write_sliced_columns(g, x, window, out)


def write_one_hot_columns(g: OnnxGraph, x: str, window: Window, out: Sizes) -> str:
    """Columns by a depthwise Conv whose kernels have a single one each."""
    batch, channels, taps = g.shape(x)[0], g.sample_shape(x)[0], prod(window.kernel)
    one = np.eye(taps).reshape(taps, 1, *window.kernel)
    weight = repeat_kernels(g, one, channels)
    cols = g.op(
        "Conv", x, weight, strides=list(window.stride), dilations=list(window.dilation), pads=window.pads,
        group=channels, shape=(batch, channels * taps, *out),
    )  # fmt: skip
    return g.reshape(cols, (batch, channels, taps, prod(out)))


def repeat_kernels(g: OnnxGraph, one: np.ndarray, channels: int) -> str:
    """Constant kernels once for each channel; many are repeated when the graph is loaded, and not in the file."""
    if one.size * channels <= LARGEST_IN_FILE:
        return g.constant(np.tile(one, (channels,) + (1,) * (one.ndim - 1)))
    shape = (len(one) * channels, *one.shape[1:])
    return g.op("Tile", g.constant(one), g.ints([channels] + [1] * (one.ndim - 1)), shape=shape)


def write_sliced_columns(g: OnnxGraph, x: str, window: Window, out: Sizes) -> str:
    """Columns axis by axis, the last one first: a few long copies instead of one short one per tap and row."""
    batch, (channels, *spatial) = g.shape(x)[0], g.sample_shape(x)
    padded = g.pad(x, [0, 0, *window.before], [0, 0, *window.after])
    cols, taps = write_side_columns(g, padded, window, out[-1]), window.kernel[-1]
    for i in reversed(range(len(spatial) - 1)):
        sizes = g.sample_shape(cols)[2:]
        if i:  # the axes before this one lie between the taps and it: put it next to them
            cols = g.transpose(cols, [0, 1, 2, 3 + i, *(3 + j for j in range(len(spatial)) if j != i)])
        cols = g.reshape(cols, (batch, channels, taps * sizes[i], *sizes[:i], *sizes[i + 1 :]))
        index = index_rows(window, i, taps, sizes[i], out[i])
        if len(index) != taps * sizes[i] or (np.diff(index) != 1).any():  # else all rows as they are: one tap
            cols = g.op(
                "Gather", cols, g.constant(index), axis=2, shape=(batch, channels, len(index), *g.shape(cols)[3:])
            )
        taps *= window.kernel[i]
        cols = g.reshape(cols, (batch, channels, taps, out[i], *sizes[:i], *sizes[i + 1 :]))
        if i:
            cols = g.transpose(cols, [0, 1, 2, *(4 + j for j in range(i)), 3, *range(4 + i, 3 + len(spatial))])
    return g.reshape(cols, (batch, channels, taps, prod(out)))


def index_rows(window: Window, axis: int, taps: int, size: int, out: int) -> np.ndarray:
    """The row that each (tap of this axis, tap of later ones, position) sees, of rows numbered by (taps, size)."""
    tap, later_tap, at = np.ogrid[: window.kernel[axis], :taps, :out]
    rows: np.ndarray = later_tap * size + tap * window.dilation[axis] + at * window.stride[axis]
    return rows.reshape(-1).astype(np.int64)


# -- shifted ---------------------------------------------------------------------------------------------------------


def write_shifted(g: OnnxGraph, x: str, gy: str, sw: Sizes) -> str:
    """gw for 3x3, stride 1, padding 1, on planes of H x W = P.

    Tap (kh, kw) needs gy[h, w] x[h + kh - 1, w + kw - 1]. Shifting gy by kw - 1 sideways and x by kh - 1 upwards, both
    on flat planes, leaves for each kh one product (3 O x P)(P x I): no wasted work, six copies instead of nine.
    """
    out, channels, (height, width) = sw[0], sw[1], g.sample_shape(x)[1:]
    positions = height * width
    if has_many_weights(out, 9 * channels, positions):
        return write_shifted_at_once(g, x, gy, sw)
    batch = g.shape(x)[0]
    few = positions <= FEW_POSITIONS
    sideways = g.concat([shift_sideways(g, gy, d) for d in (-1, 0, 1)], 1) if few else shift_all_sideways(g, gy)
    left = g.reshape(sideways, (batch, 3 * out, positions))
    rows = [g.reshape(shift_rows(g, x, d), (batch, channels, positions)) for d in (1, 0, -1)]
    taps = [g.sum(g.matmul(left, g.swap_last(r)), [0]) for r in rows]
    stacked = g.concat([g.reshape(t, (1, 3 * out, channels)) for t in taps], 0)
    if few:  # kh, kw, o, i
        return g.reshape(g.transpose(g.reshape(stacked, (9, out * channels)), [1, 0]), sw)
    return g.reshape(g.transpose(g.reshape(stacked, (3, out, 3, channels)), [1, 3, 0, 2]), sw)


def write_shifted_groups(g: OnnxGraph, x: str, gy: str, groups: int, sw: Sizes) -> str:
    """gw as in `write_shifted`, with the products of each group of channels on their own."""
    (out, channels), (height, width) = sw[:2], g.sample_shape(x)[1:]
    batch, positions, each = g.shape(x)[0], height * width, out // groups
    left = g.reshape(shift_all_sideways(g, gy), (batch, groups, 3 * each, positions))
    rows = [g.reshape(shift_rows(g, x, d), (batch, groups, channels, positions)) for d in (1, 0, -1)]
    taps = [g.sum(g.matmul(left, g.swap_last(r)), [0]) for r in rows]
    stacked = g.concat([g.reshape(t, (1, out, 3, channels)) for t in taps], 0)
    return g.reshape(g.transpose(stacked, [1, 3, 0, 2]), sw)


def write_shifted_at_once(g: OnnxGraph, x: str, gy: str, sw: Sizes) -> str:
    """gw as in `write_shifted`, with one product for the whole batch."""
    out, channels = sw[:2]
    x, gy = (g.transpose(v, [1, 0, 2, 3]) for v in (x, gy))
    merged = multiply(g.shape(x)[1:])
    left = g.concat([g.reshape(shift_sideways(g, gy, d), (out, merged)) for d in (-1, 0, 1)], 0)
    rows = [g.reshape(shift_rows(g, x, d), (channels, merged)) for d in (1, 0, -1)]
    taps = [g.reshape(g.matmul(left, g.swap_last(r)), (1, 3 * out, channels)) for r in rows]  # each kw, o, i
    return g.reshape(g.transpose(g.reshape(g.concat(taps, 0), (9, out * channels)), [1, 0]), sw)


def shift_all_sideways(g: OnnxGraph, v: str) -> str:
    """v[h, w + 1], v[h, w] and v[h, w - 1] of each channel, zero outside: (B, 3 C, H, W), by a one-hot Conv."""
    batch, (channels, height, width) = g.shape(v)[0], g.sample_shape(v)
    one = np.eye(3)[::-1].reshape(3, 1, 1, 3)
    weight = repeat_kernels(g, one, channels)
    return g.op("Conv", v, weight, pads=[0, 1, 0, 1], group=channels, shape=(batch, 3 * channels, height, width))


def shift_sideways(g: OnnxGraph, v: str, d: int) -> str:
    """v[h, w - d], zero outside.

    The column that would wrap around is cleared, then the whole value is shifted as one row.
    """
    if d == 0:
        return v
    shape, mask = g.shape(v), np.ones(as_numbers(g.shape(v)[2:]))
    mask[:, -1 if d > 0 else 0] = 0
    masked = g.mul(v, g.constant(mask))
    return g.reshape(g.pad(g.reshape(masked, (multiply(shape),)), [d], [-d]), shape)


def shift_rows(g: OnnxGraph, v: str, d: int) -> str:
    """v[h - d, w], zero outside."""
    if d == 0:
        return v
    batch, channels, *plane = g.shape(v)
    height, width = as_numbers(plane)
    rows = g.reshape(v, (multiply((batch, channels)), height * width))
    return g.pad(rows, [0, d * width], [0, -d * width])
