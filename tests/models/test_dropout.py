"""What a module drops at random in training: seen however it is called, kept with masks, left out, or refused."""

import numpy as np
import onnx
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from edge_sdk.model.bundle import parse
from edge_sdk.model.model import Model
from edge_sdk.models.bundle.compile import compile_module
from edge_sdk.models.frontend.modules.randomness import find_draws
from edge_sdk.models.frontend.tracing.dropout import MaskWriter
from edge_sdk.models.ir.errors import ParityError, TrainModeExport
from edge_sdk.models.ir.specification.spec import Spec


class DropPath(nn.Module):
    """Stochastic depth as libraries of vision models write it: one draw per sample, into an empty tensor."""

    def forward(self, x):
        if not self.training:
            return x
        kept = x.new_empty((x.shape[0],) + (1,) * (x.ndim - 1)).bernoulli_(0.75)
        return x * kept.div_(0.75)


class DrawnPath(nn.Module):
    """Stochastic depth that draws from a tensor of one probability, as braindecode writes it."""

    def forward(self, x):
        if not self.training:
            return x
        kept = torch.bernoulli(torch.full((x.shape[0],) + (1,) * (x.ndim - 1), 0.9)).to(x.dtype)
        return x * (kept / 0.9)


class Called(nn.Module):
    """Dropout called as a function, in place."""

    def forward(self, x):
        return F.dropout(x, 0.4, self.training, inplace=True)


class Recurrent(nn.Module):
    """Two layers with dropout between them, in both directions."""

    def __init__(self, cell):
        super().__init__()
        self.cell = cell(6, 3, 2, dropout=0.3, batch_first=True, bidirectional=True)

    def forward(self, x):
        return self.cell(x)[0]


class Noisy(nn.Module):
    """Noise in training that is no dropout."""

    def forward(self, x):
        return x + torch.rand_like(x) if self.training else x


def make_net(inner, width=6):
    """Two linear layers around something; the first one's outputs are far from 0."""
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(6, 6), inner, nn.Flatten(), nn.Linear(width, 3)).eval()


KINDS = {
    "module": (lambda: nn.Dropout(0.3), (6,), 6, [6]),
    "function": (Called, (6,), 6, [6]),
    "channels": (lambda: nn.Dropout1d(0.3), (4, 6), 24, [4]),
    "stochastic depth": (DropPath, (6,), 6, [1]),
    "stochastic depth of a tensor": (DrawnPath, (6,), 6, [1]),
    "gru": (lambda: Recurrent(nn.GRU), (4, 6), 24, [24]),
    "lstm": (lambda: Recurrent(nn.LSTM), (4, 6), 24, [24]),
    "transformer": (
        lambda: nn.TransformerEncoderLayer(6, 2, 5, 0.2, batch_first=True), (4, 6), 24, [32, 24, 20, 24],
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def kept():
    """A compiled classifier with dropout, its module, and the device's model of it."""
    net = make_net(nn.Sequential(nn.ReLU(), nn.Dropout(0.3), DropPath()))
    made = compile_module(net, Spec("m", (6,), dropout="keep"))
    return net, made, Model(parse(made.data))


SLOW = ("lstm", "gru", "transformer")  # seconds each to compile


class ChosenLast(nn.Module):
    def __init__(self):
        super().__init__()
        self.own = nn.Linear(6, 3)

    def forward(self, x):
        h = self.own(x)
        return torch.where(torch.rand_like(h) < 0.5, h / 0.5, torch.zeros_like(h)) if self.training else h


@pytest.mark.parametrize(
    "net", [nn.Sequential(nn.Linear(6, 3), nn.Dropout(0.5)), ChosenLast()], ids=["a layer", "by hand"]
)
def test_what_a_network_ends_in_may_drop(net):
    assert compile_module(net.eval(), Spec("m", (6,), dropout="keep")).errors["float64"] <= 1e-8


@pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=[pytest.mark.long] if k in SLOW else []) for k in KINDS if k != "module"]
)
def test_every_kind_is_kept(kind):
    make, shape, width, columns = KINDS[kind]
    made = compile_module(make_net(make(), width), Spec("m", shape, dropout="keep"))
    assert made.errors["float64"] <= 1e-8
    assert [s.columns for s in parse(made.data).drop_sites] == columns


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_refused_if_nobody_says_what_is_to_become_of_it(kind):
    make, shape, width, _ = KINDS[kind]
    with pytest.raises(TrainModeExport, match=r"^1.*\(p=0.*--dropout keep .*--dropout off"):
        compile_module(make_net(make(), width), Spec("m", shape))


def test_left_out_it_is_the_module_in_evaluation():
    net = make_net(Called())
    made = compile_module(net, Spec("m", (6,), dropout="off"))
    plain = compile_module(make_net(nn.Identity()), Spec("m", (6,)))
    assert operators(made.data) == operators(plain.data) and "dropout" not in parse(made.data).manifest


def operators(data):
    """Name of each graph -> its operators in their order; names of values are torch's own affair."""
    parts = {name: bytes(part) for name, part in parse(data).parts.items() if name.endswith(".onnx")}
    return {name: [n.op_type for n in onnx.load_from_string(part).graph.node] for name, part in parts.items()}


@pytest.mark.parametrize("inner", [Noisy(), nn.RReLU(), nn.AlphaDropout(0.3)])
def test_other_random_numbers_cannot_be_kept(inner):
    with pytest.raises(TrainModeExport, match=r"1: .*--dropout off"):
        compile_module(make_net(inner), Spec("m", (6,), dropout="keep"))


