"""Gradient rules of foreign networks' operators against central differences in float64."""

import numpy as np
import pytest

from tests.models.rule_check import check, make_node

X = {"x": ("B", 3, 4)}


ELEMENTWISE = [
    ("Selu", {}),
    ("Celu", {"alpha": 0.75}),
    ("Tan", {}),
    ("Atan", {}),
    ("Sinh", {}),
    ("Cosh", {}),
    ("Asinh", {}),
]


@pytest.mark.parametrize(("op", "attributes"), ELEMENTWISE)
def test_elementwise(op, attributes):
    check([make_node(op, ["x"], **attributes)], X, draw=lambda rng, shape: rng.uniform(-1.2, 1.2, shape))


@pytest.mark.parametrize(("op", "low"), [("Asin", -0.9), ("Acos", -0.9), ("Atanh", -0.9), ("Acosh", 1.1)])
def test_inverse_functions(op, low):
    check([make_node(op, ["x"])], X, draw=lambda rng, shape: rng.uniform(low, low + 1.8, shape))


def test_remainders():
    check(
        [make_node("Mod", ["x", "c"], fmod=1)],
        X,
        {"c": np.array(0.7)},
        draw=lambda rng, shape: rng.uniform(0.1, 0.6, shape),
    )


@pytest.mark.parametrize("reduction", ["none", "add"])
def test_scatter_nd(reduction):
    index = np.array([[0, 1], [2, 3], [1, 1]], np.int64)
    nodes = [make_node("ScatterND", ["t", "index", "u"], ["r"], reduction=reduction), make_node("Mul", ["r", "x"])]
    check(nodes, {"t": (3, 4), "u": (3,), "x": ("B", 3, 4)}, {"index": index})


@pytest.mark.parametrize("keep", [0, 1])
@pytest.mark.parametrize("op", ["ReduceL1", "ReduceLogSumExp", "ReduceProd"])
def test_reductions(op, keep):
    check([make_node(op, ["x", "axes"], keepdims=keep)], X, {"axes": np.array([1, 2], np.int64)})


@pytest.mark.parametrize("attributes", [{}, {"reverse": 1}, {"exclusive": 1}])
def test_cumulative_sums(attributes):
    check([make_node("CumSum", ["x", "axis"], **attributes)], X, {"axis": np.array(2, np.int64)})


@pytest.mark.parametrize("largest", [0, 1])
def test_top_k(largest):
    check([make_node("TopK", ["x", "k"], ["y", "i"], axis=2, largest=largest)], X, {"k": np.array([3], np.int64)})


def test_gather_nd():
    index = np.array([[0, 1], [2, 3], [0, 1]], np.int64)
    nodes = [make_node("GatherND", ["t", "index"], ["r"]), make_node("Mul", ["r", "x"])]
    check(nodes, {"t": (3, 4), "x": ("B", 3)}, {"index": index})


def test_gather_elements():
    index = np.array([[0, 1, 1, 2], [2, 2, 0, 0]], np.int64)
    nodes = [make_node("GatherElements", ["t", "index"], ["r"], axis=0), make_node("Mul", ["r", "x"])]
    check(nodes, {"t": (3, 4), "x": ("B", 2, 4)}, {"index": index})


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_depth_to_space(mode):
    check([make_node("DepthToSpace", ["x"], blocksize=2, mode=mode)], {"x": ("B", 8, 2, 3)})


@pytest.mark.parametrize(("upper", "k"), [(0, 0), (1, 1), (0, -1)])
def test_triangles(upper, k):
    check([make_node("Trilu", ["x", "k"], upper=upper)], X, {"k": np.array(k, np.int64)})


@pytest.mark.parametrize("reduction", ["none", "add"])
def test_scatter_elements(reduction):
    index = np.array([[0, 1, 2, 0], [2, 0, 1, 1]], np.int64)  # no place twice, for what would lie there is open
    nodes = [
        make_node("ScatterElements", ["t", "index", "u"], ["r"], axis=0, reduction=reduction),
        make_node("Mul", ["r", "x"]),
    ]
    check(nodes, {"t": (3, 4), "u": (2, 4), "x": ("B", 3, 4)}, {"index": index})
