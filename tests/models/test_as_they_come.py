"""Modules as people have them: lazy sizes, scripted parts, norms over one value; each compiles, or says what to do."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from edge_sdk.models.bundle.compile import compile_module
from edge_sdk.models.frontend.decomposition.fourier import turn
from edge_sdk.models.ir.errors import CompileError
from edge_sdk.models.ir.specification.spec import Spec

SEQUENCE = (3, 20)


class Bend(nn.Module):
    """A function of a convolution's result, and a linear layer behind its mean."""

    def __init__(self, f):
        super().__init__()
        self.first, self.f, self.last = nn.Conv1d(3, 4, 3), f, nn.Linear(4, 3)

    def forward(self, x):
        return self.last(torch.relu(self.f(self.first(x))).mean(-1))


class Projected(nn.Module):
    def __init__(self):
        super().__init__()
        self.steps, self.last = nn.LSTM(20, 6, proj_size=2, batch_first=True), nn.Linear(2, 3)

    def forward(self, x):
        return self.last(self.steps(x)[0][:, -1])


def compile_one(net, shape=SEQUENCE):
    torch.manual_seed(0)
    return compile_module(net.eval(), Spec("m", shape, classes=3))


FUNCTIONS = {
    "linear by 1.7": lambda h: F.interpolate(h, scale_factor=1.7, mode="linear"),
    "linear by 1.7, corners": lambda h: F.interpolate(h, scale_factor=1.7, mode="linear", align_corners=True),
    "linear by 0.3": lambda h: F.interpolate(h, scale_factor=0.3, mode="linear"),
    "linear to 29": lambda h: F.interpolate(h, size=29, mode="linear"),
    "nearest by 1.7": lambda h: F.interpolate(h, scale_factor=1.7),
    "a quantile": lambda h: h - torch.quantile(h[..., :12], 0.5, dim=2, keepdim=True),
    "the middle of a sorted signal": lambda h: h.sort(dim=2).values[..., 4:12],
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_a_signal(name):
    torch.manual_seed(0)
    assert compile_one(Bend(FUNCTIONS[name])).errors["float64"] < 1e-9


def test_phases_of_a_spectrum():
    """Less exact than others: where an entry is near 0 its angle may be any."""
    torch.manual_seed(0)
    assert compile_one(Bend(lambda h: torch.fft.rfft(h).angle())).errors["float64"] < 1e-6


def test_an_image_by_a_factor_that_float32_has_not():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Upsample(scale_factor=1.7, mode="bilinear"), nn.Flatten())
    net = nn.Sequential(*net, nn.ReLU(), nn.LazyLinear(3))
    assert compile_one(net, (3, 8, 7)).errors["float64"] < 1e-12


def test_lazy_layers_get_their_sizes_and_the_bundle_is_that_of_plain_ones():
    def lazy():
        return nn.Sequential(nn.LazyConv1d(4, 3), nn.LazyBatchNorm1d(), nn.ReLU(), nn.Flatten(), nn.LazyLinear(3))

    net, other = lazy(), lazy()
    torch.manual_seed(0)
    compiled = compile_module(net.eval(), Spec("m", SEQUENCE, classes=3))
    torch.manual_seed(0)
    with torch.no_grad():
        other.eval()(torch.randn(2, *SEQUENCE, generator=torch.Generator().manual_seed(1)))
    assert type(net[4]) is nn.Linear and compiled.parameters == sum(p.numel() for p in other.parameters())
    for mine, theirs in zip(net.parameters(), other.parameters(), strict=True):
        assert torch.equal(mine, theirs)


REFUSED = {
    "scripted": (lambda: torch.jit.script(nn.Sequential(nn.Flatten(), nn.Linear(60, 3))), "the module: torch.jit has"),
    "a scripted part": (
        lambda: nn.Sequential(nn.Flatten(), torch.jit.script(nn.Linear(60, 3))),
        "1: torch.jit has put its code out of sight; give the class itself",
    ),
    "a norm of one value": (
        lambda: nn.Sequential(nn.Flatten(), nn.Linear(60, 4), nn.GroupNorm(4, 4), nn.Linear(4, 3)),
        r"2: torch itself does not run it on a batch of a single sample .* \(a norm over more than one value\)",
    ),
    "projections": (Projected, "steps: an LSTM with proj_size; leave it out, and put a Linear layer behind the LSTM"),
}


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is (deprecated|not supported)")
@pytest.mark.parametrize("name", REFUSED)
def test_what_nobody_can_read_is_refused_by_name(name):
    make, told = REFUSED[name]
    with pytest.raises(CompileError, match=told):
        compile_one(make())


@pytest.mark.parametrize("points", [2, 7, 16, 100])
def test_sines_of_half_turns_are_zero(points):
    """torch's transform of real numbers has no imaginary parts there; one of 1e-16 has a sign, so angle() has two."""
    sines = turn(points, points, points)[1]
    assert not sines[0].any() and (points % 2 or not sines[points // 2].any())


def test_an_empty_lazy_layer_is_named():
    class Never(nn.Module):
        def __init__(self):
            super().__init__()
            self.unused, self.last = nn.LazyLinear(5), nn.Linear(20, 3)

        def forward(self, x):
            return self.last(x.mean(1))

    with pytest.raises(CompileError, match=r"unused.weight: has no size after the module has run once"):
        compile_one(Never())


def test_equal_large_constants_are_in_a_graph_once():
    """As the matrices of a transform that is called for each channel."""

    class Spectra(nn.Module):
        def __init__(self, times):
            super().__init__()
            self.times, self.last = times, nn.Linear(33, 3)

        def forward(self, x):
            return self.last(sum(torch.fft.rfft(torch.cos(x + i)).abs() for i in range(self.times)).mean(1) / 8)

    once, twice = (len(compile_one(Spectra(n), (3, 64)).data) for n in (1, 4))
    assert twice - once < 64 * 33 * 4
