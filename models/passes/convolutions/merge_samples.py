"""Rewrites convolutions with few positions and many weights as products over all samples (rules/windows)."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from edge_sdk.models.ir.graph import CustomGradient, OnnxGraph
from edge_sdk.models.ir.nodes import OnnxNode
from edge_sdk.models.rules.windows.convolution import sum_channels
from edge_sdk.models.rules.windows.few_positions import (
    add_rows,
    has_few_positions,
    turn_adjoint,
    write_rows,
)
from edge_sdk.models.rules.windows.window import Window, read_window

POSITIONS = 8  # up to here it is also faster than a convolution in the blocked layout


def merge_samples(g: OnnxGraph) -> None:
    """Rewrite all convolutions that gain by it, in place."""
    forward = g.take_nodes()
    for n in forward:
        window = read_window(g, n, g.numbers(n.inputs[1])[2:]) if n.op == "Conv" else None
        if window is not None and gains(g, n, window):
            write_merged(g, n, window)
        else:
            g.put_back(n)
    g.where = ""


def gains(g: OnnxGraph, n: OnnxNode, window: Window) -> bool:
    """True if a convolution has few enough positions."""
    inputs, outputs = (g.sample_shape(v)[1:] for v in (n.inputs[0], n.outputs[0]))
    return has_few_positions(window, g.numbers(n.inputs[1]), inputs, outputs, POSITIONS)


def write_merged(g: OnnxGraph, n: OnnxNode, window: Window) -> None:
    """Append a convolution as a product, with its backward pass."""
    g.where = n.where
    (x, w, *bias), y = n.inputs, n.outputs[0]
    sx, sw, (batch, out, *spatial) = g.shape(x), g.numbers(w), g.shape(y)
    outputs, columns = g.sample_shape(y)[1:], prod(sw[1:])
    rows, weights = write_rows(g, x, window, outputs), g.reshape(w, (out, columns))
    made = g.op("Gemm", rows, weights, *bias, transB=1, shape=(g.shape(rows)[0], out))
    turned = g.transpose(g.reshape(made, (batch, prod(outputs), out)), [0, 2, 1])
    g.op("Reshape", turned, g.ints([0, sw[0], *outputs]), shape=(batch, out, *spatial), output=y)

    def backward(g: OnnxGraph, gy: str, want: Sequence[bool]) -> list[str | None]:
        adjoint = turn_adjoint(g, gy)
        gx = add_rows(g, g.gemm(adjoint, weights), window, sx, outputs) if want[0] else None
        gw = g.reshape(g.gemm(adjoint, rows, ta=True), sw) if want[1] else None
        return [gx, gw, sum_channels(g, gy) if len(want) > 2 and want[2] else None]

    g.custom_gradients[y] = CustomGradient(tuple(n.inputs), backward)
