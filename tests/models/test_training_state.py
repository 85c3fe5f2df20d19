"""What changes in training alone, and what follows from it: harmless, or refused by its name."""

import pytest
import torch
from torch import nn

from edge_sdk.models.bundle.compile import compile_module
from edge_sdk.models.frontend.kept.training_state import list_counts, refuse_training_state
from edge_sdk.models.ir.errors import UnsupportedPattern
from edge_sdk.models.ir.specification.spec import Spec

SPECTRAL = nn.utils.parametrizations.spectral_norm


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.drop, self.head = nn.Conv1d(3, 8, 3, padding=1), nn.Dropout(0.2), nn.Linear(8, 4)
        self.register_buffer("mean", torch.zeros(3, 1))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
        self.register_buffer("heat", torch.zeros(()))
        self.count, self.last = 0, {"calls": 0}

    def forward(self, x):
        return self.head(self.body(self.drop(x)).relu().mean(-1))


class Counting(Net):
    """Counts its steps in three places, and keeps a mean that nobody reads."""

    def forward(self, x):
        if self.training:
            self.steps += 1
            self.count += 1
            self.last["calls"] += 1
            self.mean.lerp_(x.detach().mean((0, 2))[:, None], 0.1)
        return super().forward(x)


class Standardising(Net):
    """Running means that are updated after their use."""

    def forward(self, x):
        made = super().forward(x - self.mean)
        if self.training:
            self.mean = self.mean + 1e-3 * (x.detach().mean((0, 2))[:, None] - self.mean)
        return made


class Cooling(Net):
    """A temperature by a buffer."""

    def forward(self, x):
        made = super().forward(x) / (1 + 9 * torch.exp(-self.heat / 50))
        if self.training:
            self.heat += 1
        return made


class CoolingInPython(Net):
    """A temperature by a number."""

    def forward(self, x):
        made = super().forward(x) / (1 + 9 * 0.98**self.count)
        if self.training:
            self.count += 1
        return made


class Warming(Net):
    """Something else after thousands of steps, in the gradient alone."""

    def forward(self, x):
        if self.training:
            self.steps += 1
        z = super().forward(x)
        return torch.where(self.steps > 5000, z.detach(), z) if self.training else z


class Hidden(Net):
    """Counts where nobody looks."""

    def forward(self, x):
        self.last["calls"] += self.training
        return super().forward(x) * (1 + 0.1 * max(self.last["calls"] - 1, 0))


class MaxNorm(Net):
    """A bound on the norm of a weight, which holds at first."""

    def forward(self, x):
        if self.training:
            self.head.weight.data = torch.renorm(self.head.weight.data, 2, 0, 5.0)
        return super().forward(x)


class FirstBatch(Net):
    """A scale that the first batch sets."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3, 1))

    def forward(self, x):
        if self.training and self.heat == 0:
            with torch.no_grad():
                self.scale.copy_(1 / x.std((0, 2))[:, None])
                self.heat.fill_(1)
        return super().forward(x * self.scale)


def spectral(norm):
    net = Net()
    net.body, net.head = norm(net.body), norm(net.head)
    return net


class Around(nn.Module):
    def __init__(self, part):
        super().__init__()
        self.part = part

    def forward(self, x):
        return self.part(x)


def compile_it(net, dropout="keep", norm="frozen"):
    torch.manual_seed(0)
    return compile_module(Around(net).eval(), Spec("net", (3, 16), dropout=dropout, norm=norm), search=0)


REFUSED = {
    "running means": (Standardising, "^part: buffer mean changes in training"),
    "a falling temperature": (Cooling, "^part: buffer heat changes in training"),
    "a count in Python": (CoolingInPython, r"^part: self\.count in Python changes in training"),
    "after thousands of steps": (Warming, "^part: buffer steps changes in training"),
    "spectral norm": (lambda: spectral(SPECTRAL), r"^part\.body\.\S+: buffer _u changes .* remove it"),
    "spectral norm by hooks": (
        lambda: spectral(nn.utils.spectral_norm),
        r"^part\.body: buffer weight_u changes .* rem",
    ),
    "a bound on weights": (MaxNorm, r"^part\.head: parameter weight is written to in training; .* torch\.renorm"),
    "a first batch": (FirstBatch, "^part: parameter scale is written to in training; .* by running the module"),
}


@pytest.mark.parametrize("dropout", ["off", "keep"])
@pytest.mark.parametrize("kind", REFUSED)
def test_what_follows_from_what_is_kept_is_refused_by_name(kind, dropout):
    make, words = REFUSED[kind]
    with pytest.raises(UnsupportedPattern, match=words):
        compile_it(make(), dropout)


def test_what_is_kept_where_nobody_looks_is_refused():
    with pytest.raises(UnsupportedPattern, match=r"^part: self\.last in Python changes with each call"):
        compile_it(Hidden())


def test_a_first_batch_that_was_there_compiles():
    net = FirstBatch()
    net(torch.randn(4, 3, 16))
    assert compile_it(net.eval(), "off").errors["float64"] < 1e-9


@pytest.mark.parametrize("norm", ["frozen", "batch", "running"])
def test_counts_from_which_nothing_follows_and_statistics_of_norms_are_harmless(norm):
    net = Counting()
    net.body = nn.Sequential(net.body, nn.BatchNorm1d(8))
    compile_it(net, "off", norm)
    assert net.steps == net.count == net.last["calls"] == 0 and not net.mean.any()


class Following(Net):
    """A running copy of what is trained, as a momentum encoder or a teacher, which begins as its equal."""

    def __init__(self):
        super().__init__()
        self.slow = nn.Linear(8, 4).requires_grad_(False)
        self.slow.load_state_dict(self.head.state_dict())

    def forward(self, x):
        if self.training:
            with torch.no_grad():
                self.slow.weight.lerp_(self.head.weight, 0.01)
        h = self.body(x).relu().mean(-1)
        return self.head(h) + self.slow(h)


@pytest.mark.parametrize("dropout", ["", "off"])
def test_a_running_copy_of_what_is_trained_is_refused(dropout):
    with pytest.raises(UnsupportedPattern, match=r"^slow: parameter weight is written to in training"):
        compile_module(Following().eval(), Spec("net", (3, 16), dropout=dropout), search=0)


def test_a_list_that_forward_adds_to_stays_what_it_was():
    class Noting(Net):
        def __init__(self):
            super().__init__()
            self.seen = []

        def forward(self, x):
            self.seen.append(x.shape[0])
            return super().forward(x)

    net = Noting().eval()
    compile_module(net, Spec("net", (3, 16), dropout="keep"), search=0)
    assert all(type(n) is int for n in net.seen)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int64])
def test_a_count_in_a_small_integer_is_tried_as_far_as_it_goes(dtype):
    """Beyond it torch raises, which once ended the compilation."""
    assert [int(v) for v in list_counts(torch.zeros((), dtype=dtype), (1, 100, 10_000_000))] == [
        n for n in (1, 100, 10_000_000) if n <= torch.iinfo(dtype).max
    ]
    net = Counting()
    net.steps = net.steps.to(dtype)
    refuse_training_state(net, [torch.zeros(2, 3, 16)], ["x"], "", "off")
