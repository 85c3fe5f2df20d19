"""What other releases of torch leave in a module or a program, on any release."""

from __future__ import annotations

import copy
from types import SimpleNamespace

import numpy as np
import torch
from torch import nn

from edge_sdk.model.bundle import parse
from edge_sdk.model.model import Model
from edge_sdk.models.bundle.compile import compile_module
from edge_sdk.models.frontend.tracing import export
from edge_sdk.models.gate.operators.isolate import list_rewritten
from edge_sdk.models.ir.specification.spec import Spec


class Noting(nn.Module):
    """Keeps its attention for a plot, and drops in place."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.seen = nn.Linear(4, 8), nn.Linear(8, 3), None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.first(x).relu()
        self.seen = torch.softmax(hidden, -1)
        return self.second(nn.functional.dropout(hidden * self.seen, 0.2, self.training, inplace=True))


def test_tracing_leaves_a_module_as_it_was(monkeypatch):
    """As torch 2.9, which leaves there what `forward` keeps."""
    traced, run = [], torch.export.export

    def trace_and_leave(net, *given, **more):
        made = run(net, *given, **more)
        net.net.seen = torch.zeros(2, requires_grad=True) * 2
        traced.append(net.net)
        return made

    monkeypatch.setattr(export.torch.export, "export", trace_and_leave)
    torch.manual_seed(0)
    model = Model(parse(compile_module(Noting().eval(), Spec("m", (4,), 3, dropout="off"), search=0).data))
    assert traced
    for net in traced:
        copy.deepcopy(net)  # which what was left would not allow
    assert np.isfinite(model.loss_grad(model.theta0, np.ones((2, 4), np.float32), np.arange(2))[1]).all()


def test_the_table_of_functions_is_read_without_a_version(monkeypatch):
    """As torch 2.6 asks for it."""
    calls = []
    monkeypatch.setattr(export, "READ", lambda: calls.append("read") or SimpleNamespace())
    export.read_registry.cache_clear()
    try:
        with export.keep_registry():
            assert export.ONNXRegistry.from_torchlib() is export.ONNXRegistry.from_torchlib()
    finally:
        export.read_registry.cache_clear()
    assert calls == ["read"]


def test_gradients_that_can_be_differentiated_again_are_compared(monkeypatch):
    """As those that torch 2.9 makes up for a parameter that changes nothing."""
    differentiate = torch.autograd.grad

    def make_up(*given, materialize_grads=False, **more):
        found = differentiate(*given, materialize_grads=materialize_grads, **more)
        return [each.requires_grad_() for each in found] if materialize_grads else found

    monkeypatch.setattr(torch.autograd, "grad", make_up)
    made = compile_module(Noting().eval(), Spec("m", (4,), 3, dropout="off"), search=0)
    assert made.errors["float64"] < 1e-6


def test_dropout_in_place_is_no_function_to_be_compared():
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    for target in (torch.ops.aten.dropout_.default, torch.ops.aten.sigmoid.default):
        graph.call_function(target, (x, 0.2, False) if "dropout" in str(target) else (x,))
    forward = SimpleNamespace(
        traced=SimpleNamespace(graph=graph), program=SimpleNamespace(graph=SimpleNamespace(nodes=[]))
    )
    assert [n.target for n in list_rewritten(forward, set())] == [torch.ops.aten.sigmoid.default]
