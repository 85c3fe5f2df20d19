"""Parameters of complex numbers are refused in words, and the words lead to a module that compiles."""

import pytest
import torch
from torch import nn

from edge_sdk.models.bundle.compile import compile_module
from edge_sdk.models.ir.errors import UnsupportedPattern
from edge_sdk.models.ir.specification.spec import Spec


class Spectral(nn.Module):
    """Weights of the lowest frequencies."""

    def __init__(self, real):
        super().__init__()
        weight = torch.randn(2, 3, 2)
        self.weight = nn.Parameter(weight if real else torch.view_as_complex(weight))
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        weight = self.weight if self.weight.is_complex() else torch.view_as_complex(self.weight)
        low = torch.fft.rfft(x)[..., :3] * weight
        return self.head(torch.fft.irfft(low, n=8).flatten(1))


def test_a_complex_parameter_is_refused():
    with pytest.raises(UnsupportedPattern, match=r"^weight: a parameter of complex numbers; .*view_as_complex"):
        compile_module(Spectral(False).eval(), Spec("m", (2, 8)))


def test_what_is_advised_compiles():
    torch.manual_seed(0)
    assert compile_module(Spectral(True).eval(), Spec("m", (2, 8))).errors["float64"] <= 1e-6
