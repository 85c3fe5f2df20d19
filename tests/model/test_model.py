"""A bundle at work: checks of arguments, binding of data, cancellation, what a device loads."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import edge_sdk.model.sessions.onnx_session
from edge_sdk.errors import Cancelled, UsageError
from edge_sdk.model.bundle import BundleError, parse, read_bundle
from edge_sdk.model.model import Model
from tests.model.bundle_files import repacked

BUNDLE = Path(__file__).parents[2] / "models" / "shipped" / "wrist.bundle"


@pytest.fixture(scope="module")
def model():
    return Model(BUNDLE)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(3)
    return rng.standard_normal((150, 3, 64)).astype(np.float32), rng.integers(0, 14, 150)


def test_a_devices_training_loads_neither_torch_nor_onnx():
    code = f"""
import sys, numpy as np
from edge_sdk.model.model import Model
m = Model({str(BUNDLE)!r})
f = m.grad_fn(np.zeros((4, 3, 64), np.float32), np.zeros(4, np.int64))
f(m.theta0)
print(sorted(set(sys.modules) & {{"torch", "onnx", "onnxscript", "models", "aggregator"}}))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_device_that_predicts_builds_no_training_session(data):
    m = Model(BUNDLE, check=False)
    m.predict(m.theta0, data[0][:2])
    assert list(m._sessions) == ["predict"]


def test_the_mean_over_many_samples_does_not_depend_on_the_steps(model, data):
    x, y = data
    loss, grad = model.grad_fn(x, y)(model.theta0)
    parts = [model.loss_grad(model.theta0, x[i : i + 50], y[i : i + 50]) for i in range(0, 150, 50)]
    assert loss == pytest.approx(np.mean([p[0] for p in parts]), rel=1e-5)
    np.testing.assert_allclose(grad, np.mean([p[1] for p in parts], axis=0), atol=1e-6)


def test_indices_choose_samples_and_repeat_them(model, data):
    f = model.grad_fn(*data)
    chosen = np.array([5, 5, 9])
    loss, grad = f(model.theta0, chosen)
    want = model.loss_grad(model.theta0, data[0][chosen], data[1][chosen])
    assert loss == pytest.approx(want[0])
    np.testing.assert_array_equal(grad, want[1])


def test_weight_zero_masks_a_sample(model, data):
    x, y = data[0][:3], data[1][:3]
    loss, grad = model.loss_grad(model.theta0, x, y, np.array([0.5, 0.5, 0.0], np.float32))
    want = model.loss_grad(model.theta0, x[:2], y[:2])
    assert loss == pytest.approx(want[0], rel=1e-6)
    np.testing.assert_allclose(grad, want[1], atol=1e-6)


def test_gradients_of_a_group_are_the_slice_of_the_whole(model, data):
    x, y = data[0][:20], data[1][:20]
    whole = model.loss_grad(model.theta0, x, y)[1]
    assert model.groups == ("body", "head")
    for group in model.groups:
        part = model.loss_grad(model.theta0, x, y, group=group)[1]
        want = np.concatenate([whole[s.span] for s in model.layout.slots if s.group == group])
        np.testing.assert_array_equal(part, want)


def test_vjp_is_linear_in_the_cotangent(model, data):
    x, rng = data[0][:5], np.random.default_rng(0)
    a, b = rng.standard_normal((2, 5, 14)).astype(np.float32)
    (z, ga), (_, gb), (_, gab) = (model.vjp(model.theta0, x, c) for c in (a, b, a + b))
    np.testing.assert_array_equal(z, model.predict(model.theta0, x))
    np.testing.assert_allclose(ga + gb, gab, atol=1e-4)


def test_score_counts_and_sums(model, data):
    x, y = data
    sums = model.score(x, y)(model.theta0)
    z = model.predict(model.theta0, x).astype(np.float64)
    log_p = z - np.log(np.exp(z).sum(1, keepdims=True))
    assert sums["samples"] == 150 and sums["correct"] == (z.argmax(1) == y).sum()
    assert sums["loss"] == pytest.approx(-log_p[np.arange(150), y].sum(), rel=1e-5)


def test_a_device_without_samples_of_its_own_scores_nothing(model):
    none = np.zeros((0, 3, 64), np.float32), np.zeros(0, np.int64)
    assert model.score(*none)(model.theta0) == {"loss": 0, "correct": 0, "samples": 0}
    assert model.predict(model.theta0, none[0]).shape == (0, 14)


def test_no_input_is_changed(model, data):
    x, y = data[0][:150].copy(), data[1].copy()
    theta = model.theta0.copy()
    f = model.grad_fn(x, y)
    first = f(theta)
    kept = first[1].copy()
    f(theta)
    np.testing.assert_array_equal(first[1], kept)
    np.testing.assert_array_equal(theta, model.theta0)
    np.testing.assert_array_equal(x, data[0])


def test_cancel_is_asked_before_every_step(model, data):
    asked = []

    def cancel():
        asked.append(1)
        return len(asked) == 2

    f = model.grad_fn(*data, cancel=cancel)
    with pytest.raises(Cancelled):
        f(model.theta0)
    assert len(asked) == 2


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda x, y: (x[:, :2], y), r"x: expected float \(B, 3, 64\), got float32 \(150, 2, 64\)"),
        (lambda x, y: (x.astype(np.int64), y), r"x: expected float .* got int64"),
        (lambda x, y: (x, y[:9]), r"y: expected integers \(150,\), got int64 \(9,\)"),
        (lambda x, y: (x, y.astype(np.float32)), "y: expected integers"),
        (lambda x, y: (x, y + 1), "y: 14 is out of range, expected 0 to 13"),
        (lambda x, y: (x, y - 20), "y: -20 is out of range"),
    ],
)
def test_wrong_data_is_refused_when_it_is_bound(model, data, change, words):
    with pytest.raises(UsageError, match=words):
        model.grad_fn(*change(*data))


def test_wrong_theta_group_and_indices_are_refused(model, data):
    f = model.grad_fn(*data)
    with pytest.raises(UsageError, match=r"theta: expected float \(77518,\)"):
        f(model.theta0[:-1])
    with pytest.raises(UsageError, match="no samples"):
        f(model.theta0, np.array([], np.int64))
    with pytest.raises(UsageError, match=r"no graph 'loss_grad@neck'; it has .*loss_grad@head"):
        model.loss_grad(model.theta0, data[0], data[1], group="neck")
    with pytest.raises(UsageError, match="threads = 0"):
        Model(BUNDLE, threads=0)


def test_golden_vectors_that_fail_here_are_refused():
    kept = read_bundle(BUNDLE)
    raw = bytearray(kept.parts["golden"])
    entry = next(a for a in kept.manifest["golden"]["arrays"] if a["name"] == "out.grad")
    np.frombuffer(raw, "<f4", offset=entry["offset"])[3:9] += 1
    changed = parse(repacked(kept, golden=bytes(raw)))
    with pytest.raises(BundleError, match=r"golden vectors fail .* gradient is off by"):
        Model(changed)
    Model(changed, check=False)


@pytest.mark.parametrize(
    ("installed", "words"), [("1.21.0", "known to fail"), ("1.9.1", "too old for this bundle; install 1.20.0")]
)
def test_versions_of_onnxruntime_are_checked_before_it_is_imported(monkeypatch, installed, words):
    monkeypatch.setattr(edge_sdk.model.sessions.onnx_session, "version", lambda _: installed)
    with pytest.raises(BundleError, match=words):
        Model(BUNDLE)
