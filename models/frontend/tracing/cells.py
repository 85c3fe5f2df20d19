"""Cells of recurrent layers as ONNX, for loops that a module makes itself.

Torch's exporter has no function for a cell, and takes each one apart by tracing it anew, several times: of a loop of 64
GRU cells most of the export.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from onnxscript.onnx_opset import opset18 as op

aten = torch.ops.aten


def add_up(x: Any, weight: Any, bias: Any) -> Any:
    """x W^T + b, where there is a b."""
    product = op.MatMul(x, op.Transpose(weight, perm=[1, 0]))
    return product if bias is None else op.Add(product, bias)


def gru_cell(x: Any, h: Any, w_x: Any, w_h: Any, b_x: Any = None, b_h: Any = None) -> Any:
    """The next state of `torch.nn.GRUCell`, by the equations of its documentation."""
    reset_x, update_x, new_x = op.Split(add_up(x, w_x, b_x), num_outputs=3, axis=1)
    reset_h, update_h, new_h = op.Split(add_up(h, w_h, b_h), num_outputs=3, axis=1)
    reset, update = op.Sigmoid(op.Add(reset_h, reset_x)), op.Sigmoid(op.Add(update_h, update_x))
    new = op.Tanh(op.Add(new_x, op.Mul(new_h, reset)))
    return op.Add(op.Mul(op.Sub(h, new), update), new)


def lstm_cell(x: Any, state: Any, w_x: Any, w_h: Any, b_x: Any = None, b_h: Any = None) -> Any:
    """The next state (h, c) of `torch.nn.LSTMCell`, by the equations of its documentation."""
    h, c = state
    gates = op.Add(add_up(h, w_h, b_h), add_up(x, w_x, b_x))
    enter, forget, new, leave = op.Split(gates, num_outputs=4, axis=1)
    cell = op.Add(op.Mul(op.Sigmoid(forget), c), op.Mul(op.Sigmoid(enter), op.Tanh(new)))
    return op.Mul(op.Sigmoid(leave), op.Tanh(cell)), cell


def rnn_tanh_cell(x: Any, h: Any, w_x: Any, w_h: Any, b_x: Any = None, b_h: Any = None) -> Any:
    """The next state of `torch.nn.RNNCell`."""
    return op.Tanh(op.Add(add_up(x, w_x, b_x), add_up(h, w_h, b_h)))


def rnn_relu_cell(x: Any, h: Any, w_x: Any, w_h: Any, b_x: Any = None, b_h: Any = None) -> Any:
    """The next state of `torch.nn.RNNCell` with a ReLU."""
    return op.Relu(op.Add(add_up(x, w_x, b_x), add_up(h, w_h, b_h)))


CELLS: dict[Callable[..., Any], Callable[..., Any]] = {
    aten.gru_cell.default: gru_cell,
    aten.lstm_cell.default: lstm_cell,
    aten.rnn_tanh_cell.default: rnn_tanh_cell,
    aten.rnn_relu_cell.default: rnn_relu_cell,
}


def find_cells(program: torch.export.ExportedProgram) -> dict[Callable[..., Any], Callable[..., Any]]:
    """ONNX functions of the cells in a program, for `torch.onnx.export`."""
    used = {node.target for node in program.graph.nodes}
    return {cell: function for cell, function in CELLS.items() if cell in used}
