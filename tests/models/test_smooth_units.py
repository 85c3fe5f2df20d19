"""GELU and SiLU with one slope: torch's gradient, fewer operators, and no change where something else looks inside."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from edge_sdk.model.bundle import parse
from edge_sdk.model.model import Model
from edge_sdk.models.bundle.compile import compile_module
from edge_sdk.models.derive import targets
from edge_sdk.models.ir.specification.layout import lay_out_parameters
from edge_sdk.models.ir.specification.spec import Spec
from tests.models.module_check import Net, export_net, measure_error

UNITS = {
    "gelu": F.gelu,
    "silu": F.silu,
    "gelu by hand": lambda x: 0.5 * (1 + torch.erf(x / 2**0.5)) * x,
    "silu by hand": lambda x: torch.sigmoid(x) * x,
}


def list_operators(net, shape=(8,)) -> list[str]:
    _, _, forward = export_net(net, shape)
    source = targets.Source(forward, {"theta": lay_out_parameters(net)})
    return [n.op for n in targets.write_loss_grad(source, "cross_entropy").graph.nodes]


@pytest.mark.parametrize("name", UNITS)
def test_gradients_are_torchs(name):
    torch.manual_seed(2)
    assert measure_error(Net(UNITS[name]), (8,)) < 1e-9


@pytest.mark.parametrize(("name", "most"), [("gelu", 10), ("silu", 6), ("gelu by hand", 10)])
def test_few_passes_go_over_its_values(name, most):
    passes = {"Mul", "Add", "Sub", "Div", "Neg", "Erf", "Exp", "Sigmoid", "HardSigmoid", "Tanh"}
    with_unit, without = (list_operators(Net(f)) for f in (UNITS[name], lambda x: x))
    assert sum(op in passes for op in with_unit) - sum(op in passes for op in without) <= most


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x * torch.sigmoid(x) + torch.sigmoid(x),  # the gate is read twice
        lambda x: x * torch.sigmoid(2 * x),  # of something else
        lambda x: x * 0.5 * (1 + torch.erf(x / 1.4)),  # not the square root of 2
        lambda x: x.flip(1) * torch.sigmoid(x),
        lambda x: 0.25 * (1 + torch.erf(x / 2**0.5)) * x,
    ],
)
def test_what_only_looks_like_one_keeps_its_own_gradient(f):
    torch.manual_seed(2)
    assert measure_error(Net(f), (8,)) < 1e-9


@pytest.mark.parametrize("unit", [nn.GELU(), nn.SiLU()])
def test_far_from_zero_a_device_has_torchs_gradient(unit):
    """Slopes of 0 and 1 with no digits lost, also where e^(t t) is above all floats."""
    net = nn.Sequential(nn.Linear(7, 7, bias=False), unit, nn.Linear(7, 2))
    with torch.no_grad():
        net[0].weight.copy_(torch.eye(7))
    model = Model(parse(compile_module(net.eval(), Spec("m", (7,))).data))
    x, y = np.array([[-1e4, -30.0, -2.0, 0.0, 5.5, 40.0, 1e4]], np.float32), np.array([1])
    want = torch.autograd.grad(F.cross_entropy(net(torch.from_numpy(x)), torch.from_numpy(y)), list(net.parameters()))
    flat = torch.cat([g.reshape(-1) for g in want]).numpy()
    np.testing.assert_allclose(model.loss_grad(model.theta0, x, y)[1], flat, rtol=2e-6, atol=1e-6)


def test_features_inside_a_unit_are_still_there():
    class Gate(nn.Module):
        def forward(self, x):
            return torch.sigmoid(x)

    class Gated(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.gate, self.last = nn.Linear(4, 6), Gate(), nn.Linear(6, 3)

        def forward(self, x):
            h = self.first(x)
            return self.last(h * self.gate(h))

    torch.manual_seed(0)
    net = Gated().eval()
    model = Model(parse(compile_module(net, Spec("m", (4,), features="gate")).data))
    x, cotangent = np.ones((2, 4), np.float32), np.ones((2, 6), np.float32)
    out, grad = model.features_vjp(model.theta0, x, cotangent)
    h = net.gate(net.first(torch.from_numpy(x)))
    want = torch.autograd.grad(h.sum(), list(net.first.parameters()))
    np.testing.assert_allclose(out, h.detach().numpy(), rtol=1e-6)
    np.testing.assert_allclose(grad[:30], torch.cat([g.reshape(-1) for g in want]).numpy(), rtol=1e-5)
