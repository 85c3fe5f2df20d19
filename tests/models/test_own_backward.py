"""Functions with a backward pass of their own: bundles have that pass, whatever the function computes."""

import pytest
import torch
from torch import nn
from torch.autograd.function import once_differentiable

from edge_sdk.models.bundle.compile import compile_module
from edge_sdk.models.ir.errors import ParityError, UnsupportedPattern
from edge_sdk.models.ir.specification.spec import Spec
from edge_sdk.models.rules import RULES
from tests.models.module_check import Net
from tests.models.test_side_effects import Saving
from tests.models.test_stop_gradient import train_both


class Reverse(torch.autograd.Function):
    """The identity, whose gradient is turned round: Ganin and Lempitsky 2015."""

    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return -g * ctx.factor, None


class Sign(torch.autograd.Function):
    """The sign, with the gradient of a clipped identity."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.sign(x)

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        return g * (ctx.saved_tensors[0].abs() <= 1).to(g.dtype)


class Bounded(torch.autograd.Function):
    """A product, of whose gradients one is bounded and the other is twice the derivative."""

    @staticmethod
    def forward(x, weight):
        return x * weight

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        x, weight = ctx.saved_tensors
        return (g * weight).clamp(-0.05, 0.05), 2 * (g * x).sum(0)


class Shared(torch.autograd.Function):
    """The identity, whose gradient is divided by its length over the whole batch."""

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return g / g.norm()


class Pair(torch.autograd.Function):
    """Two results, which are not traced with their backward pass."""

    @staticmethod
    def forward(ctx, x):
        return x * 2, x * 3

    @staticmethod
    def backward(ctx, a, b):
        return a + b


class Weighted(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.weight = nn.Conv1d(2, 4, 3), nn.Parameter(torch.rand(4, 6))
        self.head = nn.Linear(24, 3)

    def forward(self, x):
        h = Bounded.apply(Reverse.apply(self.body(x.abs()), 0.5), self.weight)
        spikes = torch.zeros_like(h)
        for _ in range(2):
            spikes = spikes * 0.5 + Sign.apply(h - 0.1)
        return self.head((spikes + Saving.apply(h)).flatten(1))


@pytest.mark.parametrize("native", [False, True])
def test_a_bundle_trains_as_torch(native):
    torch.manual_seed(1)
    theta, want, first = train_both(Weighted(), Spec("net", (2, 8), native=native))
    assert abs(theta - want).max() < 1e-5 * abs(want - first).max()


class Scaled(nn.Module):
    def forward(self, x):
        return Reverse.apply(x, 2.0)


def test_a_function_of_the_data_alone_has_no_gradient():
    torch.manual_seed(1)
    net = nn.Sequential(Scaled(), nn.Linear(8, 3))
    assert compile_module(net.eval(), Spec("net", (8,)), search=2).errors["float64"] < 1e-9


def test_gradients_that_depend_on_other_samples_are_refused():
    torch.manual_seed(1)
    with pytest.raises(UnsupportedPattern, match=r"gradient of a sample changes .* treat each sample alone"):
        compile_module(Net(Shared.apply).eval(), Spec("net", (8,)), search=0)


def test_a_backward_pass_that_is_written_wrongly_is_caught(monkeypatch):
    original = RULES["OwnGradient"]

    def broken(g, node, outs, want):
        return [a and g.scale(a, 1.001) for a in original(g, node, outs, want)]

    monkeypatch.setitem(RULES, "OwnGradient", broken)
    torch.manual_seed(1)
    with pytest.raises(ParityError, match="float64"):
        compile_module(Net(Saving.apply).eval(), Spec("net", (8,)), search=0)


def test_what_cannot_be_traced_is_named():
    torch.manual_seed(1)
    with pytest.raises(ParityError, match=r"Pair has a backward pass of its own.*detach\(\)"):
        compile_module(Net(lambda h: Pair.apply(h)[0]).eval(), Spec("net", (8,)), search=0)
