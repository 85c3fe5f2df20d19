"""Loops of recurrent cells: they train as torch's do, and no cell is taken apart by tracing it anew."""

import functools

import pytest
import torch
from torch import nn

from edge_sdk.models.frontend.tracing.cells import CELLS
from tests.models.module_check import export_net, measure_exported

MAKES = {
    "gru": lambda **o: nn.GRUCell(3, 4, **o),
    "lstm": lambda **o: nn.LSTMCell(3, 4, **o),
    "tanh": lambda **o: nn.RNNCell(3, 4, **o),
    "relu": lambda **o: nn.RNNCell(3, 4, nonlinearity="relu", **o),
}


class Loop(nn.Module):
    """A cell over windows (N, 3, T), and a head on its last state."""

    def __init__(self, cell: nn.RNNCellBase) -> None:
        super().__init__()
        self.cell, self.head = cell, nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = None
        for step in range(x.shape[2]):
            state = self.cell(x[:, :, step], state)
        return self.head(sum(state) if isinstance(state, tuple) else state)


def counted(function, calls):
    @functools.wraps(function)
    def call(*given):
        calls.append(function.__name__)
        return function(*given)

    return call


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", MAKES)
def test_a_loop_of_cells_has_torchs_gradient(kind: str, bias: bool) -> None:
    torch.manual_seed(0)
    net, inputs, forward = export_net(Loop(MAKES[kind](bias=bias)), (3, 5))
    assert measure_exported(net, inputs, forward) <= 1e-12


def test_a_cell_is_written_as_one_function(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    for op, function in CELLS.items():
        monkeypatch.setitem(CELLS, op, counted(function, calls))
    for make in MAKES.values():
        export_net(Loop(make()), (3, 5))
    assert [calls.count(f"{kind}_cell") for kind in ("gru", "lstm", "rnn_tanh", "rnn_relu")] == [5] * 4
