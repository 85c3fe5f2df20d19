"""Hooks on gradients are refused by the name of what has them: devices would not call them."""

import pytest
import torch
from torch import nn

from edge_sdk.models.bundle.compile import compile_module
from edge_sdk.models.ir.errors import UnsupportedPattern
from edge_sdk.models.ir.specification.spec import Spec


def on_parameter(net):
    net[1].weight.register_hook(lambda g: g * 0)


def after_parameter(net):
    net[1].weight.register_post_accumulate_grad_hook(lambda p: p.grad.zero_())


def on_layer(net):
    net[1].register_full_backward_hook(lambda m, gx, gy: gx)


def before_layer(net):
    net[1].register_full_backward_pre_hook(lambda m, gy: gy)


HOOKS = {"1.weight: ": (on_parameter, after_parameter), "1: ": (on_layer, before_layer)}


@pytest.mark.parametrize(("place", "add"), [(place, add) for place, adds in HOOKS.items() for add in adds])
def test_a_hook(place, add):
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3)).eval()
    add(net)
    with pytest.raises(UnsupportedPattern, match=rf"^{place}a hook on this .*; remove it"):
        compile_module(net, Spec("m", (4,)))


def test_a_forward_hook_is_part_of_the_module():
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3)).eval()
    net[0].register_forward_hook(lambda m, x, y: torch.tanh(y))
    assert compile_module(net, Spec("m", (4,))).errors["float64"] <= 1e-6


class OnTensor(nn.Module):
    """A layer that puts a hook on its result."""

    def __init__(self, hook):
        super().__init__()
        self.body, self.hook = nn.Linear(4, 4), hook

    def forward(self, x):
        h = self.body(x)
        if h.requires_grad:
            h.register_hook(self.hook)
        return torch.tanh(h)


TENSOR_HOOKS = {
    "multiplies": lambda g: 0.1 * g,
    "limits": lambda g: g.clamp(-100, 100),
    "writes": lambda g: (g.mul_(0.1), None)[1],
}


@pytest.mark.parametrize("kind", TENSOR_HOOKS)
def test_a_hook_on_a_tensor_that_changes_its_gradient(kind):
    net = nn.Sequential(OnTensor(TENSOR_HOOKS[kind]), nn.Linear(4, 3)).eval()
    with pytest.raises(
        UnsupportedPattern, match=r"^0: x\.register_hook in forward changes a gradient.*with detach\(\)"
    ):
        compile_module(net, Spec("m", (4,)))


def test_a_hook_on_a_tensor_that_only_looks_is_harmless():
    net = nn.Sequential(OnTensor(lambda g: None), nn.Linear(4, 3)).eval()
    assert compile_module(net, Spec("m", (4,)), search=0).errors["float64"] <= 1e-6
