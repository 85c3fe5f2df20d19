"""Branches on whether gradients are wanted: a bundle has one forward pass for both."""

import pytest
import torch
from torch import nn

from edge_sdk.models.bundle.compile import compile_module
from edge_sdk.models.ir.errors import UnsupportedPattern
from edge_sdk.models.ir.specification.spec import Spec


class Scaled(nn.Module):
    """A layer whose result is multiplied by what `factor` says of it."""

    def __init__(self, factor):
        super().__init__()
        self.body, self.factor = nn.Linear(6, 6), factor

    def forward(self, x):
        h = self.body(x)
        return torch.tanh(h) * self.factor(h)


ASKED = {
    "no_grad": lambda h: 1 if torch.is_grad_enabled() else 2,
    "no_grad, of large values": lambda h: torch.where(h.abs() > 20, 1 if torch.is_grad_enabled() else 2, 1),
    "inference_mode": lambda h: 2 if torch.is_inference_mode_enabled() else 1,
    "requires_grad": lambda h: 2 if h.requires_grad else 1,
    "grad_fn": lambda h: 1 if h.grad_fn is None else 2,
}


@pytest.mark.parametrize("dropout", ["off", "keep"])
@pytest.mark.parametrize("kind", ASKED)
def test_another_result_without_gradients_is_refused_with_its_layer(kind, dropout):
    net = nn.Sequential(Scaled(ASKED[kind]), nn.Linear(6, 3)).eval()
    mode = "inference_mode" if kind == "inference_mode" else "no_grad"
    words = rf"^0: another result under torch\.{mode}\(\) than with gradients"
    with pytest.raises(UnsupportedPattern, match=words):
        compile_module(net, Spec("net", (6,), dropout=dropout), search=0)


def test_a_faster_way_to_the_same_result_compiles():
    class Either(nn.Module):
        def forward(self, x):
            return x * x if torch.is_grad_enabled() else x.square()

    net = nn.Sequential(nn.Linear(6, 6), Either(), nn.Linear(6, 3)).eval()
    assert compile_module(net, Spec("net", (6,)), search=0).errors["float64"] < 1e-9
