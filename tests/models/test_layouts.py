"""Batch and instance normalisation of one sample, where torch's own gradient depends on how values lie in memory."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from edge_sdk.models.gate.references.layouts import EvenLayouts
from tests.models.module_check import export_net, measure_exported

NORMS = {
    "batch norm": lambda x, w: F.batch_norm(x, torch.zeros(4).double(), torch.ones(4).double(), w),
    "batch norm that trains": lambda x, w: F.batch_norm(x, None, None, w, training=True),
    "instance norm": lambda x, w: F.instance_norm(x, weight=w),
}


class Tokens(nn.Module):
    """An image cut into tokens behind a norm, as at the stem of LeViT."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(2, 4, 3), norm, nn.Linear(16, 3)

    def forward(self, x):
        return self.head(self.norm(self.conv(x)).flatten(2).transpose(1, 2).flatten(1))


@pytest.mark.parametrize(
    "norm", [nn.BatchNorm2d(4), pytest.param(nn.InstanceNorm2d(4, affine=True), marks=pytest.mark.long)]
)
def test_tokens_behind_a_norm(norm):
    torch.manual_seed(0)
    assert measure_exported(*export_net(Tokens(norm), (2, 4, 4))) <= 1e-6


@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize("batch", [1, 2])
def test_the_truth_of_the_gate_does_not_depend_on_the_layout(name, batch):
    """A gradient that comes back transposed, an input that comes transposed, or both: equal to neither."""
    torch.manual_seed(1)
    x, w, gy = (torch.randn(s).double() for s in ((batch, 4, 2, 3), (4,), (batch, 4, 2, 3)))

    def differentiate(x, gy):
        x, scale = x.detach().requires_grad_(), w.clone().requires_grad_()
        with EvenLayouts():
            y = NORMS[name](x, scale)
        return torch.cat([g.flatten() for g in torch.autograd.grad(y, (x, scale), gy)])

    want = differentiate(x, gy)
    for a, b in ((x, turn(gy)), (turn(x), gy), (turn(x), turn(gy))):
        assert torch.allclose(differentiate(a, b), want, rtol=1e-12, atol=1e-12)


def turn(t):
    """The same values with the channels last in memory, as tokens have them."""
    return t.flatten(2).transpose(1, 2).contiguous().transpose(1, 2).unflatten(2, t.shape[2:])
