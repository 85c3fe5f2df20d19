"""Ten training steps beside torch's: right ones are told as right, wrong gradients and wrong statistics as wrong."""

import copy
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from edge_sdk.model.bundle import parse
from edge_sdk.model.model import Model
from edge_sdk.models.bundle.compile import compile_module
from edge_sdk.models.ir.specification.spec import Spec

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import foreign_steps


@pytest.fixture(scope="module")
def trained():
    """A network with dropout and statistics of the batch, its bundle's model, and what it was compared with."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 3)).eval()
    made = compile_module(copy.deepcopy(net), Spec("m", (5,), norm="batch", dropout="keep"))
    return net, Model(parse(made.data)), made.truth


def compare(trained, change):
    net = copy.deepcopy(trained[0])
    change(net)
    return foreign_steps.compare_steps(trained[1], trained[2], net)


def test_steps_of_a_right_bundle_are_torchs(trained):
    told = compare(trained, lambda net: None)
    assert told["wrong"] == [] and told["steps_worst"] < 1e-4


class Steeper(nn.ReLU):
    """ReLU with a gradient that is one in a thousand too large."""

    def forward(self, x):
        y = super().forward(x)
        return 1.001 * y - 0.001 * y.detach()


def test_a_gradient_that_is_not_the_modules_is_wrong(trained):
    assert compare(trained, lambda net: net.__setitem__(2, Steeper()))["wrong"] == ["steps"]


def test_running_statistics_that_move_otherwise_are_wrong(trained):
    assert compare(trained, lambda net: setattr(net[1], "momentum", 0.2))["wrong"] == ["after"]
