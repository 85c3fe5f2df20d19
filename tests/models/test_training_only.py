"""What a module does in training alone is refused in words: it would be trained as evaluation does it."""

import random

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from edge_sdk.models.frontend.modules.training import refuse_training_only
from edge_sdk.models.ir.errors import TrainModeExport, UnsupportedPattern

X = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))


class Inner(nn.Module):
    """A function of a layer's output and of the module itself."""

    def __init__(self, f):
        super().__init__()
        self.layer, self.f, self.calls = nn.Linear(4, 4), f, 0
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("var", torch.ones(4))

    def forward(self, x):
        self.calls += 1
        return self.f(self, x, self.layer(x))


def make(f):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.Sequential(Inner(f)), nn.Linear(4, 3)).eval()


def refuse(net, norm="frozen", dropout="", output=""):
    refuse_training_only(net, [X], [""], output, norm, dropout)


def layer_drop(draw):
    return lambda m, x, h: x if m.training and draw() < 0.5 else h


def normalise(m, x, h):
    return F.batch_norm(h, m.mean, m.var, training=m.training)


class TwoHeads(nn.Module):
    """A second result in training, as auxiliary classifiers have it."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 3), nn.Linear(4, 3)

    def forward(self, x):
        return (self.first(x), self.second(x)) if self.training else self.first(x)


BRANCHES = {
    "python's random": (layer_drop(random.random), "draws numbers from Python's random"),
    "numpy's random": (layer_drop(np.random.rand), "draws numbers from numpy's random"),
    "a generator of its own": (layer_drop(lambda: 0.0), "^1.0: does something else in training"),
    "a scale": (lambda m, x, h: h * 1.5 if m.training else h, "^1.0: does something else"),
    "a small noise": (lambda m, x, h: h * 1.001 if m.training else h, "^1.0: does something else"),
    "a detached part": (lambda m, x, h: h - h.mean(1, keepdim=True) if m.training else h, "^1.0: does something else"),
}


@pytest.mark.parametrize("dropout", ["", "keep"])
@pytest.mark.parametrize("name", BRANCHES)
def test_branches_on_training(name, dropout):
    f, words = BRANCHES[name]
    with pytest.raises(TrainModeExport, match=words) as told:
        refuse(make(f), dropout=dropout)
    assert "--dropout off" in str(told.value) and "\n" not in str(told.value)
    refuse(make(f), dropout="off")  # what evaluation does is what is wanted


def test_a_second_result_in_training():
    with pytest.raises(TrainModeExport, match="in training the module returns several results"):
        refuse(TwoHeads().eval())


def test_numbers_that_nothing_depends_on():
    """Layers that are never dropped draw all the same, in evaluation too, in some libraries."""
    refuse(make(lambda m, x, h: h if random.random() < 2 else x))
    with pytest.raises(TrainModeExport, match="Python's random"):
        refuse(make(lambda m, x, h: h if random.random() < 0.5 else x))


def test_generators_are_left_as_they_were():
    random.seed(1)
    before = random.getstate()
    with pytest.raises(TrainModeExport):
        refuse(make(layer_drop(random.random)))
    assert random.getstate() == before


@pytest.mark.parametrize("norm", ["batch", "running", "renorm"])
@pytest.mark.parametrize("dropout", ["", "off", "keep"])
def test_statistics_of_the_batch_by_a_function(norm, dropout):
    with pytest.raises(UnsupportedPattern, match=rf"^1.0: F.batch_norm .*--norm {norm}.* use nn.BatchNorm1d"):
        refuse(make(normalise), norm, dropout)


def test_frozen_statistics_by_a_function():
    refuse(make(normalise))


KNOWN = {
    "dropout": lambda: nn.Dropout(0.3),
    "dropout of channels": lambda: nn.Sequential(nn.Unflatten(1, (2, 2)), nn.Dropout1d(0.5), nn.Flatten()),
    "batch norm": lambda: nn.BatchNorm1d(4),
    "instance norm": lambda: nn.Sequential(nn.Unflatten(1, (2, 2)), nn.InstanceNorm1d(2), nn.Flatten()),
    "encoder": lambda: nn.Sequential(
        nn.Unflatten(1, (1, 4)), nn.TransformerEncoderLayer(4, 2, 4, 0.1, batch_first=True), nn.Flatten()
    ),
    "recurrent": lambda: nn.Sequential(nn.Unflatten(1, (2, 2)), Steps(), nn.Flatten()),
    "function": lambda: Inner(lambda m, x, h: F.dropout(h, 0.2, m.training)),
    "depth": lambda: Inner(lambda m, x, h: h * torch.empty(len(h), 1).bernoulli_(0.8).div_(0.8) if m.training else h),
}


class Steps(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.LSTM(2, 2, 2, batch_first=True, dropout=0.4)

    def forward(self, x):
        return self.layer(x)[0]


@pytest.mark.parametrize("norm", ["frozen", "batch"])
@pytest.mark.parametrize("name", KNOWN)
def test_what_is_known_to_differ_is_no_fault(name, norm):
    torch.manual_seed(0)
    refuse(nn.Sequential(nn.Linear(4, 4), KNOWN[name](), nn.Linear(4, 3)).eval(), norm)
