"""The aggregator's regularisers: finite differences, the same answer for the same arguments, and other formulas."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from aggregator.private_model import table as private
from aggregator.private_model.checkpoint import compute_outputs, load_module
from aggregator.private_model.crd import Crd, CrdOptions
from aggregator.private_model.regulariser import Batching, Distilled, SquaredDistance
from aggregator.private_model.torch_graph import TorchGraph
from edge_sdk.errors import UsageError
from edge_sdk.nodes.configuration.private_table import Private
from tests.aggregator import private_models
from tests.aggregator.private_models import (
    LOSSES,
    SAMPLES,
    Student,
    Teacher,
    X,
    distil,
    save,
    write_files,
)


def test_softened_outputs(bundle, teacher):
    r = distil(bundle, teacher, LOSSES["kd"])
    theta = bundle.theta0.astype(np.float64)
    with torch.no_grad():
        z = r.student(torch.tensor(theta), r.x)[1].numpy()
    p, q = (np.exp(v / 2) / np.exp(v / 2).sum(1, keepdims=True) for v in (r.teacher.logits.numpy(), z))
    assert abs(r(theta, 0, r.first()).value - 0.7 * 4 * (p * np.log(p / q)).sum(1).mean()) < 1e-12


@pytest.mark.parametrize("every", ["pass", "batch"])
@pytest.mark.parametrize("name", LOSSES)
def test_gradients_by_finite_differences(bundle, teacher, name, every):
    """With frozen memory: one batch, so that nothing is learnt between value and value."""
    r = distil(bundle, teacher, LOSSES[name], every, batch=SAMPLES if every == "pass" else 9)
    theta = bundle.theta0.astype(np.float64)
    at = r(theta, 4, r.first())
    step = 1e-6
    for i in np.random.default_rng(2).choice(len(theta), 12, replace=False):
        e = step * np.eye(len(theta))[i]
        slope = (r(theta + e, 4, r.first()).value - r(theta - e, 4, r.first()).value) / (2 * step)
        assert abs(slope - at.gradient[i]) < 1e-6 * max(1, abs(slope))


@pytest.mark.parametrize("name", LOSSES)
def test_the_same_for_the_same_arguments(bundle, teacher, name):
    theta = bundle.theta0.astype(np.float64)
    for every in ("pass", "batch"):
        a, b = (distil(bundle, teacher, LOSSES[name], every) for _ in range(2))
        one, two = a(theta, 2, a.first()), b(theta, 2, b.first())
        a(theta + 1, 2, a.first())
        again = a(theta, 2, a.first())
        for other in (two, again):
            assert one.value == other.value and np.array_equal(one.gradient, other.gradient)
            assert np.array_equal(one.memory, other.memory)


def test_nothing_flows_into_the_teacher(bundle, teacher):
    r = distil(bundle, teacher, LOSSES["crd, trained heads"])
    r(bundle.theta0.astype(np.float64), 0, r.first())
    assert not r.teacher.features.requires_grad
    module = load_module(
        Private(weight=0.0, model=save(teacher), architecture=f"{private_models.__file__}:Teacher"), "cpu"
    )
    assert not any(p.requires_grad for p in module.parameters()) and not module.training


def test_float32_agrees_with_float64(bundle, teacher, tmp_path):
    options = {"dim": 3, "tau": 0.5, "heads": "frozen"}
    single = private.regulariser_of(write_files(tmp_path, teacher, options=options), bundle, 3, "cpu")
    teacher64 = compute_outputs(teacher.double(), "", torch.tensor(X, dtype=torch.float64), 8)
    x, student = torch.tensor(X, dtype=torch.float64), TorchGraph(bundle, dtype=torch.float64)
    first = student(student.constant(bundle.theta0), x[:8])[0]
    loss = Crd(CrdOptions(**options), teacher64, None, first, 3 + private.HEADS)
    student = TorchGraph(bundle, dtype=torch.float64)
    double = Distilled(student, teacher64, loss, x, None, weight=0.7, batching=Batching(batch=8, seed=3))
    one, two = single(bundle.theta0, 0, single.first()), double(bundle.theta0.astype(np.float64), 0, double.first())
    assert abs(one.value - two.value) < 1e-5 and np.abs(one.gradient - two.gradient).max() < 1e-5


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
@pytest.mark.parametrize("kind", ["crd", "kd"])
def test_on_a_gpu_within_rounding(bundle, teacher, tmp_path, kind):
    settings = write_files(tmp_path, teacher, regulariser=kind)
    here, there = (private.regulariser_of(settings, bundle, 3, device) for device in ("cpu", "cuda"))
    one, two = here(bundle.theta0, 0, here.first()), there(bundle.theta0, 0, there.first())
    assert abs(one.value - two.value) < 1e-4 and np.abs(one.gradient - two.gradient).max() < 1e-4
    assert one.memory.shape == two.memory.shape


def test_squared_distance(bundle, tmp_path):
    torch.manual_seed(9)
    other = Student()
    found = private.regulariser_of(write_files(tmp_path, other, regulariser="l2", data=None), bundle, 3, "cpu")
    assert isinstance(found, SquaredDistance)
    theta_p = np.concatenate([p.detach().numpy().ravel() for p in other.parameters()])
    pull = found(bundle.theta0, 0, found.first())
    assert np.allclose(pull.gradient, 2 * 0.7 * (bundle.theta0 - theta_p), atol=1e-6)
    assert abs(pull.value - 0.7 * ((bundle.theta0 - theta_p) ** 2).sum()) < 1e-5
    with pytest.raises(UsageError, match=r"body.weight has shape \(6, 5\), the devices' model has it as \(4, 5\)"):
        private.regulariser_of(write_files(tmp_path, Teacher(), regulariser="l2"), bundle, 3, "cpu")
