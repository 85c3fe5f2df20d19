"""Groups of elementwise nodes: which nodes become one, and that values stay the same."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from edge_sdk.models.derive.targets import Target
from edge_sdk.models.ir.evaluation.reference import run
from edge_sdk.models.ir.graph import OnnxGraph
from edge_sdk.models.ir.nodes import OnnxNode, ScanBody
from edge_sdk.models.ir.shapes import BatchDim
from edge_sdk.models.passes.native.fuse import fuse_elementwise
from tests.models.fused import check, compare, draw, fuse, list_groups, list_lines, list_operators

B = BatchDim()


def graph(**inputs):
    g = OnnxGraph()
    for name, shape in inputs.items():
        g.input(name, shape)
    return g


@pytest.mark.parametrize(
    "small", [(), (1,), (5,), (4, 1), (1, 4, 1), (4, 5), (B, 1, 1), (B, 4, 1), (B, 1, 5), (1, 1, 1), (1, 1, 5)]
)
@pytest.mark.parametrize("constant", [True, False])
def test_smaller_operands_are_repeated(small, constant):
    g = graph(x=(B, 4, 5))
    if constant and B not in small:
        s = g.constant(np.random.default_rng(1).standard_normal(small).round(2))
    else:
        s = g.input("s", small)
    g.op("Exp", g.mul(g.add("x", s), s), shape=(B, 4, 5), output="y")
    (group,) = check(g, ["y"], 1)
    assert len(group.inputs) == 2 - (s in g.constants and g.constants[s].size == 1)


def test_a_chain_is_one_node_with_its_constants_in_the_program():
    g = graph(x=(B, 6))
    h = g.unary("Tanh", g.mul("x", g.scalar(0.1)))
    g.op("Add", g.mul(h, "x"), g.scalar(2), shape=(B, 6), output="y")
    (group,) = check(g, ["y"], 1)
    assert (group.domain, group.inputs, group.outputs) == ("auscult", ["x"], ["y"])
    tenth = float(np.float32(0.1)).hex()
    assert group.attributes["program"] == (
        f"Inputs 1\nConstant {tenth}\nMul 0 1\nTanh 2\nMul 3 0\nConstant 0x1.0000000000000p+1\nAdd 4 5\nReturn 6"
    )


def test_a_group_returns_what_is_read_outside_or_by_the_caller():
    g = graph(x=(B, 4, 4))
    a = g.unary("Exp", "x")
    b = g.mul(a, a)
    g.op("Identity", g.matmul(b, b), shape=(B, 4, 4), output="product")
    g.op("Sub", b, "x", shape=(B, 4, 4), output="rest")
    (group,) = check(g, ["product", "rest"], 1)
    assert len(group.outputs) == 2 and "rest" in group.outputs and a not in group.outputs


def test_what_the_graph_returns_may_be_in_the_middle():
    g = graph(x=(B, 4))
    g.op("Exp", "x", shape=(B, 4), output="middle")
    g.op("Neg", "middle", shape=(B, 4), output="y")
    (group,) = check(g, ["middle", "y"], 1)
    assert group.outputs == ["middle", "y"]


def test_no_group_has_something_else_in_its_middle():
    """a -> MatMul -> b, and c = a b: of the two b joins c, for a must run before the product."""
    g = graph(x=(B, 4, 4))
    a = g.unary("Exp", "x")
    b = g.unary("Tanh", g.matmul(a, a))
    g.op("Mul", a, b, shape=(B, 4, 4), output="c")
    (group,) = check(g, ["c"], 1)
    assert list_lines(group) == ["Inputs", "Tanh", "Mul", "Return"] and a in group.inputs


def test_two_groups_that_need_each_other_stay_two():
    """p -> MatMul -> u, v -> MatMul -> q: p with v's kind is legal one way only."""
    g = graph(x=(B, 4, 4), z=(B, 4, 4))
    p, v = g.unary("Exp", "x"), g.unary("Tanh", "z")
    u, q = g.add(g.matmul(p, p), v), g.add(g.matmul(v, v), p)
    g.op("Identity", g.matmul(u, q), shape=(B, 4, 4), output="y")
    target, fused = fuse(g, "y")
    compare(target, fused)
    assert 1 <= len(list_groups(fused)) <= 2


def test_a_diamond_is_one_node():
    g = graph(x=(B, 7))
    a = g.unary("Abs", "x")
    left, right = g.unary("Sqrt", a), g.unary("Neg", a)
    g.op("Add", left, right, shape=(B, 7), output="y")
    check(g, ["y"], 1)


def test_equal_lines_are_written_once():
    g = graph(x=(B, 7))
    for name in "ab":
        g.op("Exp", "x", shape=(B, 7), output=name)
    g.op("Mul", "a", "b", shape=(B, 7), output="y")
    (group,) = check(g, ["y"], 1)
    assert list_lines(group).count("Exp") == 1


