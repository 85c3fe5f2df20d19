"""Winograd's products in the place of convolutions: the same values and gradients, and the same zeros."""

import numpy as np
import pytest
import torch
from torch import nn

from edge_sdk.models.derive import targets
from edge_sdk.models.frontend.forward import read_forward
from edge_sdk.models.gate.runnable import RunnableGraph
from edge_sdk.models.ir.layout import lay_out_parameters
from edge_sdk.models.ir.proto import write_model
from edge_sdk.models.ir.reference import run
from edge_sdk.models.passes import winograd
from tests.models.module_check import export_net, measure_exported
from tests.models.rule_check import append_gradients, make_forward, make_node

# (height, width), paddings before and after
PLANES = [
    ((4, 4), [1, 1, 1, 1]),
    ((5, 7), [1, 1, 1, 1]),  # tiles that reach beyond the plane
    ((6, 3), [0, 0, 0, 0]),  # a plane of outputs that is smaller
    ((3, 4), [2, 1, 2, 0]),
]


def make_graph(plane, pads, bias=True):
    """A convolution, and the shapes of its inputs."""
    shapes = {"x": ("B", 3, *plane), "w": (4, 3, 3, 3)} | ({"b": (4,)} if bias else {})
    return read_forward(make_forward([make_node("Conv", list(shapes), pads=pads)], shapes, {})), shapes


def draw(shapes, batch):
    rng = np.random.default_rng(3)
    return {k: rng.standard_normal([batch if d == "B" else d for d in v]) for k, v in shapes.items()}


@pytest.fixture
def everywhere(monkeypatch):
    """As if the products paid for any size."""
    monkeypatch.setattr(winograd, "compare_costs", lambda *sizes: 0.0)


def use(g):
    winograd.use_winograd(g, 1.0)
    return [n.op for n in g.nodes]


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize(("plane", "pads"), PLANES)
def test_values_and_gradients_stay_the_same(plane, pads, batch, bias, everywhere):
    found = []
    for rewritten in (False, True):
        g, shapes = make_graph(plane, pads, bias)
        if rewritten:
            assert "Conv" not in use(g)
        at = draw(shapes, batch)
        y = run(write_model(g, ["y"], double=True), at)["y"]
        names = append_gradients(g, shapes, "y")
        cotangent = np.random.default_rng(4).standard_normal(y.shape)
        found.append([y, *run(write_model(g, names, double=True), {**at, "cotangent": cotangent}).values()])
    for want, got in zip(*found, strict=True):
        np.testing.assert_allclose(got, want, atol=1e-11)


def test_the_matrices_are_those_of_the_definition():
    """y = A' [(G g G') (B' d B)] A for a tile of 4 x 4."""
    rng = np.random.default_rng(0)
    d, taps = rng.standard_normal((4, 4)), rng.standard_normal((3, 3))
    entries = (winograd.TAPS @ taps @ winograd.TAPS.T) * (winograd.INPUTS @ d @ winograd.INPUTS.T)
    want = [[(d[i : i + 3, j : j + 3] * taps).sum() for j in range(2)] for i in range(2)]
    np.testing.assert_allclose(winograd.OUTPUTS @ entries @ winograd.OUTPUTS.T, want, atol=1e-13)


@pytest.mark.parametrize(
    "attributes",
    [
        {"pads": [1, 1, 1, 1], "strides": [2, 2]},
        {"pads": [2, 2, 2, 2], "dilations": [2, 2]},
        {"pads": [1, 1, 1, 1], "group": 3},
        {"pads": [0, 1, 0, 1], "kernel": (1, 3)},
    ],
)
def test_other_convolutions_stay(attributes, everywhere):
    kernel = attributes.pop("kernel", (3, 3))
    shapes = {"x": ("B", 3, 6, 6), "w": (3, 3 // attributes.get("group", 1), *kernel)}
    assert use(read_forward(make_forward([make_node("Conv", ["x", "w"], **attributes)], shapes, {}))) == ["Conv"]


@pytest.mark.parametrize("lit", [(0, 0), (1, 2), (3, 3), (2, 0)])
def test_an_output_that_sees_zeros_alone_is_exactly_zero(lit, everywhere):
    """Else a ReLU would let through what torch stops at 0: all that is dark, in a network with fresh biases."""
    g, shapes = make_graph((4, 4), [1, 1, 1, 1], bias=False)
    at = draw(shapes, 2)
    dark = np.ones((4, 4), bool)
    dark[lit] = False
    at["x"] *= ~dark
    want = run(write_model(g, ["y"], double=True), at)["y"]
    assert (want == 0).any()
    use(g)
    single = {k: v.astype(np.float32) for k, v in at.items()}
    for got in (run(write_model(g, ["y"], double=True), at)["y"], RunnableGraph(write_model(g, ["y"]))(single)["y"]):
        np.testing.assert_array_equal(got == 0, want == 0)


# Whole networks ---------------------------------------------------------------------------------------------------
def make_net():
    """A residual block on planes of 6 x 5."""
    torch.manual_seed(1)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.one = nn.Conv2d(4, 6, 3, padding=1, bias=False), nn.GroupNorm(2, 6)
            self.second, self.two = nn.Conv2d(6, 6, 3, padding=1), nn.GroupNorm(3, 6)
            self.head = nn.Linear(6, 3)

        def forward(self, x):
            h = torch.relu(self.one(self.first(x)))
            return self.head(torch.relu(h + self.two(self.second(h))).mean((2, 3)))

    return Block()


def test_gradients_are_torchs(everywhere):
    net, inputs, forward = export_net(make_net(), (4, 6, 5))
    assert measure_exported(net, inputs, forward) < 1e-7
    source = targets.Source(forward, {"theta": lay_out_parameters(net)})
    trained, predicted = targets.write_loss_grad(source, "cross_entropy"), targets.write_predict(source)
    assert not {"Conv", "ConvTranspose"} & {n.op for n in trained.graph.nodes}
    assert "Conv" in [n.op for n in predicted.graph.nodes]  # a device often predicts one sample


def test_the_backward_pass_computes_transforms_again(everywhere):
    """Kept from the forward pass they would take four times the memory of the activations."""
    net, _, forward = export_net(make_net(), (4, 6, 5))
    source = targets.Source(forward, {"theta": lay_out_parameters(net)})
    nodes = targets.write_loss_grad(source, "cross_entropy").graph.nodes
    last = max(i for i, n in enumerate(nodes) if n.op == "LogSoftmax")
    made = {o for n in nodes[:last] if n.op == "Gemm" for o in n.outputs}
    entries = {o for n in nodes[:last] if n.op == "Reshape" and n.inputs[0] in made for o in n.outputs} | made
    late = [n for n in nodes[last:] if n.op in ("MatMul", "Gemm") and n.where.startswith(("first", "second"))]
    assert late
    assert not {i for n in late for i in n.inputs} & entries


@pytest.mark.parametrize(
    ("channels", "side", "gains"),
    [(512, 4, True), (256, 8, True), (64, 4, True), (16, 8, False), (64, 32, False), (512, 2, False)],
)
def test_it_is_chosen_where_it_multiplies_less(channels, side, gains):
    share = winograd.compare_costs((channels, channels, 3, 3), (side, side), (side, side))
    assert (share <= winograd.MOST_BESIDE_BLOCKED) == gains
