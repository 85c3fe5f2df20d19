"""Convolutional networks in native form: the gradient of weights as one operator, and the same values."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the models are compiled with it")
from torch import nn  # noqa: E402

from edge_sdk.models.bundle.compile import read_vectors  # noqa: E402
from edge_sdk.models.derive import targets  # noqa: E402
from edge_sdk.models.ir.specification.layout import lay_out_parameters  # noqa: E402
from edge_sdk.models.passes.native.native_nodes import use_native_nodes  # noqa: E402
from tests.models.module_check import export_net  # noqa: E402
from tests.native.test_native_loops import evaluate, run  # noqa: E402

CLASSES = 3


def one(*layers: nn.Module, outputs: int) -> nn.Module:
    return nn.Sequential(*layers, nn.Tanh(), nn.Flatten(), nn.Linear(outputs, CLASSES))


NETS: dict[str, tuple[Any, tuple[int, ...], int]] = {
    "along a line": (lambda: one(nn.Conv1d(2, 16, 5, padding=2), outputs=160), (2, 10), 1),
    "along a line, in steps": (lambda: one(nn.Conv1d(2, 32, 3, 2, dilation=2), outputs=160), (2, 14), 1),
    "3 x 3": (lambda: one(nn.Conv2d(3, 16, 3, padding=1), outputs=16 * 30), (3, 5, 6), 1),
    "3 x 3 of many": (lambda: one(nn.Conv2d(9, 16, 3, padding=1), outputs=16 * 30), (9, 5, 6), 1),
    "in steps": (lambda: one(nn.Conv2d(3, 32, (3, 2), (2, 1), (1, 0)), outputs=32 * 15), (3, 5, 6), 1),
    "groups": (lambda: one(nn.Conv2d(4, 32, 3, padding=1, groups=2), outputs=32 * 20), (4, 4, 5), 1),
    "along one axis": (lambda: one(nn.Conv2d(2, 16, (4, 1)), outputs=16 * 15), (2, 6, 5), 1),
    "two": (lambda: one(nn.Conv2d(2, 16, 1), nn.Tanh(), nn.Conv2d(16, 16, (3, 1)), outputs=16 * 20), (2, 6, 5), 2),
    "transposed": (lambda: one(nn.ConvTranspose2d(32, 2, 3, 2), outputs=2 * 63), (32, 3, 4), 1),
    "as wide as the image": (lambda: one(nn.Conv2d(1, 40, (3, 6)), outputs=40 * 6), (1, 8, 6), 0),
    "few outputs": (lambda: one(nn.Conv2d(3, 8, 3, padding=1), outputs=8 * 30), (3, 5, 6), 0),
}


@pytest.mark.parametrize("name", NETS)
def test_a_native_graph_computes_what_the_plain_one_does(best: str, name: str):
    build, shape, convolutions = NETS[name]
    torch.manual_seed(1)
    net, _, forward = export_net(build(), shape)
    slots = lay_out_parameters(net)
    plain = targets.write_loss_grad(targets.Source(forward, {"theta": slots}), "cross_entropy")
    native = use_native_nodes(plain)
    if not convolutions:
        assert native is None
        return
    assert native is not None
    count = Counter(n.op_type for n in native.model().graph.node)
    assert count["ConvWeightGradient"] == convolutions
    theta = read_vectors(net, slots, [])["theta"].astype(np.float32)
    for batch in (1, 4):
        rng = np.random.default_rng(batch)
        feeds = {"theta": theta, "x": rng.standard_normal((batch, *shape)).astype(np.float32)}
        feeds |= {"y": rng.integers(0, CLASSES, batch), "weights": np.full(batch, 1 / batch, np.float32)}
        exact, rounded = evaluate(plain, feeds), run(plain, feeds)
        for want, near, got in zip(exact, rounded, run(native, feeds, best), strict=True):
            assert np.linalg.norm(got - want) <= max(3 * np.linalg.norm(near - want), 1e-6 * np.linalg.norm(want))
        for want, got in zip(exact, evaluate(native, feeds), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-12)