def test_nodes_that_read_one_large_value_become_one():
    g = graph(x=(B, 7))
    g.op("Exp", "x", shape=(B, 7), output="a")
    g.op("Neg", "x", shape=(B, 7), output="b")
    check(g, ["a", "b"], 1)


def test_a_shared_small_operand_joins_nothing():
    g = graph(x=(B, 7), z=(B, 7), row=(7,))
    g.op("Mul", "x", "row", shape=(B, 7), output="a")
    g.op("Mul", "z", "row", shape=(B, 7), output="b")
    assert fuse_elementwise(Target(g, ["a", "b"])) is None


def test_distant_nodes_are_not_joined_where_values_would_live_longer():
    g = graph(x=(B, 4, 4), z=(B, 4, 4))
    early = g.add(g.unary("Exp", g.matmul("x", "x")), g.matmul("z", "z"))
    late = "x"
    for _ in range(70):
        late = g.matmul(late, late)
    g.op("Add", early, late, shape=(B, 4, 4), output="y")
    (group,) = check(g, ["y"], 1)
    assert group.outputs == [early]


def test_a_group_does_not_wait_for_any_number_of_values():
    g = graph(**{f"x{i}": (B, 4) for i in range(30)})
    total = "x0"
    for i in range(1, 30):
        total = g.add(total, f"x{i}")
    g.op("Neg", total, shape=(B, 4), output="y")
    groups = check(g, ["y"], 3)
    assert max(len(n.inputs) for n in groups) <= 12


# -- truth values ----------------------------------------------------------------------------------------------------


def test_comparisons_are_copied_into_every_group_that_uses_them():
    g = graph(x=(B, 4, 4), z=(B, 4, 4))
    above = g.binary("Greater", "x", g.scalar(0))
    a = g.select(above, "x", g.scalar(0.25))
    g.op("Mul", g.matmul(a, a), g.as_float(above), shape=(B, 4, 4), output="y")
    groups = check(g, ["y"], 2)
    assert [list_lines(n).count("Greater") for n in groups] == [1, 1]


def test_logic_of_comparisons_is_part_of_a_group():
    g = graph(x=(B, 6), z=(B, 1))
    inside = g.op("And", g.binary("Less", "x", g.scalar(1)), g.binary("GreaterOrEqual", "x", "z"), shape=(B, 6))
    outside = g.op("Or", g.op("Not", inside, shape=(B, 6)), g.binary("Equal", "x", "z"), shape=(B, 6))
    g.op("Where", outside, g.scalar(3), "x", shape=(B, 6), output="y")
    (group,) = check(g, ["y"], 1)
    assert group.inputs == ["x", "z"]


def test_a_comparison_that_is_used_elsewhere_stays_as_well():
    g = graph(x=(B, 6))
    above = g.binary("Greater", "x", g.scalar(0))
    g.op("Identity", above, shape=(B, 6), output="truth")
    g.dtypes["truth"] = "bool"
    g.op("Mul", g.as_float(above), "x", shape=(B, 6), output="y")
    target, fused = fuse(g, "truth", "y")
    compare(target, fused)
    assert list_operators(fused).count("Greater") == 1 and len(list_groups(fused)) == 1


def test_constants_of_truth_values_are_ones_and_zeros():
    g = graph(x=(B, 3, 3))
    mask = g.constant(np.tril(np.ones((3, 3), bool)))
    shut = g.constant(np.array(False))
    seen = g.op("Or", mask, shut, shape=(3, 3))
    g.op("Exp", g.op("Where", seen, "x", g.scalar(-9), shape=(B, 3, 3)), shape=(B, 3, 3), output="y")
    check(g, ["y"], 1)


def test_truth_values_from_outside_are_left_alone():
    g = graph(x=(B, 3))
    g.input("mask", (B, 3), "bool")
    chosen = g.select("mask", "x", g.scalar(0))
    g.op("Exp", chosen, shape=(B, 3), output="y")
    assert fuse_elementwise(Target(g, ["y"])) is None


# -- what is never part of a group -----------------------------------------------------------------------------------


def test_whole_numbers_are_left_alone():
    g = graph(x=(B, 6))
    g.input("y", (B,), "int64")
    place = g.op("Add", g.op("Mul", "y", g.constant(np.int64(3)), shape=(B,)), g.constant(np.int64(1)), shape=(B,))
    hit = g.op("Equal", place, g.constant(np.int64(4)), shape=(B,))
    number = g.op("Cast", g.op("Shape", "x", shape=(2,)), to="float", shape=(2,))
    g.op("Neg", g.op("Cast", hit, to="float", shape=(B,)), shape=(B,), output="a")
    g.op("Sub", number, g.op("ReduceSum", "x", shape=()), shape=(2,), output="b")
    assert fuse_elementwise(Target(g, ["a", "b"])) is None


def test_an_unknown_type_is_not_fused():
    g = graph(x=(B, 6))
    strange = g.op("SomeOperator", "x", domain="elsewhere", shape=(B, 6))
    g.op("Neg", g.unary("Abs", strange), shape=(B, 6), output="y")
    assert fuse_elementwise(Target(g, ["y"])) is None


