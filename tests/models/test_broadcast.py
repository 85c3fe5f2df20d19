"""Numbers beside values whose last axis has one position: the same values, with as many axes as those have."""

import numpy as np
import pytest
from torch import nn

from edge_sdk.models.derive import targets
from edge_sdk.models.ir.evaluation.reference import run
from edge_sdk.models.ir.graph import OnnxGraph
from edge_sdk.models.ir.proto import write_model
from edge_sdk.models.ir.specification.layout import lay_out_buffers, lay_out_parameters
from edge_sdk.models.passes.pointwise.broadcast import BROADCASTS, spread_numbers, stumbles
from tests.models.module_check import export_net, measure_exported


def list_narrow(graph):
    """Nodes of a written graph that onnxruntime would go through element by element: a number, and a last axis of 1."""
    shapes = graph.graph.shapes
    return [
        n.op
        for n in graph.graph.nodes
        if n.op in BROADCASTS
        and any(i in graph.graph.constants and stumbles(shapes[i], shapes[n.outputs[0]]) for i in n.inputs)
    ]


class Electrodes(nn.Module):
    """A signal along the first axis of an image, as braindecode's networks have it."""

    def __init__(self):
        super().__init__()
        layers = [nn.Conv2d(1, 3, (3, 1)), nn.ELU(), nn.Conv2d(3, 4, (1, 2)), nn.BatchNorm2d(4), nn.ELU(1.5), nn.SELU()]
        layers += [nn.PReLU(), nn.Hardswish(), nn.GELU(), nn.AvgPool2d((3, 1)), nn.Flatten(), nn.Linear(12, 3)]
        self.body = nn.Sequential(*layers)

    def forward(self, x):
        return self.body(x[:, None])


def write_targets():
    net, inputs, forward = export_net(Electrodes(), (12, 2))
    source = targets.Source(forward, {"theta": lay_out_parameters(net)}, lay_out_buffers(net))
    made = {"predict": targets.write_predict(source), "loss_grad": targets.write_loss_grad(source, "cross_entropy")}
    return net, inputs, forward, made | {"vjp": targets.write_vjp(source)}


def test_no_graph_has_a_number_that_onnxruntime_repeats_element_by_element():
    net, inputs, forward, made = write_targets()
    assert {k: list_narrow(t) for k, t in made.items()} == {k: [] for k in made}
    assert measure_exported(net, inputs, forward) < 1e-7


@pytest.mark.parametrize("shape", [(3, 4, 1), (3, 1, 1), (3, 1), (1, 1)])
@pytest.mark.parametrize("number", [(), (1,), (1, 1)])
def test_values_stay_the_same(shape, number):
    g = OnnxGraph()
    g.input("x", shape)
    c = g.constant(np.full(number, 0.75))
    many = shape if len(shape) >= len(number) else number
    g.op("Sub", c, g.op("Mul", "x", c, shape=many), shape=many, output="y")
    x = np.random.default_rng(0).standard_normal(shape)
    want = run(write_model(g, ["y"], double=True), {"x": x})["y"]
    spread_numbers(g)
    assert all(not stumbles(g.shape(i), g.shape(n.outputs[0])) for n in g.nodes for i in n.inputs if i in g.constants)
    np.testing.assert_array_equal(run(write_model(g, ["y"], double=True), {"x": x})["y"], want)


def test_numbers_that_have_room_are_left_alone():
    for number, shape in (((), (3, 4)), ((1,), (3, 1, 4)), ((4, 1), (3, 4, 1)), ((1, 1), (3, 4, 1)), ((), ())):
        assert not stumbles(number, shape)
    assert stumbles((), (3, 4, 1)) and stumbles((1,), (3, 1)) and stumbles((1, 1), (3, 1, 1))
