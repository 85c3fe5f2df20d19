"""Exponential units keep the digits of small values on a device, as torch does."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.foreign_rounding import measure_rounding, run_bundle
from edge_sdk.model.bundle import parse
from edge_sdk.model.model import Model
from edge_sdk.models.bundle.compile import compile_module
from edge_sdk.models.gate.references.cases import Case
from edge_sdk.models.ir.specification.spec import Spec

UNITS = {"elu": nn.ELU(1.5), "selu": nn.SELU(), "celu": nn.CELU(0.7)}


class Net(nn.Module):
    """A unit whose smallest differences decide which value a pool takes."""

    def __init__(self, unit: nn.Module) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.unit, self.head = nn.Conv1d(2, 4, 5, bias=False), unit, nn.Linear(12, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(F.max_pool1d(self.unit(self.conv(x)), 4).flatten(1))


@pytest.mark.parametrize("name", UNITS)
def test_values_of_a_millionth_give_torchs_gradient(name):
    made = compile_module(Net(UNITS[name]).eval(), Spec("m", (2, 16)))
    model = Model(parse(made.data))
    assert made.truth is not None
    for scale in (1e-6, 1.0, 30.0):
        data = made.truth.draw(Case("small", 5, 4, scale), (-3,))
        want, single = made.truth.loss_grad(data)[2], made.truth.loss_grad(data, torch.float32)[2]
        got = run_bundle(model, data)
        slot = model.layout.slots[1]  # of the head: the pooled values themselves
        error, torchs = (np.linalg.norm((g - want)[slot.span]) for g in (got, single))
        assert error <= 3 * torchs + 1e-7 * np.linalg.norm(want[slot.span])


def test_the_gradient_at_the_kink_and_far_below_is_torchs():
    """At 0 torch takes the slope of the side below; far below it is 0."""
    unit = nn.ELU(1.5)
    net = nn.Sequential(nn.Linear(3, 3, bias=False), unit, nn.Linear(3, 2))
    with torch.no_grad():
        net[0].weight.copy_(torch.eye(3))
    model = Model(parse(compile_module(net.eval(), Spec("m", (3,))).data))
    x, y = np.array([[0.0, -200.0, 50.0]], np.float32), np.array([1])
    want = torch.autograd.grad(F.cross_entropy(net(torch.from_numpy(x)), torch.from_numpy(y)), list(net.parameters()))
    flat = torch.cat([g.reshape(-1) for g in want]).numpy()
    np.testing.assert_allclose(model.loss_grad(model.theta0, x, y)[1], flat, rtol=1e-5, atol=1e-6)


def test_rounding_is_told_for_each_kind_of_inputs_and_is_near_torchs():
    made = compile_module(Net(nn.ELU()).eval(), Spec("m", (2, 16)))
    assert made.truth is not None
    kinds = measure_rounding(Model(parse(made.data)), made.truth)
    assert {"inputs times 1e-3", "tied inputs", "one sample"} <= {r.case for r in kinds}
    assert all(len(r.device) == len(r.torch) > 1 and r.worst >= r.ratio / 2 for r in kinds)
    assert max(r.ratio for r in kinds) < 3
