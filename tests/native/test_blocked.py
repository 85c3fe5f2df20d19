"""Native products beside blocked graphs, which are taken or left by themselves."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch", reason="the model is compiled with it")

import edge_sdk.model.sessions.self_test
from edge_sdk.model.model import Model
from edge_sdk.model.sessions.kernels import KernelChoice
from tests.models.test_blocked import bundle_of, net


@pytest.fixture(scope="module")
def bundle():
    return bundle_of(net(), (2, 16))


@pytest.mark.parametrize("kind", ["auto", "native"])
def test_both_are_used(best, bundle, kind):
    model = Model(bundle, kernels=kind)
    assert (model.choice, model.kernels, model.fallback) == (KernelChoice(best, True), "native", "")
    plain = Model(bundle, kernels="portable")
    x, y = np.random.default_rng(0).standard_normal((7, 2, 16)).astype(np.float32), np.arange(7) % 3
    (loss, grad), (want, slope) = model.loss_grad(model.theta0, x, y), plain.loss_grad(plain.theta0, x, y)
    assert loss == pytest.approx(want, rel=1e-5)
    assert np.linalg.norm(grad - slope) <= 1e-5 * np.linalg.norm(slope)


@pytest.mark.parametrize("kind", ["auto", "native"])
def test_portable_graphs_with_native_products_where_the_layout_is_another(best, bundle, kind, monkeypatch):
    monkeypatch.setattr(edge_sdk.model.sessions.self_test, "BLOCKS", ())
    model = Model(bundle, kernels=kind)
    assert model.choice == KernelChoice(best) and model.fallback


def test_blocked_graphs_with_onnxruntimes_products(best, bundle):
    assert Model(bundle, kernels="blocked").choice == KernelChoice(blocked=True)
