"""`detach` and `no_grad` in a module: its bundle trains as torch trains it, and no device sees a mark."""

import numpy as np
import onnx
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from edge_sdk.model.bundle import parse
from edge_sdk.model.model import Model
from edge_sdk.models.bundle.compile import compile_module
from edge_sdk.models.derive import reverse
from edge_sdk.models.gate.operators.calls import check_calls
from edge_sdk.models.ir.errors import CompileError, DetachedGradient, ParityError
from edge_sdk.models.ir.marks import MARKS
from edge_sdk.models.ir.specification.spec import Spec
from edge_sdk.models.rules import RULES
from tests.models.module_check import Net, export_net, measure_error, measure_exported


def straight_through(h):
    h = torch.tanh(h)
    return h + (torch.round(h * 4) / 4 - h).detach()


def centred(h):
    with torch.no_grad():
        centre = h.mean(1, keepdim=True)
        with torch.enable_grad():
            twice = h * 2
    return twice - centre


def weighted(h):
    """A function without a gradient rule, which none needs behind a stop."""
    return h * torch.linalg.det(h.detach().reshape(-1, 2, 3)[:, :, :2])[:, None]


def assigned(h):
    with torch.no_grad():
        part = torch.zeros_like(h)
        part[:, :3] = h[:, :3]
        part[h < 0] = 1
        part.clamp_(-1, 1)
    return h * part


def nested(h):
    return (h.detach() * h).detach() + h * (h.exp().detach() - h.cos())


STOPS = {
    "added": lambda h: h.detach() + h,
    "straight through": straight_through,
    "no_grad": centred,
    "assignments": assigned,
    "data": lambda h: h * h.data,
    "without a rule": weighted,
    "nested": nested,
    "reversed": lambda h: 2 * h.detach() - h,
}


@pytest.mark.parametrize("name", STOPS)
def test_gradients_are_torchs(name):
    torch.manual_seed(1)
    net, inputs, forward = export_net(Net(STOPS[name]), (8,))
    check_calls(forward)
    assert measure_exported(net, inputs, forward) < 1e-9


class Quantised(nn.Module):
    """Codes from a table, as in VQ-VAE: the nearest row, with the gradient of what it is the nearest to."""

    def __init__(self):
        super().__init__()
        self.body, self.norm = nn.Conv1d(2, 4, 3), nn.GroupNorm(2, 4)
        self.table, self.drop, self.head = nn.Parameter(torch.randn(5, 4)), nn.Dropout(0.25), nn.Linear(24, 3)

    def forward(self, x):
        h = self.norm(self.body(x)).transpose(1, 2)
        with torch.no_grad():
            nearest = (h.unsqueeze(2) - self.table).square().sum(-1).argmin(-1)
        rows = self.table[nearest]
        return self.head(self.drop((h + (rows - h).detach() + 0.25 * (rows - rows.detach())).flatten(1)))


def train_both(net, spec, steps=6):
    """theta after some steps of plain descent, by the bundle and by torch."""
    torch.manual_seed(2)
    bundle = parse(compile_module(net.eval(), spec, search=2).data)
    for part, content in bundle.parts.items():
        if part.endswith(".onnx"):
            assert MARKS.isdisjoint(n.op_type for n in onnx.load_from_string(bytes(content)).graph.node), part
    assert bundle.own_gradient
    model, x, y = Model(bundle), torch.randn(9, 2, 8), torch.arange(9) % 3
    theta, optimiser = model.theta0.copy(), torch.optim.SGD(net.parameters(), lr=0.3)
    for _ in range(steps):
        theta -= 0.3 * model.loss_grad(theta, x.numpy(), y.numpy())[1]
        optimiser.zero_grad()
        F.cross_entropy(net(x), y).backward()
        optimiser.step()
    return theta, np.concatenate([p.detach().numpy().ravel() for p in net.parameters()]), model.theta0


@pytest.mark.parametrize("form", [{"dropout": "off"}, {"dropout": "keep", "native": True, "blocked": True}])
def test_a_bundle_trains_as_torch_in_every_form(form):
    torch.manual_seed(1)
    theta, want, first = train_both(Quantised(), Spec("net", (2, 8), **form))
    assert np.abs(theta - want).max() < 1e-5 * np.abs(want - first).max()


def test_what_gets_no_gradient_stays_as_it_is():
    torch.manual_seed(1)
    net = Net(lambda h: h.detach())
    model = Model(parse(compile_module(net.eval(), Spec("net", (8,)), search=2).data))
    grad = model.loss_grad(model.theta0, np.ones((2, 8), np.float32), np.arange(2))[1]
    assert not grad[:54].any() and grad[54:].any()


def test_a_number_of_python_is_refused_with_what_to_use():
    with pytest.raises(DetachedGradient, match=r"the module: item; .*detach\(\)"):
        measure_error(Net(lambda h: h * h.max().item()), (8,))


def test_a_rule_that_lets_gradients_through_is_caught(monkeypatch):
    monkeypatch.setattr(reverse, "INERT", reverse.INERT - {"StopGradient"})
    monkeypatch.setitem(RULES, "StopGradient", lambda g, node, outs, want: [outs[0]])
    torch.manual_seed(1)
    with pytest.raises(ParityError, match="float64"):
        measure_error(Net(STOPS["added"]), (8,))


def test_a_mark_that_is_left_in_a_graph_is_no_model(monkeypatch):
    monkeypatch.setattr(reverse, "take_out_marks", lambda g: g)
    with pytest.raises((CompileError, onnx.checker.ValidationError)):
        measure_error(Net(STOPS["added"]), (8,))
