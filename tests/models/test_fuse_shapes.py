"""Groups of elementwise nodes across Reshapes, expansions and batch normalisations."""

from __future__ import annotations

import numpy as np
import pytest

from edge_sdk.models.derive.targets import Target
from edge_sdk.models.ir.graph import OnnxGraph
from edge_sdk.models.ir.shapes import BatchDim
from edge_sdk.models.passes.native.elementwise_shapes import count_numbers, refine, spread
from edge_sdk.models.passes.native.fuse import fuse_elementwise
from tests.models.fused import check, compare, draw, fuse, list_lines
from tests.models.test_fuse import graph

B = BatchDim()


def many(n):
    return BatchDim(n)


@pytest.mark.parametrize(
    ("a", "b", "wanted"),
    [
        ((many(4), 512), (B, 4, 512), (B, 4, 512)),
        ((B, 12), (many(3), 4), (B, 3, 4)),
        ((B, 2, 6), (B, 4, 3), (B, 2, 2, 3)),
        ((4, 6), (8, 3), (4, 2, 3)),
        ((4, 6), (3, 8), None),
        ((1, many(4), 5), (many(4), 5), (many(4), 5)),
        ((4, B, 5), (B, 4, 5), None),
        ((), (1, 1), ()),
        ((many(6),), (B, 2, 3), (B, 2, 3)),
    ],
)
def test_two_shapes_have_common_pieces(a, b, wanted):
    assert refine(a, b) == refine(b, a) == wanted


@pytest.mark.parametrize(
    ("seen", "shape", "target", "wanted"),
    [
        ((512,), (many(4), 512), (B, 4, 512), (1, 1, 512)),
        ((many(4), 1), (many(4), 512), (B, 4, 512), (B, 4, 1)),
        ((B, 1, 1), (B, 4, 512), (many(4), 512), None),
        ((4, 1), (B, 4, 512), (many(4), 512), None),
        ((B, 1, 1), (B, 4, 512), (B, 2048), (B, 1)),
        ((B, 4, 512), (B, 4, 512), (many(2048),), (many(2048),)),
        ((1,), (many(4), 512), (1, many(4), 512), (1, 1, 1)),
        ((5, 1), (B, 5, 1), (many(5),), None),
    ],
)
def test_a_repeated_value_has_a_shape_in_another_whole(seen, shape, target, wanted):
    assert spread(seen, shape, target) == wanted


def test_spread_values_are_repeated_as_before():
    """Of all ways to repeat a value: what is repeated, then reshaped is what is reshaped, then repeated."""
    rng, shapes = (
        np.random.default_rng(0),
        [(6, 4, 5), (24, 5), (6, 20), (2, 3, 4, 5), (120,), (6, 2, 2, 5), (1, 24, 5)],
    )
    compared = 0
    for shape in shapes:
        for target in shapes:
            for bits in range(1 << len(shape)):
                seen = tuple(d if bits >> i & 1 else 1 for i, d in enumerate(shape))
                found = spread(seen, shape, target)
                if found is not None:
                    x = rng.standard_normal(seen)
                    wanted = np.broadcast_to(x, shape).reshape(target)
                    np.testing.assert_array_equal(np.broadcast_to(x.reshape(found), target), wanted)
                    compared += 1
    assert compared > 100


def test_shapes_that_cannot_be_counted():
    assert count_numbers((B, 3, 2)) == many(6)
    assert count_numbers((B, B)) is None and count_numbers((0, 3)) is None


def test_a_group_goes_across_a_reshape():
    g = graph(x=(B, 4, 6), z=(many(4), 6), row=(6,), column=(many(4), 1), w=(6, 2))
    flat = g.reshape(g.unary("Exp", "x"), (many(4), 6))
    y = g.mul(g.add(g.mul(flat, "row"), "z"), "column")
    g.op("MatMul", y, "w", shape=(many(4), 2), output="y")
    (group,) = check(g, ["y"], 1)
    assert group.outputs == [y] and {*group.inputs} >= {"z", "row", "column"}


def test_a_group_runs_in_common_pieces_where_no_shape_of_its_own_fits():
    """Rows of (4 B, 6) and (B, 4, 6) are of different axes: one is for each of the four, one for each sample."""
    g = graph(x=(B, 24), each=(many(4), 1), sample=(B, 1), entry=(24,))
    a = g.reshape(g.mul(g.mul("x", "sample"), "entry"), (many(4), 6))
    g.op("Mul", a, "each", shape=(many(4), 6), output="y")
    check(g, ["y"], 1)


def test_shapes_without_common_pieces_stay_apart():
    g = graph(x=(4, 6), column=(3, 1))
    a = g.reshape(g.unary("Exp", g.unary("Neg", "x")), (3, 8))
    g.op("Mul", g.unary("Tanh", a), "column", shape=(3, 8), output="y")
    check(g, ["y"], 2)


def test_one_value_in_two_places_of_a_group():
    """A vector beside rows, and beside columns of another shape of as many numbers."""
    g = graph(x=(B, 2, 2), v=(2,))
    a = g.reshape(g.mul("x", "v"), (many(2), 2, 1))
    g.op("Mul", a, g.reshape("v", (2, 1)), shape=(many(2), 2, 1), output="y")
    b = g.reshape(g.mul(g.unary("Neg", "x"), "v"), (B, 2, 2))
    g.op("Mul", b, g.reshape("v", (2, 1)), shape=(B, 2, 2), output="z")
    check(g, ["y", "z"], 1)


