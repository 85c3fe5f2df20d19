"""A module whose training mode stops or multiplies gradients is refused: a bundle has those of evaluation."""

import pytest
import torch
from torch import nn

from edge_sdk.models.bundle.compile import compile_module
from edge_sdk.models.ir.errors import DetachedGradient, TrainModeExport, UnsupportedPattern
from edge_sdk.models.ir.specification.spec import Spec


class Net(nn.Module):
    """A body, of which training makes something else, and a head."""

    def __init__(self, stop, drop=0.0, zero=False):
        super().__init__()
        self.body, self.drop, self.head, self.stop = nn.Conv1d(3, 8, 3), nn.Dropout(drop), nn.Linear(8, 4), stop
        if zero:
            nn.init.zeros_(self.head.weight)

    def forward(self, x):
        with torch.set_grad_enabled(self.stop is not no_grad or not self.training):
            z = self.body(x).relu().mean(-1)
        return self.head(self.drop(self.stop(z) if self.training else z))


class Multiply(torch.autograd.Function):
    """The identity, whose gradient is a tenth."""

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return g * 0.1


def no_grad(z):
    return z


STOPS = {
    "detach": lambda z: z.detach(),
    "no_grad": no_grad,
    "multiplier": lambda z: Multiply.apply(z),
    "half of the channels": lambda z: torch.cat([z[:, :4].detach(), z[:, 4:]], 1),
    "hook": lambda z: (z.register_hook(lambda g: g * 0.1), z)[1],
}


@pytest.mark.parametrize("dropout", ["", "off", "keep"])
@pytest.mark.parametrize("name", STOPS)
def test_another_gradient_in_training_is_refused_whatever_is_said_of_dropout(name, dropout):
    with pytest.raises(TrainModeExport, match=r"^body: the gradient of weight is another one in training"):
        compile_module(Net(STOPS[name]).eval(), Spec("net", (3, 16), dropout=dropout), search=0)


@pytest.mark.parametrize("dropout", ["off", "keep"])
@pytest.mark.parametrize("name", STOPS)
def test_it_is_found_beside_dropout_and_behind_a_layer_of_zeros(name, dropout):
    for zero in (False, True):
        with pytest.raises((TrainModeExport, DetachedGradient), match=r"^body: "):
            compile_module(Net(STOPS[name], 0.3, zero).eval(), Spec("net", (3, 16), dropout=dropout), search=0)


@pytest.mark.parametrize("dropout", ["off", "keep"])
def test_a_branch_that_changes_nothing_compiles(dropout):
    compile_module(Net(lambda z: z + 0, 0.3).eval(), Spec("net", (3, 16), dropout=dropout), search=0)


class Frozen(Net):
    """A body that does not require a gradient in training."""

    def forward(self, x):
        self.body.requires_grad_(not self.training)
        return super().forward(x)


@pytest.mark.parametrize("dropout", ["", "off"])
def test_a_body_that_training_freezes_is_refused(dropout):
    with pytest.raises(TrainModeExport, match=r"^body: the gradient of weight .*of size 0, not"):
        compile_module(Frozen(lambda z: z).eval(), Spec("net", (3, 16), dropout=dropout), search=0)


class Bounded(Net):
    """Something that training alone does with large values."""

    def __init__(self, bound):
        super().__init__(lambda z: z)
        self.bound = bound
        self.register_buffer("largest", torch.full((), 10.0))

    def forward(self, x):
        return super().forward(self.bound(self, x)) if self.training else super().forward(x / self.largest * 10)


def follow_the_largest(net, x):
    net.largest.copy_(torch.maximum(net.largest, x.detach().abs().max()))
    return x / net.largest * 10


def bound_weights(net, x):
    return x * net.body.weight.abs().max().clamp(max=2) / net.body.weight.abs().max()


BOUNDS = {
    "inputs": lambda net, x: x.clamp(-12, 12),
    "inputs without a gradient": lambda net, x: torch.where(x.abs() > 12, x.sign(), x),
    "weights": bound_weights,
}


@pytest.mark.parametrize("dropout", ["", "off", "keep"])
def test_what_only_large_inputs_change_is_refused(dropout):
    with pytest.raises(UnsupportedPattern, match=r"^the module: buffer largest changes in training"):
        compile_module(Bounded(follow_the_largest).eval(), Spec("net", (3, 16), dropout=dropout), search=0)


@pytest.mark.parametrize("dropout", ["", "keep"])
@pytest.mark.parametrize("name", BOUNDS)
def test_a_bound_in_training_is_found_where_it_acts(name, dropout):
    with pytest.raises(TrainModeExport, match="does something else in training than in evaluation"):
        compile_module(Bounded(BOUNDS[name]).eval(), Spec("net", (3, 16), dropout=dropout), search=0)
