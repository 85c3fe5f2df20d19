"""Convolutions along the first axis of narrow images as those of flat planes: the same, and only where they gain."""

import pytest
import torch
from torch import nn

from edge_sdk.models.derive import targets
from edge_sdk.models.frontend.tracing.forward import read_forward
from edge_sdk.models.ir.specification.layout import lay_out_parameters
from edge_sdk.models.passes.convolutions.flat_planes import flatten_planes
from tests.models.module_check import export_net, measure_exported
from tests.models.rule_check import compare_rewritten, make_forward, make_node

# positions, kernel, attributes
FITTING = [
    ((9, 3), (5, 1), {}),
    ((6, 2), (3, 1), {"pads": [1, 0, 2, 0]}),
    ((9, 4), (3, 1), {"dilations": [2, 3]}),
    ((5, 3), (2, 1), {"auto_pad": "SAME_UPPER"}),
]


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("unit", ["Relu", "Tanh"])
@pytest.mark.parametrize(("positions", "kernel", "attributes"), FITTING)
def test_values_and_gradients_stay_the_same(positions, kernel, attributes, unit, bias):
    shapes = {"x": ("B", 2, *positions), "w": (3, 2, *kernel)} | ({"b": (3,)} if bias else {})
    nodes = [make_node("Conv", list(shapes), ["c"], kernel_shape=kernel, **attributes), make_node(unit, ["c"])]

    def flatten(g):
        flatten_planes(g, {"y"})
        last = ["Conv", "Relu", "Reshape"] if unit == "Relu" else ["Conv", "Reshape", unit]
        assert [n.op for n in g.nodes][-3:] == last

    compare_rewritten(nodes, shapes, flatten)


@pytest.mark.parametrize(
    ("shapes", "attributes"),
    [
        ({"x": ("B", 2, 9, 16), "w": (3, 2, 5, 1)}, {}),  # wide
        ({"x": ("B", 2, 9, 1), "w": (3, 2, 5, 1)}, {}),  # flat already
        ({"x": ("B", 2, 9, 3), "w": (3, 2, 5, 2)}, {}),
        ({"x": ("B", 2, 9, 3), "w": (3, 2, 1, 1)}, {}),
        ({"x": ("B", 2, 9, 3), "w": (3, 2, 5, 1)}, {"strides": [2, 1]}),
        ({"x": ("B", 2, 9, 3), "w": (3, 2, 5, 1)}, {"strides": [1, 2]}),
        ({"x": ("B", 2, 9, 3), "w": (3, 2, 5, 1)}, {"pads": [0, 1, 0, 0]}),
        ({"x": ("B", 2, 9, 3), "w": (2, 1, 5, 1)}, {"group": 2}),
        ({"x": ("B", 2, 9), "w": (3, 2, 5)}, {}),
    ],
)
def test_other_convolutions_stay(shapes, attributes):
    g = read_forward(make_forward([make_node("Conv", ["x", "w"], **attributes)], shapes, {}))
    flatten_planes(g, {"y"})
    assert [n.op for n in g.nodes] == ["Conv"]


def make_net():
    """Sensors beside each other, two convolutions along their time, the first read by two."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second, self.head = nn.Conv2d(1, 4, (5, 1)), nn.Conv2d(4, 4, (3, 1)), nn.Linear(4 * 18, 3)

        def forward(self, x):
            h = self.first(x.unsqueeze(1))
            return self.head((self.second(torch.relu(h)) + h[:, :, 2:]).relu().flatten(1))

    return Net()


def test_a_network_of_sensors_trains_on_flat_planes():
    torch.manual_seed(5)
    net, inputs, forward = export_net(make_net(), (12, 3))
    assert measure_exported(net, inputs, forward) < 1e-9
    g = targets.Source(forward, {"theta": lay_out_parameters(net)}).copy_training_graph().graph
    assert [g.shape(n.inputs[1])[2:] for n in g.nodes if n.op == "Conv"] == [(1, 5), (1, 3)]
