"""Slopes that are infinite at 0 behind units that are off: torch's gradient is finite there, and so is a device's."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from edge_sdk.model.bundle import parse
from edge_sdk.model.model import Model
from edge_sdk.models.bundle.compile import compile_module
from edge_sdk.models.derive.reverse import find_dependents
from edge_sdk.models.derive.steep import find_steep
from edge_sdk.models.ir.graph import OnnxGraph
from edge_sdk.models.ir.specification.spec import Spec


class Net(nn.Module):
    def __init__(self, f):
        super().__init__()
        self.body, self.head, self.f = nn.Conv1d(2, 4, 3), nn.Linear(4, 3), f

    def forward(self, x):
        return self.head(self.f(self.body(x)).flatten(1))


def off(unit):
    """The root of the mean of a unit that is 0 for samples of zeros."""
    return lambda h: unit(h).mean(-1).sqrt()


FUNCTIONS = {
    "power mean": lambda h: F.lp_pool1d(h, 2, 10),
    "power mean of units": lambda h: F.lp_pool1d(F.relu(h), 3, 10),
    "relu": off(F.relu),
    "relu6": off(F.relu6),
    "clamp": off(lambda h: h.sub(1e-3).clamp(min=0)),
    "clamp between": off(lambda h: h.sub(1e-3).clamp(0, 9)),
    "hardtanh": off(lambda h: F.hardtanh(h, 0, 1)),
    "hardsigmoid": off(lambda h: F.hardsigmoid(h - 3)),
    "hardswish": off(lambda h: F.hardswish(h - 3).abs()),
    "maximum": off(lambda h: torch.maximum(h - 1e-3, torch.zeros_like(h))),
    "logarithm": lambda h: F.relu(h).mean(-1).log().clamp(min=-9),
    "quotient": lambda h: (1 / F.relu(h).amax(-1)).clamp(max=9),
    "angle": lambda h: torch.acos((h.mean(-1) + 2).clamp(-1, 1)),
    "pooled": lambda h: F.max_pool1d(F.relu(h), 2).mean(-1).sqrt(),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_gradient_is_torchs_where_units_are_off(name):
    torch.manual_seed(1)
    net = Net(FUNCTIONS[name]).eval()
    nn.init.zeros_(net.body.bias)
    model = Model(parse(compile_module(net, Spec("net", (2, 12)), search=0).data))
    x, y = np.random.default_rng(0).standard_normal((3, 2, 12)).astype(np.float32), np.arange(3)
    x[1:] = 0
    F.cross_entropy(net(torch.from_numpy(x)), torch.from_numpy(y)).backward()
    want = np.concatenate([p.grad.numpy().ravel() for p in net.parameters()])
    assert np.isfinite(want).all()
    got = model.loss_grad(model.theta0, x, y)[1]
    assert np.linalg.norm(got - want) <= 1e-4 * np.linalg.norm(want)


def list_steep(write):
    g = OnnxGraph()
    x = g.unary("Relu", g.input("x", (4,)))
    made = write(g, x)
    return x in find_steep(g, [made], find_dependents(g, ["x"]))


@pytest.mark.parametrize(
    ("write", "steep"),
    [
        (lambda g, x: g.unary("Sqrt", x), True),
        (lambda g, x: g.unary("Sqrt", g.add(x, g.scalar(1e-5))), False),
        (lambda g, x: g.unary("Sqrt", g.sub(x, g.scalar(1e-5))), True),
        (lambda g, x: g.div(x, g.unary("Sqrt", g.add(g.mean(g.mul(x, x), [0], keep=True), g.scalar(1e-5)))), False),
        (lambda g, x: g.div(x, g.sum(x, [0], keep=True)), True),
        (lambda g, x: g.div(g.unary("Exp", x), g.sum(g.unary("Exp", x), [0], keep=True)), False),
        (lambda g, x: g.op("Pow", x, g.scalar(3), shape=(4,)), False),
        (lambda g, x: g.op("Pow", x, g.scalar(0.5), shape=(4,)), True),
    ],
)
def test_only_what_may_be_zero_is_steep(write, steep):
    assert list_steep(write) == steep
