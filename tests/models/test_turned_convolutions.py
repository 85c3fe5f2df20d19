"""Convolutions as transposed ones: the same values and gradients, and only where they gain."""

import pytest
import torch
from torch import nn

from edge_sdk.models.derive import targets
from edge_sdk.models.frontend.tracing.forward import read_forward
from edge_sdk.models.ir.specification.layout import lay_out_parameters
from edge_sdk.models.passes.convolutions import turned_convolutions
from edge_sdk.models.passes.convolutions.turned_convolutions import turn_convolutions
from tests.models.module_check import export_net, measure_exported
from tests.models.rule_check import compare_rewritten, make_forward, make_node

# positions, kernel, attributes
FITTING = [
    ((6, 5), (3, 3), {"pads": [1, 1, 1, 1]}),
    ((6, 5), (3, 3), {}),
    ((7, 6), (5, 2), {"pads": [2, 0, 1, 1]}),
    ((9, 3), (5, 1), {}),
    ((4, 4), (2, 3), {"auto_pad": "SAME_LOWER"}),
]


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("positions", "kernel", "attributes"), FITTING)
def test_values_and_gradients_stay_the_same(positions, kernel, attributes, bias, monkeypatch):
    monkeypatch.setattr(turned_convolutions, "LEAST_POSITIONS", 0)  # planes here are small
    shapes = {"x": ("B", 5, *positions), "w": (3, 5, *kernel)} | ({"b": (3,)} if bias else {})
    node = make_node("Conv", list(shapes), kernel_shape=kernel, **attributes)

    def turn(g):
        turn_convolutions(g)
        assert "Conv" not in [n.op for n in g.nodes]

    compare_rewritten([node], shapes, turn)


@pytest.mark.parametrize(
    ("shapes", "attributes"),
    [
        ({"x": ("B", 3, 6, 6), "w": (4, 3, 3, 3)}, {}),  # more outputs than inputs
        ({"x": ("B", 80, 6, 6), "w": (80, 80, 3, 3)}, {}),  # many outputs
        ({"x": ("B", 4, 6, 6), "w": (4, 4, 1, 1)}, {}),  # no columns to copy
        ({"x": ("B", 4, 6, 6), "w": (4, 4, 3, 3)}, {"strides": [2, 2]}),
        ({"x": ("B", 4, 6, 6), "w": (4, 4, 3, 3)}, {"dilations": [2, 1]}),
        ({"x": ("B", 4, 6, 6), "w": (4, 2, 3, 3)}, {"group": 2}),
        ({"x": ("B", 4, 6, 6), "w": (4, 4, 3, 3)}, {"pads": [3, 1, 0, 1]}),  # an output that sees padding only
        ({"x": ("B", 4, 6), "w": (4, 4, 3)}, {}),
        ({"x": ("B", 8, 22, 9), "w": (8, 8, 22, 1)}, {}),  # of 22 rows one is left
    ],
)
def test_other_convolutions_stay(shapes, attributes):
    g = read_forward(make_forward([make_node("Conv", ["x", "w"], **attributes)], shapes, {}))
    turn_convolutions(g)
    assert [n.op for n in g.nodes] == ["Conv"]


def test_a_network_turns_in_training_and_not_in_prediction(monkeypatch):
    monkeypatch.setattr(turned_convolutions, "LEAST_POSITIONS", 0)
    torch.manual_seed(5)
    layers = [nn.Conv2d(4, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 2, 3), nn.Tanh(), nn.Flatten()]
    net, inputs, forward = export_net(nn.Sequential(*layers, nn.Linear(32, 3)), (4, 6, 6))
    assert measure_exported(net, inputs, forward) < 1e-9
    source = targets.Source(forward, {"theta": lay_out_parameters(net)})
    assert [n.op for n in source.copy_graph().nodes].count("Conv") == 2
    assert "Conv" not in [n.op for n in source.copy_training_graph().graph.nodes]