def test_values_of_two_batch_axes_are_left_alone():
    g = graph(x=(B, 4))
    square = g.op("MatMul", "x", g.op("Transpose", "x", perm=[1, 0], shape=(4, B)), shape=(B, B))
    g.op("Exp", g.op("Neg", square, shape=(B, B)), shape=(B, B), output="y")
    assert fuse_elementwise(Target(g, ["y"])) is None


def test_a_node_that_gets_its_shape_from_a_constant_of_one_number_is_not_fused():
    """Its constant would be in the program, and the operator could not know of the further axes."""
    g = graph(x=(4,))
    a = g.op("Add", "x", g.constant(np.ones((1, 1))), shape=(1, 4))
    g.op("Neg", a, shape=(1, 4), output="y")
    assert fuse_elementwise(Target(g, ["y"])) is None


def test_bodies_of_loops_stay_as_they_are():
    inner = [OnnxNode("Exp", ["i"], ["j"]), OnnxNode("Mul", ["j", "outer"], ["k"]), OnnxNode("Neg", ["k"], ["o"])]
    body = ScanBody(tuple(inner), (("s", (B, 4)), ("i", (B, 4))), (("t", (B, 4)), ("o", (B, 4))))
    body = ScanBody((*inner, OnnxNode("Add", ["s", "o"], ["t"])), body.inputs, body.outputs)
    g = graph(x=(3, B, 4), start=(B, 4))
    g.op("Identity", g.unary("Neg", g.unary("Abs", "start")), shape=(B, 4), output="outer")
    out = g.ops("Scan", "start", "x", shapes=[(B, 4), (3, B, 4)], outputs=["last", "all"], body=body, num_scan_inputs=1)
    target, fused = fuse(g, *out)
    compare(target, fused)
    (loop,) = [n for n in fused.graph.nodes if n.op == "Scan"]
    assert [n.op for n in loop.attributes["body"].nodes] == ["Exp", "Mul", "Neg", "Add"]
    assert len(list_groups(fused)) == 1


@pytest.mark.parametrize("op", ["Relu", "Sigmoid", "Tanh", "HardSigmoid"])
@pytest.mark.parametrize("other_reader", [True, False])
def test_an_activation_stays_with_its_convolution(op, other_reader):
    g = graph(x=(B, 3, 5, 5), w=(4, 3, 1, 1))
    y = g.op("Conv", "x", "w", shape=(B, 4, 5, 5))
    a = g.unary(op, y)
    g.op("Mul", a, g.unary("Neg", y) if other_reader else g.scalar(2), shape=(B, 4, 5, 5), output="z")
    if other_reader:
        check(g, ["z"], 1)
    else:
        assert fuse_elementwise(Target(g, ["z"])) is None


def test_a_single_node_is_no_group():
    g = graph(x=(B, 3, 3))
    e = g.unary("Exp", "x")
    g.op("MatMul", e, e, shape=(B, 3, 3), output="y")
    assert fuse_elementwise(Target(g, ["y"])) is None


# -- files -----------------------------------------------------------------------------------------------------------


def test_the_file_names_the_domain_and_the_plain_graph_is_not_changed():
    g = graph(x=(B, 6))
    g.op("Neg", g.unary("Exp", "x"), shape=(B, 6), output="y")
    target = Target(g, ["y"])
    before = target.model().SerializeToString()
    fused = fuse_elementwise(target)
    assert target.model().SerializeToString() == before
    model = fused.model()
    assert {o.domain: o.version for o in model.opset_import} == {"": 18, "auscult": 1}
    onnx.checker.check_model(model)


@pytest.mark.parametrize(
    ("program", "word"),
    [
        ("Inputs 1\nCosine 0\nReturn 1", "Cosine"),
        ("Inputs 1\nNeg 0", "Return"),
        ("Inputs 2\nNeg 0\nReturn 1", "Inputs"),
    ],
)
def test_what_is_no_program_is_refused(program, word):
    g = graph(x=(B, 6))
    g.nodes.append(OnnxNode("Elementwise", ["x"], ["y"], {"program": program}, "auscult"))
    g.shapes["y"] = (B, 6)
    with pytest.raises(ValueError, match=word):
        run(Target(g, ["y"]).model(), draw(g))


def test_numbers_that_are_none_are_constants():
    g = graph(x=(B, 6))
    high = g.op("Min", "x", g.scalar(np.inf), shape=(B, 6))
    g.op("Add", g.op("Max", high, g.scalar(-np.inf), shape=(B, 6)), g.scalar(np.nan), shape=(B, 6), output="y")
    (group,) = check(g, ["y"], 1)
    constants = [line.split()[1] for line in group.attributes["program"].split("\n") if line.startswith("Constant")]
    assert constants == ["inf", "-inf", "nan"]
