"""Modules that change what they are given in place, and that drop values beside an assignment by a mask."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from edge_sdk.models.bundle.compile import compile_module
from edge_sdk.models.ir.specification.spec import Spec


class Net(nn.Module):
    """Something that is made of the input, before a network."""

    def __init__(self, change):
        super().__init__()
        torch.manual_seed(0)
        self.change, self.net = change, nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 2))

    def forward(self, x):
        return self.net(self.change(x, self.training))


def below_zero(x, training):
    x[x < 0] = 0
    return x


def missing(x, training):
    x[x.isnan()] = 0
    return below_zero(x, training)


def one_more(x, training):
    x += 1
    return x


def dropped(x, training):
    return F.dropout(x, 0.5, training, inplace=True)


def dropped_beside(x, training):
    return F.dropout(below_zero(x * 2, training), 0.5, training)


def dropped_after(x, training):
    return dropped(below_zero(x, training), training)


def stochastic_depth(x, training):
    h = below_zero(x * 2, training)
    return h * x.new_empty(x.shape[0], 1).bernoulli_(0.75).div_(0.75) if training else h


@pytest.mark.parametrize("change", [below_zero, missing, one_more])
def test_inputs_that_a_module_changes_in_place_are_its_own(change):
    assert compile_module(Net(change).eval(), Spec("m", (6,))).errors["float64"] <= 1e-8


@pytest.mark.parametrize("change", [dropped, dropped_beside, dropped_after, stochastic_depth])
def test_values_are_dropped_in_place_and_beside_assignments_by_masks(change):
    made = compile_module(Net(change).eval(), Spec("m", (6,), dropout="keep"))
    assert made.errors["float64"] <= 1e-8 and len(made.truth.drops.sites) == 1
