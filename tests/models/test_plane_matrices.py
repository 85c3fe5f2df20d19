"""Depthwise convolutions on small planes as products: the same values and gradients, and only where they gain."""

import numpy as np
import pytest
import torch
from torch import nn

from edge_sdk.models.derive import targets
from edge_sdk.models.frontend.tracing.forward import read_forward
from edge_sdk.models.ir.evaluation.reference import run
from edge_sdk.models.ir.proto import write_model
from edge_sdk.models.ir.specification.layout import lay_out_buffers, lay_out_parameters
from edge_sdk.models.passes.convolutions.plane_matrices import use_plane_matrices
from tests.models.module_check import export_net, measure_exported
from tests.models.rule_check import make_forward, make_node

# channels, positions, kernel, attributes
FITTING = [
    (3, (1, 1), (3, 3), {"pads": [1, 1, 1, 1]}),
    (3, (2, 2), (7, 7), {"pads": [3, 3, 3, 3]}),
    (4, (4, 3), (3, 2), {"pads": [1, 0, 2, 1], "strides": [2, 1], "dilations": [1, 2]}),
    (4, (5,), (3,), {"strides": [2], "auto_pad": "SAME_LOWER"}),
    (2, (2, 3, 2), (3, 3, 3), {"pads": [1] * 6}),
]


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("channels", "positions", "kernel", "attributes"), FITTING)
def test_values_stay_the_same(channels, positions, kernel, attributes, bias):
    shapes = {"x": ("B", channels, *positions), "w": (channels, 1, *kernel)} | ({"b": (channels,)} if bias else {})
    node = make_node("Conv", list(shapes), kernel_shape=kernel, group=channels, **attributes)
    g = read_forward(make_forward([node], shapes, {}))
    rng = np.random.default_rng(0)
    at = {k: rng.standard_normal([3 if d == "B" else d for d in v]) for k, v in shapes.items()}
    want = run(write_model(g, ["y"], double=True), at)["y"]
    use_plane_matrices(g)
    assert "Conv" not in [n.op for n in g.nodes]
    np.testing.assert_allclose(run(write_model(g, ["y"], double=True), at)["y"], want, atol=1e-12)


@pytest.mark.parametrize(
    ("shapes", "attributes"),
    [
        ({"x": ("B", 4, 17), "w": (4, 1, 3)}, {"group": 4, "pads": [1, 1]}),  # more positions than are worth a matrix
        ({"x": ("B", 4, 3), "w": (8, 1, 3)}, {"group": 4, "pads": [1, 1]}),  # two kernels a channel
        ({"x": ("B", 4, 3), "w": (4, 2, 3)}, {"group": 2, "pads": [1, 1]}),
        ({"x": ("B", 4, 3), "w": (4, 1, 1)}, {"group": 4}),  # one tap is a product already
    ],
)
def test_other_convolutions_stay(shapes, attributes):
    g = read_forward(make_forward([make_node("Conv", ["x", "w"], **attributes)], shapes, {}))
    use_plane_matrices(g)
    assert [n.op for n in g.nodes] == ["Conv"]


def make_net():
    layers = [nn.Conv2d(2, 4, 3, 2, 1), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 7, 1, 3, groups=4), nn.GELU()]
    layers += [nn.Conv2d(4, 4, 3, 2, 1, groups=4, bias=False), nn.BatchNorm2d(4), nn.Tanh(), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(16, 3))


def test_gradients_are_torchs_and_no_small_plane_is_convolved():
    torch.manual_seed(5)
    net, inputs, forward = export_net(make_net(), (2, 7, 7))
    assert measure_exported(net, inputs, forward) < 1e-7
    source = targets.Source(forward, {"theta": lay_out_parameters(net)}, lay_out_buffers(net))
    for made in (targets.write_predict(source), targets.write_loss_grad(source, "cross_entropy")):
        groups = [n.attributes.get("group", 1) for n in made.graph.nodes if n.op in ("Conv", "ConvTranspose")]
        assert groups and set(groups) <= {1, 2}  # the first layer, and columns of its two channels