class Gate(nn.Module):
    """Zeros and ones of probabilities that are trained, or that are not all one."""

    def __init__(self, one):
        super().__init__()
        self.logits = nn.Parameter(torch.zeros(6) if one else torch.linspace(-1, 1, 6))

    def forward(self, x):
        return x * torch.bernoulli(self.logits.sigmoid().expand(x.shape[0], 6)) if self.training else x * 0.5


@pytest.mark.parametrize("one", [True, False])
def test_zeros_and_ones_of_probabilities_that_are_computed_cannot_be_kept(one):
    with pytest.raises(TrainModeExport, match=r"^1: .*--dropout off"):
        compile_module(make_net(Gate(one)), Spec("m", (6,), dropout="keep"))


class Certain(nn.Module):
    """Stochastic depth of probability 1, which draws ones alone."""

    def forward(self, x):
        return x * x.new_empty((x.shape[0], 1)).bernoulli_(1.0) if self.training else x


def test_ones_that_are_drawn_for_certain_are_refused_in_words():
    with pytest.raises(TrainModeExport, match="the module cannot be kept; compile with --dropout off"):
        compile_module(make_net(nn.Sequential(nn.Dropout(0.3), Certain())), Spec("m", (6,), dropout="keep"))


class ForAll(nn.Module):
    """One draw for all samples."""

    def forward(self, x):
        return x * torch.empty(1).bernoulli_(0.5) if self.training else x


def test_a_draw_for_all_samples_cannot_be_kept():
    with pytest.raises(TrainModeExport, match="each sample must have values of its own"):
        compile_module(make_net(ForAll()), Spec("m", (6,), dropout="keep"))


@pytest.mark.parametrize("dropout", ["", "keep"])
def test_a_dropout_that_drops_everything_is_refused(dropout):
    with pytest.raises(TrainModeExport, match=r"^1 \(Dropout, p=1\) drops all values.*a p below 1, or .*--dropout off"):
        compile_module(make_net(nn.Dropout(1.0)), Spec("m", (6,), dropout=dropout))


class OnlyAlone(nn.Module):
    """In training it works for nobody here."""

    def forward(self, x):
        return x.reshape(1, 5) if self.training else x


def test_a_module_that_does_not_run_in_training_mode_is_not_taken_for_one_without_dropout():
    with pytest.raises(TrainModeExport, match="not in training mode"):
        compile_module(make_net(OnlyAlone()), Spec("m", (6,)))


def take_unscaled(self, kept=None, rest=1.0, take=MaskWriter.take):
    """A wrong compiler: what is kept is not scaled up."""
    return take(self, 1.0, rest)


def take_backwards(self, kept=None, rest=1.0, take=MaskWriter.take):
    """A wrong compiler: masks are read in another order than the module draws them."""
    self.draws = [*self.draws[: self.at], *self.draws[self.at :][::-1]]
    return take(self, kept, rest)


@pytest.mark.parametrize("wrong", [take_unscaled, take_backwards])
def test_the_gate_catches_masks_that_are_used_wrongly(monkeypatch, wrong):
    monkeypatch.setattr(MaskWriter, "take", wrong)
    net = make_net(nn.Sequential(nn.Dropout(0.3), nn.Linear(6, 6), nn.Dropout(0.6)))
    with pytest.raises(ParityError):
        compile_module(net, Spec("m", (6,), dropout="keep"))


def test_without_a_generator_nothing_is_dropped(kept):
    net, _, model = kept
    x = np.random.default_rng(1).standard_normal((5, 6)).astype(np.float32)
    y = np.arange(5) % 3
    loss, grad = model.loss_grad(model.theta0, x, y)
    want = F.cross_entropy(net.eval()(torch.from_numpy(x)), torch.from_numpy(y))
    slopes = torch.autograd.grad(want, list(net.parameters()))
    assert abs(loss - float(want.detach())) < 1e-5
    np.testing.assert_allclose(grad, torch.cat([s.reshape(-1) for s in slopes]).numpy(), rtol=1e-4, atol=1e-5)
    assert model.predict(model.theta0, x) == pytest.approx(net(torch.from_numpy(x)).detach().numpy(), abs=1e-5)


def test_a_step_that_is_repeated_drops_the_same(kept):
    _, _, model = kept
    x = np.random.default_rng(1).standard_normal((30, 6)).astype(np.float32)
    gradient = model.grad_fn(x, np.arange(30) % 3)
    first, again, other = (gradient(model.theta0, None, np.random.default_rng(s))[1] for s in (7, 7, 8))
    assert np.array_equal(first, again) and not np.array_equal(first, other)


def test_the_mean_over_many_masks_is_near_the_gradient_without():
    net = nn.Sequential(nn.Dropout(0.4), nn.Linear(6, 1)).eval()
    made = compile_module(net, Spec("m", (6,), loss="mean_squared_error", dropout="keep"))
    model = Model(parse(made.data))
    x = np.random.default_rng(1).standard_normal((4000, 6)).astype(np.float32)
    with torch.no_grad():  # of a linear loss: the squared error of a weight of 0
        theta = np.zeros_like(model.theta0)
    y = np.ones((4000, 1), np.float32)
    _, dropped = model.loss_grad(theta, x, y, random=np.random.default_rng(2))
    _, whole = model.loss_grad(theta, x, y)
    np.testing.assert_allclose(dropped, whole, atol=0.08)
    assert not np.array_equal(dropped, whole)


def test_draws_are_found_in_their_order():
    net = make_net(nn.Sequential(nn.Dropout(0.3), DropPath(), nn.Dropout(0.0), nn.Dropout(0.5)))
    draws = find_draws(net, [torch.ones(4, 6)])
    assert [d.describe() for d in draws] == ["1.0: Dropout(p=0.3)", "1.1: DropPath(p=0.25)", "1.3: Dropout(p=0.5)"]
    assert not net.training
