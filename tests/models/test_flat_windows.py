"""Spectra of windows without a signal, as of a sensor that is off, are as exact on a device as in torch."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from edge_sdk.model.bundle import parse
from edge_sdk.model.model import Model
from edge_sdk.models.bundle.compile import compile_module
from edge_sdk.models.frontend.decomposition import fourier
from edge_sdk.models.ir.errors import ParityError
from edge_sdk.models.ir.specification.spec import Spec

SPECTRA = {
    "amplitude": lambda x: torch.log(torch.fft.rfft(x).abs() + 1e-8),
    "phase": lambda x: torch.angle(torch.fft.rfft(x)),
    "both sides": lambda x: torch.log(torch.fft.fft(x).abs() + 1e-8),
    "shares": lambda x: F.normalize(torch.fft.rfft(x).abs()[..., 1:], p=1, dim=-1, eps=1e-8),
    "plane": lambda x: torch.log(torch.fft.fft2(x.reshape(-1, 4, 8)).abs() + 1e-8).flatten(1),
}


class Net(nn.Module):
    """Spectra of a scaled window, whose scale is trained, and a linear layer."""

    def __init__(self, f):
        super().__init__()
        self.gain, self.f = nn.Parameter(torch.tensor(0.1)), f
        self.head = nn.Linear(f(torch.zeros(1, 32)).shape[1], 3)

    def forward(self, x):
        return self.head(self.f(x * (1 + self.gain)))


def compile_it(name):
    torch.manual_seed(0)
    return compile_module(Net(SPECTRA[name]).eval(), Spec("net", (32,)))


@pytest.mark.parametrize("name", SPECTRA)
def test_gradients_of_flat_windows_are_torchs(name):
    made = compile_it(name)
    model = Model(parse(made.data))
    x = np.random.default_rng(0).standard_normal((6, 32)).astype(np.float32)
    x[0], x[1], x[2] = 0, 1.37, -977.77
    y = np.arange(6) % 3
    data = {"x": torch.from_numpy(x).double(), "y": torch.from_numpy(y), "weights": torch.full((6,), 1 / 6).double()}
    want = made.truth.loss_grad(data)[2]
    found = model.loss_grad(model.theta0, x, y)[1]
    assert np.linalg.norm(found - want) <= 1e-5 * np.linalg.norm(want)


@pytest.mark.parametrize("name", ["amplitude", "both sides"])  # of phases, some processors' torch has noise as well
def test_the_gate_looks_at_flat_windows(monkeypatch, name):
    def as_it_is(x, points, scale, half):
        """With the rounding of some processor: on another one the sums of a flat window may happen to be 0."""
        cos, sin = fourier.turn(points, points // 2 + 1 if half else points, points)
        cos, sin = (each + 1e-7 * np.random.default_rng(1).standard_normal(each.shape) for each in (cos, sin))
        return x @ fourier.as_tensor(cos * scale, x), x @ fourier.as_tensor(sin * -scale, x)

    monkeypatch.setattr(fourier, "transform_real", as_it_is)
    with pytest.raises(ParityError, match="windows of zeros and of one value"):
        compile_it(name)
