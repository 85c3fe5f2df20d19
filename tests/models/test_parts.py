"""Partial gradients: equal to the whole one bit for bit, also where onnxruntime rounds a shorter graph differently."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from edge_sdk.algebra.vectors import Slot
from edge_sdk.model.bundle import parse
from edge_sdk.model.model import Model
from edge_sdk.models.bundle import compile
from edge_sdk.models.bundle.compile import compile_module
from edge_sdk.models.gate.graphs import check
from edge_sdk.models.ir.errors import ParityError
from edge_sdk.models.ir.specification.spec import Spec
from tests.models.module_check import Net

WHOLE = np.array([1.0, 2.0, 3.0, 4.0], np.float32)
SLOT = Slot("a.weight", (2,), 1, "other", "a")


def measure(difference):
    """What the gate does with a partial gradient that differs by so much; the unequal parts."""
    graphs = {"loss_grad": SimpleNamespace(slots=[]), "loss_grad@a": SimpleNamespace(slots=[SLOT])}
    part = WHOLE[1:3] + np.float32(difference)
    runs = {"loss_grad": lambda *feeds: {"grad": WHOLE}, "loss_grad@a": lambda *feeds: {"grad": part}}
    truth = SimpleNamespace(draw=lambda case, y_shape: {})
    names = check.find_unequal_parts(graphs, runs, truth, {}, None)
    if not names:
        check.check_consistency(graphs, runs, truth, {}, None)
    return names


def test_rounding_is_told_from_an_error():
    assert measure(0) == []
    assert measure(1e-6) == ["loss_grad@a"]
    with pytest.raises(ParityError, match="bit for bit"):
        measure(0.1)


def test_a_part_that_is_cut_out_of_the_whole(monkeypatch):
    """As for every partial gradient: the bits are those of the whole one."""
    monkeypatch.setattr(compile, "find_unequal_parts", lambda *given: ["loss_grad@b"])
    torch.manual_seed(0)
    told = []
    model = Model(parse(compile_module(Net(torch.tanh).eval(), Spec("m", (8,)), told.append).data))
    assert any(t.startswith("loss_grad@b: is rounded differently") for t in told)
    x, y = np.random.default_rng(0).standard_normal((5, 8)).astype(np.float32), np.arange(5) % 3
    whole = model.loss_grad(model.theta0, x, y)[1]
    for group in ("a", "b"):
        slots = [s for s in model.layout.slots if s.group == group]
        want = np.concatenate([whole[s.span] for s in slots])
        assert np.array_equal(model.loss_grad(model.theta0, x, y, group=group)[1], want)
