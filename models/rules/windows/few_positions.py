"""Convolutions with few positions and many weights, as one product over the positions of all samples.

onnxruntime's convolutions multiply the weights with each sample on its own. With four positions a product is mostly
spent on reading the weights, once per sample, and a transposed convolution even copies them each time. Here the samples
are merged: with rows = columns of x, (B P, C K),
    y = rows w',    gw = gy' rows,    grows = gy w
where w and gw are matrices (O, C K) as they lie in theta, so that no weight is moved. Columns are a product too, with a
constant matrix of ones and zeros, (positions of x, P K); its transpose adds them up again.
"""

from __future__ import annotations

from math import prod

import numpy as np

from edge_sdk.models.ir.graph import OnnxGraph
from edge_sdk.models.ir.shapes import Shape, as_numbers, multiply
from edge_sdk.models.rules.windows.window import Window

FEWEST_WEIGHTS = 1 << 15
LARGEST_SELECTION = 1 << 14  # numbers of the constant matrix, which is in the file
POSITIONS = 16

Sizes = tuple[int, ...]


def has_few_positions(window: Window, sw: Sizes, inputs: Sizes, outputs: Sizes, most: int = POSITIONS) -> bool:
    """True if a dense convolution with weights of shape `sw` has `most` output positions and far more weights.

    Args:
        inputs, outputs: sizes of the spatial axes.
    """
    positions, columns = prod(outputs), prod(sw[1:])
    selection = 0 if is_pointwise(window) else prod(inputs) * positions * prod(window.kernel)
    many = sw[0] * columns >= max(FEWEST_WEIGHTS, (sw[0] + columns) * positions)
    return window.group == 1 and positions <= most and many and selection <= LARGEST_SELECTION


def is_pointwise(window: Window) -> bool:
    """True if every output sees one input, at its own place."""
    return prod(window.kernel) == 1 and window.dense and not any(window.pads)


def write_rows(g: OnnxGraph, x: str, window: Window, outputs: Sizes) -> str:
    """The columns of x as rows, (B P, C K)."""
    batch, (channels, *inputs) = g.shape(x)[0], g.sample_shape(x)
    positions, taps = prod(outputs), prod(window.kernel)
    if is_pointwise(window):
        return turn(g, g.reshape(x, (batch, channels, positions)))
    flat = g.reshape(x, (multiply((batch, channels)), prod(inputs)))
    seen = g.matmul(flat, g.constant(select_taps(window, tuple(inputs), outputs)))
    apart = g.transpose(g.reshape(seen, (batch, channels, positions, taps)), [0, 2, 1, 3])
    return g.reshape(apart, (multiply((batch, positions)), channels * taps))


def add_rows(g: OnnxGraph, rows: str, window: Window, sx: Shape, outputs: Sizes) -> str:
    """The adjoint of x from that of its rows, (B P, C K)."""
    batch, (channels, *inputs) = sx[0], as_numbers(sx[1:])
    positions, taps = prod(outputs), prod(window.kernel)
    apart = g.transpose(g.reshape(rows, (batch, positions, channels, taps)), [0, 2, 1, 3])
    if is_pointwise(window):
        return g.reshape(apart, sx)
    selection = g.constant(select_taps(window, tuple(inputs), outputs).T)
    return g.reshape(g.matmul(g.reshape(apart, (multiply((batch, channels)), positions * taps)), selection), sx)


def turn(g: OnnxGraph, v: str) -> str:
    """(B, C, P) as rows (B P, C)."""
    batch, (channels, positions) = g.shape(v)[0], g.sample_shape(v)
    return g.reshape(g.transpose(v, [0, 2, 1]), (multiply((batch, positions)), channels))


def turn_adjoint(g: OnnxGraph, gy: str) -> str:
    """gy (B, O, *outputs) as rows (B P, O)."""
    channels, *outputs = g.sample_shape(gy)
    return turn(g, g.reshape(gy, (g.shape(gy)[0], channels, prod(outputs))))


def select_taps(window: Window, inputs: Sizes, outputs: Sizes) -> np.ndarray:
    """The matrix (inputs, outputs x taps) with a one where an output sees an input through a tap."""
    found = np.ones((1, 1, 1))
    for i, (size, stops) in enumerate(zip(inputs, outputs, strict=True)):
        at, stop, tap = np.ogrid[:size, :stops, : window.kernel[i]]
        one = at == stop * window.stride[i] + tap * window.dilation[i] - window.before[i]
        found = np.einsum("ipk,jql->ijpqkl", found, one).reshape(
            len(found) * size, found.shape[1] * stops, found.shape[2] * window.kernel[i]
        )
    return np.asarray(found.reshape(len(found), -1))


def write_input_adjoint(g: OnnxGraph, gy: str, w: str, window: Window, sx: Shape) -> str:
    """The adjoint of x, of shape `sx`."""
    out, *rest = g.numbers(w)
    rows = g.gemm(turn_adjoint(g, gy), g.reshape(w, (out, prod(rest))))
    return add_rows(g, rows, window, sx, g.sample_shape(gy)[1:])
