"""Reshapes and transposes as views: the same values, with one transpose at most, and none around attention."""

from __future__ import annotations

import numpy as np
import pytest
from torch import nn

from edge_sdk.models.bundle.compile import make_example
from edge_sdk.models.derive.targets import Source
from edge_sdk.models.frontend.tracing.export import export_forward
from edge_sdk.models.ir.evaluation.reference import run
from edge_sdk.models.ir.graph import OnnxGraph
from edge_sdk.models.ir.proto import select_needed, write_model
from edge_sdk.models.ir.shapes import BatchDim
from edge_sdk.models.ir.specification.layout import lay_out_parameters
from edge_sdk.models.ir.specification.spec import DataInput
from edge_sdk.models.ir.views import reshape_view, transpose_view, view_whole
from edge_sdk.models.passes.products.arrange import arrange

SHAPES = [(2, 3, 4, 5), (6, 20), (2, 12, 5), (24, 5), (1, 2, 3, 1, 20), (120,), (8, 15), (2, 60), (10, 12)]


@pytest.mark.parametrize("seed", range(20))
def test_a_chain_is_one_transpose_at_most_and_gives_the_same_values(seed):
    rng, g = np.random.default_rng(seed), OnnxGraph()
    x, value = g.input("x", (2, 3, 4, 5)), rng.standard_normal((2, 3, 4, 5))
    feeds = {"x": value}
    for _ in range(int(rng.integers(2, 6))):
        if rng.random() < 0.5:
            perm = rng.permutation(value.ndim).tolist()
            value, x = value.transpose(perm), g.op("Transpose", x, perm=perm, shape=value.transpose(perm).shape)
        else:
            shape = SHAPES[rng.integers(len(SHAPES))]
            value, x = value.reshape(shape), g.op("Reshape", x, g.ints(shape), shape=shape)
    g.op("Neg", x, shape=value.shape, output="y")
    before = sum(n.op == "Transpose" for n in g.nodes)
    arrange(g, ["y"])
    np.testing.assert_array_equal(run(write_model(g, ["y"], double=True), feeds)["y"], -value)
    assert sum(n.op == "Transpose" for n in select_needed(g, ["y"])) <= max(before, 1)


def test_a_transpose_and_its_inverse_are_nothing():
    v = view_whole("x", (BatchDim(), 32, 64))
    there = reshape_view(transpose_view(v, [1, 0, 2]), (32, BatchDim(4), 16))
    back = transpose_view(reshape_view(there, (32, BatchDim(), 64)), [1, 0, 2])
    assert back.flat == list(back.order)
    assert back.shape() == (BatchDim(), 32, 64)


def test_an_axis_that_cannot_be_cut_is_refused():
    v = transpose_view(view_whole("x", (4, 6)), [1, 0])
    assert reshape_view(v, (4, 6)) is None  # 6 = 4 x 1.5
    assert reshape_view(v, (3, 8)).shape() == (3, 8)


def test_values_to_keep_are_written_under_their_names():
    g = OnnxGraph()
    x = g.input("x", (2, 3))
    g.op("Transpose", x, perm=[1, 0], shape=(3, 2), output="turned")
    g.op("Transpose", "turned", perm=[1, 0], shape=(2, 3), output="y")
    arrange(g, {"turned", "y"})
    value = np.arange(6.0).reshape(2, 3)
    got = run(write_model(g, ["turned", "y"], double=True), {"x": value})
    np.testing.assert_array_equal(got["turned"], value.T)
    np.testing.assert_array_equal(got["y"], value)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 4, batch_first=True)

    def forward(self, x):
        return self.attention(x, x, x, need_weights=False)[0].mean(1)


def test_attention_needs_no_transpose_but_those_of_its_products():
    net = Attention().eval()
    slots = lay_out_parameters(net)
    forward = export_forward(net, slots, ["x"], [make_example(DataInput("x", (8, 16)))])
    g = Source(forward, {"theta": slots}).copy_graph()
    nodes = select_needed(g, ["logits"])
    moved = [n for n in nodes if n.op == "Transpose" and isinstance(g.shape(n.inputs[0])[0], BatchDim)]
    factors = {i for n in nodes if n.op == "MatMul" for i in n.inputs}
    assert all(n.attributes["perm"] == [0, 2, 1] and n.outputs[0] in factors for n in moved)
    assert not [n for n in g.nodes if n.op == "MatMul" and len(g.shape(n.inputs[1])) == 2]


def test_operators_with_long_attributes_are_equal_only_if_all_numbers_are():
    """numpy shows the ends of a long array alone."""
    g, (first, other) = OnnxGraph(), np.zeros((2, 3000), np.float32)
    other[1500] = 1
    one, same, another = (g.op("Constant", value=value) for value in (first, first.copy(), other))
    assert one == same != another
