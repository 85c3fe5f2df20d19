"""Pooling with padding and ceil_mode: torch has no window that begins in the padding after the input."""

import pytest
import torch
from torch import nn

from edge_sdk.models.bundle.compile import compile_module
from edge_sdk.models.frontend.tracing import export
from edge_sdk.models.ir.errors import CompileError
from edge_sdk.models.ir.specification.spec import Spec
from tests.models.module_check import measure_error


def lines(pool, length=8):
    layers = [nn.Conv1d(1, 2, 2), pool, nn.Flatten()]
    width = nn.Sequential(*layers)(torch.zeros(1, 1, length)).shape[1]
    return nn.Sequential(*layers, nn.Linear(width, 3)), (1, length)


def planes(pool):
    layers = [nn.Conv2d(1, 2, 2), pool, nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(nn.Sequential(*layers)(torch.zeros(1, 1, 6, 5)).shape[1], 3)), (1, 6, 5)


POOLS = {
    "a line": lambda: lines(nn.MaxPool1d(2, 2, padding=1, ceil_mode=True)),
    "steps wider than windows": lambda: lines(nn.MaxPool1d(1, 4, ceil_mode=True), 7),
    "one axis of two": lambda: planes(nn.MaxPool2d(2, 2, padding=1, ceil_mode=True)),
    "means": lambda: lines(nn.AvgPool1d(2, 2, padding=1, ceil_mode=True)),
    "a window beyond the end": lambda: lines(nn.MaxPool1d(3, 2, ceil_mode=True), 9),
}


@pytest.mark.parametrize("name", POOLS)
def test_windows_at_the_end(name):
    torch.manual_seed(0)
    net, shape = POOLS[name]()
    assert measure_error(net, shape) <= 1e-9


def test_on_the_device():
    torch.manual_seed(0)
    net, shape = POOLS["a line"]()
    assert compile_module(net.eval(), Spec("m", shape)).errors["float32"] <= 1e-4


def test_sizes_as_onnx_has_them_are_caught(monkeypatch):
    monkeypatch.setattr(export, "cut_pools", lambda model: None)
    torch.manual_seed(0)
    net, shape = POOLS["a line"]()
    with pytest.raises(CompileError):
        compile_module(net.eval(), Spec("m", shape))
