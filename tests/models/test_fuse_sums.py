"""Sums along the last axes, as the end of a group of elementwise nodes."""

from __future__ import annotations

import numpy as np
import pytest

from edge_sdk.models.derive.targets import Target
from edge_sdk.models.ir.shapes import BatchDim
from edge_sdk.models.passes.native.fuse import fuse_elementwise
from tests.models.fused import check, list_lines, list_operators
from tests.models.test_fuse import graph

B = BatchDim()


@pytest.mark.parametrize("kind", ["ReduceSum", "ReduceMean"])
@pytest.mark.parametrize("keep", [0, 1])
@pytest.mark.parametrize("axes", [[3], [2, 3], [-1, -2], [1, 2, 3]])
def test_a_sum_is_the_end_of_a_group(kind, keep, axes):
    g = graph(x=(B, 2, 3, 4))
    first = 4 - len(axes)
    shape = (*(B, 2, 3)[:first], *(1 for _ in axes if keep))
    g.op(kind, g.unary("Exp", "x"), g.ints(axes), keepdims=keep, shape=shape, output="y")
    (group,) = check(g, ["y"], 1)
    assert group.attributes["program"].split("\n")[-2].endswith(f" {len(axes)}") and len(group.outputs) == 1


def test_the_batch_may_be_part_of_a_sum_but_not_of_a_mean():
    for kind, groups in (("ReduceSum", 1), ("ReduceMean", 0)):
        g = graph(x=(B, 3))
        g.op(kind, g.unary("Exp", "x"), g.ints([0, 1]), keepdims=0, shape=(), output="y")
        assert (fuse_elementwise(Target(g, ["y"])) is not None) == bool(groups)
        if groups:
            check(g, ["y"], groups)


@pytest.mark.parametrize("axes", [[0], [1], [0, 2]])
def test_sums_along_other_axes_are_left_alone(axes):
    g = graph(x=(B, 2, 3))
    shape = tuple(d for i, d in enumerate((B, 2, 3)) if i not in axes)
    g.op("ReduceSum", g.unary("Exp", "x"), g.ints(axes), keepdims=0, shape=shape, output="y")
    assert fuse_elementwise(Target(g, ["y"])) is None


def test_what_reads_a_sum_is_another_group():
    """The adjoint of a softmax: s (g - sum(g s))."""
    g = graph(s=(B, 4, 5), g=(B, 4, 5))
    product = g.mul("s", "g")
    summed = g.op("ReduceSum", product, g.ints([2]), keepdims=1, shape=(B, 4, 1))
    g.op("Sub", product, g.mul("s", summed), shape=(B, 4, 5), output="y")
    first, second = check(g, ["y"], 2)
    assert list_lines(first) == ["Inputs", "Mul", "Sum", "Return"] and list_lines(second)[1:3] == ["Mul", "Sub"]


def test_a_group_with_a_sum_goes_across_a_reshape():
    g = graph(x=(B, 4, 6), row=(6,))
    flat = g.reshape(g.mul("x", "row"), (BatchDim(4), 6))
    g.op("ReduceSum", g.unary("Exp", flat), g.ints([1]), keepdims=0, shape=(BatchDim(4),), output="a")
    halves = g.reshape(flat, (BatchDim(8), 3))
    g.op("ReduceMean", halves, g.ints([1]), keepdims=1, shape=(BatchDim(8), 1), output="b")
    check(g, ["a", "b"], 1)


def test_equal_sums_are_returned_one_by_one():
    g = graph(x=(B, 4))
    e = g.unary("Exp", "x")
    for name in "ab":
        g.op("ReduceSum", e, g.ints([1]), keepdims=0, shape=(B,), output=name)
    (group,) = check(g, ["a", "b"], 1)
    assert list_lines(group).count("Sum") == 2 and len({*group.attributes["program"].split("Return ")[1].split()}) == 2


def test_a_product_with_one_vector_is_a_sum_in_a_group_and_else_itself():
    g = graph(x=(B, 4, 6), w=(6, 1))
    g.op("MatMul", g.unary("Exp", "x"), "w", shape=(B, 4, 1), output="y")
    (group,) = check(g, ["y"], 1)
    assert list_lines(group) == ["Inputs", "Exp", "Mul", "Sum", "Return"]
    g = graph(x=(B, 4, 6), z=(B, 4, 6), w=(6, 1))
    g.op("MatMul", "x", "w", shape=(B, 4, 1), output="y")
    g.op("Neg", g.unary("Exp", "z"), shape=(B, 4, 6), output="e")
    check(g, ["y", "e"], 1)
    assert "MatMul" in list_operators(fuse_elementwise(Target(g, ["y", "e"])))


def test_a_product_with_ones_needs_no_product():
    g = graph(x=(B, 6))
    ones = g.constant(np.ones((6, 1)))
    g.op("MatMul", g.unary("Exp", "x"), ones, shape=(B, 1), output="y")
    (group,) = check(g, ["y"], 1)
    assert list_lines(group) == ["Inputs", "Exp", "Sum", "Return"]
