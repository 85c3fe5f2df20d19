"""Torch modules and functions that compile: their gradients are autograd's in float64, 1e-6 or better in every case."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.models.module_check import Last, Net, measure_error

FUNCTIONS = {
    "abs": torch.abs,
    "gelu": F.gelu,
    "gelu tanh": lambda h: F.gelu(h, approximate="tanh"),
    "silu": F.silu,
    "mish": F.mish,
    "elu": F.elu,
    "softplus": F.softplus,
    "hardswish": F.hardswish,
    "relu6": F.relu6,
    "leaky relu": lambda h: F.leaky_relu(h, 0.1),
    "maximum over features": lambda h: h * h.amax(1, keepdim=True),
    "einsum": lambda h: torch.einsum("bi,bj->bij", h, h).sum(2),
    "normalize": lambda h: F.normalize(h, dim=1),
    "where": lambda h: torch.where(h > 0, h, 0.1 * h),
    "standard deviation": lambda h: h / h.std(1, keepdim=True),
    "cube": lambda h: h**3,
    "exp and log": lambda h: torch.log(torch.exp(h) + 1),
    "batch size as a number": lambda h: h * h.shape[0],
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name):
    assert measure_error(Net(FUNCTIONS[name]), (8,)) <= 1e-6


def net(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(*layers)


MODULES = {
    "prelu": (lambda: Net(None, extra=nn.PReLU()), (8,)),
    "conv same": (lambda: net(nn.Conv1d(4, 6, 4, padding="same"), nn.Flatten(), nn.Linear(60, 3)), (4, 10)),
    "conv reflect": (
        lambda: net(nn.Conv1d(4, 6, 3, padding=1, padding_mode="reflect"), nn.Flatten(), nn.Linear(60, 3)),
        (4, 10),
    ),
    "conv transpose": (lambda: net(nn.ConvTranspose1d(4, 6, 3), nn.Flatten(), nn.Linear(72, 3)), (4, 10)),
    "conv 3d": (lambda: net(nn.Conv3d(1, 2, 3), nn.Flatten(), nn.Linear(54, 3)), (1, 5, 5, 5)),
    "upsample": (lambda: net(nn.Conv1d(2, 2, 3), nn.Upsample(scale_factor=2), nn.Flatten(), nn.Linear(32, 3)), (2, 10)),
    "instance norm": (
        lambda: net(nn.Conv1d(2, 4, 3), nn.InstanceNorm1d(4, affine=True), nn.Flatten(), nn.Linear(32, 3)),
        (2, 10),
    ),
    "group norm without scale": (
        lambda: net(nn.Conv1d(2, 4, 3), nn.GroupNorm(2, 4, affine=False), nn.Flatten(), nn.Linear(32, 3)),
        (2, 10),
    ),
    "group norm of a vector": (lambda: net(nn.Linear(8, 6), nn.GroupNorm(2, 6), nn.Linear(6, 3)), (8,)),
    "layer norm": (lambda: net(nn.Linear(8, 6), nn.LayerNorm(6), nn.Linear(6, 3)), (8,)),
    "batch norm, frozen": (
        lambda: net(nn.Conv1d(2, 4, 3), nn.BatchNorm1d(4), nn.Flatten(), nn.Linear(32, 3)),
        (2, 10),
    ),
    "max pool 3, 2, 1": (
        lambda: net(nn.Conv2d(1, 4, 3), nn.MaxPool2d(3, 2, 1), nn.Flatten(), nn.Linear(64, 3)),
        (1, 10, 10),
    ),
    "ragged max pool": (lambda: net(nn.Conv2d(1, 4, 2), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64, 3)), (1, 10, 10)),
    "max pool on ties": (
        lambda: net(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64, 3)),
        (1, 10, 10),
    ),
    "average pool": (lambda: net(nn.Conv2d(1, 4, 3), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(64, 3)), (1, 10, 10)),
    "weight norm": (lambda: net(nn.utils.parametrizations.weight_norm(nn.Linear(8, 6)), nn.Linear(6, 3)), (8,)),
    "gru, two layers, both ways": (
        lambda: net(nn.GRU(4, 5, 2, batch_first=True, bidirectional=True), Last(), nn.Linear(10, 3)),
        (6, 4),
    ),
    "lstm, both ways": (
        lambda: net(nn.LSTM(4, 5, batch_first=True, bidirectional=True), Last(), nn.Linear(10, 3)),
        (6, 4),
    ),
    "attention": (
        lambda: net(nn.TransformerEncoderLayer(4, 2, 8, 0.0, batch_first=True), nn.Flatten(), nn.Linear(24, 3)),
        (6, 4),
    ),
}


@pytest.mark.parametrize("name", MODULES)
def test_modules(name):
    torch.manual_seed(1)
    make, shape = MODULES[name]
    assert measure_error(make(), shape) <= 1e-6


def test_embeddings():
    torch.manual_seed(1)
    assert measure_error(net(nn.Embedding(9, 4), nn.Flatten(), nn.Linear(20, 3)), (5,), below=9) <= 1e-6