def test_results_keep_their_shapes():
    g = graph(x=(B, 4, 6))
    a = g.op("Exp", "x", shape=(B, 4, 6), output="a")
    b = g.op("Reshape", a, g.ints([-1, 6]), shape=(many(4), 6), output="b")
    c = g.op("Neg", b, shape=(many(4), 6), output="c")
    g.op("Reshape", c, g.ints([-1, 24]), shape=(B, 24), output="d")
    check(g, ["a", "b", "c", "d"], 1)


def test_a_constant_array_is_reshaped_when_the_graph_is_written():
    g = graph(x=(B, 4, 6))
    a = g.reshape(g.mul("x", g.constant(np.arange(24.0).reshape(4, 6))), (many(24),))
    g.op("Neg", a, shape=(many(24),), output="y")
    mask = g.constant(np.arange(4)[:, None] > 1)
    g.op("Where", mask, "x", g.scalar(0), shape=(B, 4, 6), output="z")
    check(g, ["y", "z"], 1)


def test_reshapes_of_whole_numbers_are_left_alone():
    g = OnnxGraph()
    g.input("y", (B, 2), "int64")
    flat = g.reshape(g.op("Add", "y", "y", shape=(B, 2)), (many(2),))
    g.op("Cast", g.op("Add", flat, flat, shape=(many(2),)), to="float", shape=(many(2),), output="z")
    assert fuse_elementwise(Target(g, ["z"])) is None


def test_an_expansion_is_left_out():
    g = graph(x=(B, 4), y=(B, 3, 4))
    wide = g.op("Expand", g.reshape("x", (B, 1, 4)), g.op("Shape", "y", shape=(3,)), shape=(B, 3, 4))
    g.op("Exp", g.mul("y", wide), shape=(B, 3, 4), output="z")
    target, (group,) = Target(g, ["z"]), check(g, ["z"], 1)
    assert len(group.inputs) == 2
    assert "Expand" not in [n.op for n in fuse_elementwise(target).graph.nodes]


def test_an_expansion_that_gives_a_group_its_shape_stays():
    g = graph(x=(B, 1, 4), y=(B, 3, 4))
    wide = g.op("Expand", "x", g.op("Shape", "y", shape=(3,)), shape=(B, 3, 4))
    g.op("Neg", g.unary("Exp", wide), shape=(B, 3, 4), output="z")
    (group,) = check(g, ["z"], 1)
    assert group.inputs == [wide]


# -- batch normalisation ---------------------------------------------------------------------------------------------


def norm(g, x, values, shape, epsilon=1e-5):
    return g.op("BatchNormalization", x, *values, epsilon=epsilon, shape=shape)


@pytest.mark.parametrize("shape", [(B, 4), (B, 4, 5), (B, 4, 2, 3)])
def test_a_norm_is_part_of_a_group(shape):
    g = graph(x=shape, scale=(4,), shift=(4,), mean=(4,), deviation=(4,))
    variance = g.mul("deviation", "deviation")
    y = norm(g, "x", ("scale", "shift", "mean", variance), shape, 0.5)
    g.op("Relu", y, shape=shape, output="y")
    groups = check(g, ["y"], 2)
    assert list_lines(groups[1]) == ["Inputs", "Sub", "Mul", "Add", "Relu", "Return"]


def test_a_norm_does_nothing_that_changes_nothing():
    g = graph(x=(B, 4, 5), mean=(4,), scale=(4,))
    one, zero = g.constant(np.ones(4)), g.constant(np.zeros(4))
    d = norm(g, "x", (one, zero, "mean", one), (B, 4, 5), 0.0)
    filled = g.op("ConstantOfShape", g.ints([4]), value=np.full(1, 1.0), shape=(4,))
    e = norm(g, d, ("scale", zero, zero, filled), (B, 4, 5), 0.0)
    same = norm(g, e, (one, zero, zero, one), (B, 4, 5), 0.0)
    g.op("Tanh", same, shape=(B, 4, 5), output="y")
    (group,) = check(g, ["y"], 1)
    assert list_lines(group)[:3] == ["Inputs", "Sub", "Mul"] and len(group.inputs) <= 4


def test_a_norm_alone_stays_one_node():
    g = graph(x=(B, 4, 5), scale=(4,), shift=(4,), mean=(4,), variance=(4,), w=(5, 5))
    y = norm(g, g.matmul("x", "w"), ("scale", "shift", "mean", g.mul("variance", "variance")), (B, 4, 5))
    g.op("MatMul", y, "w", shape=(B, 4, 5), output="y")
    g.op("Neg", g.unary("Exp", "x"), shape=(B, 4, 5), output="z")
    target = Target(g, ["y", "z"])
    assert [n.op for n in fuse_elementwise(target).graph.nodes].count("BatchNormalization") == 1
    check(g, ["y", "z"], 1)


def test_every_batch_size():
    g = graph(x=(B, 4, 6), column=(many(4), 1), sample=(B, 1, 1))
    a = g.reshape(g.mul("x", "sample"), (many(4), 6))
    g.op("Exp", g.mul(a, "column"), shape=(many(4), 6), output="y")
    target, fused = fuse(g, "y")
    for batch in (1, 2, 5):
        compare(target, fused, draw(g, batch))
