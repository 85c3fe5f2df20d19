"""Functions that are spelled out in others: torch's gradient at random inputs, kinks, ties, zeros and bounds."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from edge_sdk.models.frontend.decomposition import decompose, decompose_choices
from edge_sdk.models.gate.operators.calls import check_calls
from edge_sdk.models.ir.errors import ParityError
from tests.models.module_check import Net, export_net, measure_error, measure_exported

aten = torch.ops.aten


def places(h):
    """Places (B, 3, 2, 2) in an image, some of them outside."""
    return 1.5 * torch.tanh(h).reshape(-1, 1, 3, 2).expand(-1, 2, -1, -1)


def image(h):
    return h.reshape(-1, 1, 2, 3)


CHOICES = {
    "topk": lambda h: h * h.topk(2, 1)[0].sum(1, keepdim=True),
    "smallest by topk": lambda h: h * h.topk(4, 1, largest=False)[0][:, 3:],
    "median": lambda h: h * h.median(1, keepdim=True)[0],
    "median without its axis": lambda h: h * h.median(1)[0].unsqueeze(1),
    "kthvalue": lambda h: h * h.kthvalue(2, 1, keepdim=True)[0],
    "cumprod": lambda h: h.cumprod(1),
    "cummax": lambda h: h.cummax(1)[0],
    "cummin": lambda h: h.cummin(1)[0],
    "logcumsumexp": lambda h: h.logcumsumexp(1),
}
GEOMETRY = {
    "atan2": lambda h: torch.atan2(h, h.flip(1) + 0.1),
    "hypot": lambda h: torch.hypot(h, h.flip(1)),
    "sinc": torch.sinc,
    "copysign": lambda h: torch.copysign(h, h.flip(1)),
    "distances": lambda h: torch.cdist(h.reshape(-1, 3, 2), 1 + h.reshape(-1, 3, 2)).flatten(1)[:, :6],
    "distances by sums": lambda h: torch.cdist(h.reshape(-1, 3, 2), h.reshape(-1, 3, 2).exp(), 1.0).flatten(1)[:, :6],
    "angle": lambda h: torch.view_as_complex(h.reshape(-1, 3, 2)).angle().repeat(1, 2),
}
IMAGES = {
    "affine grid": lambda h: F.affine_grid(h.reshape(-1, 2, 3), [h.shape[0], 1, 1, 3], align_corners=False).flatten(1),
    "corners": lambda h: F.affine_grid(h.reshape(-1, 2, 3), [h.shape[0], 1, 2, 2], align_corners=True).flatten(1)[
        :, :6
    ],
    "grid": lambda h: F.grid_sample(image(h), places(h), align_corners=False).flatten(1),
    "grid, border": lambda h: F.grid_sample(image(h), places(h), "bilinear", "border", True).flatten(1),
    "grid, nearest": lambda h: F.grid_sample(image(h), places(h), "nearest", align_corners=False).flatten(1),
    "uneven maxima": lambda h: F.adaptive_max_pool2d(h[:, :, None] * torch.arange(5.0), (4, 3)).flatten(1)[:, :6],
    "uneven maxima of a line": lambda h: F.adaptive_max_pool1d(h[:, None], 4).flatten(1).repeat(1, 2)[:, :6],
    "short-time spectrum": lambda h: (
        torch.stft(h, 4, 2, window=torch.hann_window(4), return_complex=True).abs().flatten(1)[:, :6]
    ),
}


def check(f):
    """Parity of a whole net in float64, and of each call alone."""
    torch.manual_seed(0)
    net, inputs, forward = export_net(Net(f), (8,))
    assert measure_exported(net, inputs, forward) <= 1e-6
    check_calls(forward)


ALL = CHOICES | GEOMETRY | IMAGES
SHORT = (
    "distances of samples",
    "median",
)


@pytest.mark.parametrize("name", [n if n in SHORT else pytest.param(n, marks=pytest.mark.long) for n in ALL])
def test_gradients_are_torchs(name):
    check(ALL[name])


def upper_median(x, dim, keepdim=False):
    return decompose_choices.kth_value(x, x.shape[dim] // 2 + 1, dim, keepdim)


def first_of_equals(x, dim):
    return decompose_choices.cumulative_extremum(x, dim, torch.gt)


BROKEN = {"median": (aten.median.dim, upper_median), "cummax": (aten.cummax.default, first_of_equals)}


@pytest.mark.parametrize("name", ["median", pytest.param("cummax", marks=pytest.mark.long)])
def test_a_broken_one_is_caught(monkeypatch, name):
    monkeypatch.setitem(decompose.DECOMPOSITIONS, *BROKEN[name])
    with pytest.raises(ParityError):
        check(CHOICES[name])


class Prototypes(nn.Module):
    """Distances of an embedding from learned ones, one for each class."""

    def __init__(self):
        super().__init__()
        self.body, self.places = nn.Linear(8, 6), nn.Parameter(torch.randn(3, 6))

    def forward(self, x):
        return -torch.cdist(self.body(x), self.places)


def test_distances_of_any_number_of_samples():
    """Torch asks whether there are more than 25 rows, which may be samples."""
    torch.manual_seed(1)
    assert measure_error(Prototypes(), (8,)) < 1e-9
