"""Decimals of a module that a file has as float32 attributes: the gate compares with torch's, layer after layer."""

import pytest
import torch
from torch import nn

from edge_sdk.models.bundle.compile import compile_module
from edge_sdk.models.ir.specification.spec import Spec

LAYERS = {
    "leaky": lambda: nn.LeakyReLU(0.1),
    "layer norm": lambda: nn.LayerNorm(6, eps=1e-3),
    "instance norm": lambda: nn.InstanceNorm1d(3, eps=1e-3),
}


@pytest.mark.parametrize("kind", LAYERS)
def test_what_a_float32_attribute_loses_does_not_grow_with_the_layers(kind):
    torch.manual_seed(0)
    layers = [m for _ in range(12) for m in (nn.Linear(6, 6), LAYERS[kind]())]
    made = compile_module(nn.Sequential(*layers, nn.Flatten(), nn.Linear(18, 2)).eval(), Spec("m", (3, 6)))
    assert made.errors["float64"] <= 1e-10 and made.errors["searched"] <= 1e-10
