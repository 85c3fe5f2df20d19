"""Calls that are right in torch and that the exporter does not take as they are."""

import pytest
import torch
from torch import nn

from edge_sdk.models.frontend.decomposition.plain_arguments import name_axes
from tests.models.module_check import measure_error


class Net(nn.Module):
    """A linear layer of each step, a function of (B, 5, 8), and a linear layer."""

    def __init__(self, f, out=8):
        super().__init__()
        self.body, self.f, self.head = nn.Linear(3, 8), f, nn.Linear(out, 3)
        self.weight = nn.Parameter(torch.randn(8, 8, generator=torch.Generator().manual_seed(0)))

    def forward(self, x):
        return self.head(self.f(self.body(x), self.weight))


FUNCTIONS = {
    "pooling behind a transpose": lambda h, w: nn.functional.adaptive_avg_pool1d(h.transpose(1, 2), 1).squeeze(-1),
    "bounds of two types": lambda h, w: torch.clamp(3 * h.mean(1), -1, 2.5),
    "dots on both sides": lambda h, w: torch.einsum("...d,de->...e", h, w).mean(1),
    "dots between letters": lambda h, w: torch.einsum("b...d, de -> b...e", h, w).mean(1),
    "dots in both operands": lambda h, w: torch.einsum("...d,...d->...d", h, torch.tanh(h)).mean(1),
    "a diagonal": lambda h, w: torch.einsum("bii->bi", torch.einsum("bsd,bse->bde", h, torch.tanh(h))),
    "diagonals of several operands": lambda h, w: torch.einsum("bsd,de,...ii, ff -> be", h, w, w, torch.cos(w)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_it_compiles_with_torchs_gradient(name):
    torch.manual_seed(0)
    assert measure_error(Net(FUNCTIONS[name]), (5, 3)) <= 1e-9


@pytest.mark.parametrize(
    ("equation", "ranks", "plain"),
    [("...d,de", [3, 2], "abd,de->abe"), ("...i,...i->...", [2, 2], "ai,ai->a"), ("...i,...i->...i", [2, 3], None)],
)
def test_dots_are_axes(equation, ranks, plain):
    assert name_axes(equation, ranks) == (plain or equation)


class Casting(nn.Module):
    """RMSNorm and attention that ask for float32 themselves, as LLaMA's do."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(3, 12), nn.Linear(4, 3)

    def forward(self, x):
        q, k, v = self.norm(self.body(x)).chunk(3, -1)
        shares = torch.softmax(q @ k.transpose(1, 2), -1, dtype=torch.float32).to(q.dtype)
        return self.head(self.norm(shares @ v).float().mean(1))

    def norm(self, h):
        wide = h.to(torch.float32)
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(h.dtype)


def test_casts_to_float32_inside_are_none_in_float64():
    torch.manual_seed(0)
    assert measure_error(Casting(), (5, 3)) <= 1e-9
