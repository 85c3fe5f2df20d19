"""Every gradient rule against central differences in float64: the definition of a derivative."""

from pathlib import Path

import numpy as np
import pytest

from edge_sdk.models.ir.marks import MARKS
from edge_sdk.models.rules import RULES
from tests.models.rule_check import check, make_node

INTS = np.int64
BATCHES = pytest.mark.parametrize("batch", [1, 3])


def away_from_corners(rng, shape):
    """Numbers whose distance from 0, 1, 3 and their negatives is more than a finite-difference step."""
    v = rng.uniform(-4, 4, shape)
    return np.where(np.abs(v - np.round(v)) < 0.01, v + 0.1, v)


def positive(rng, shape):
    return rng.uniform(0.5, 2, shape)


UNARY = [
    "Neg",
    "Identity",
    "Tanh",
    "Sigmoid",
    "Exp",
    "Erf",
    "Softplus",
    "Sin",
    "Cos",
    "Abs",
    "Relu",
    "HardSwish",
    "Mish",
]
UNARY_POSITIVE = ["Log", "Sqrt", "Reciprocal"]
WITH_ATTRIBUTES = [
    ("LeakyRelu", {"alpha": 0.1}),
    ("Elu", {"alpha": 1.3}),
    ("HardSigmoid", {"alpha": 0.25, "beta": 0.4}),
    ("Cast", {"to": 1}),
]


@BATCHES
@pytest.mark.parametrize("op", UNARY)
def test_unary(op, batch):
    check([make_node(op, ["x"])], {"x": ("B", 3, 2)}, batch=batch, draw=away_from_corners)


@pytest.mark.parametrize("op", UNARY_POSITIVE)
def test_unary_on_positive_numbers(op):
    check([make_node(op, ["x"])], {"x": ("B", 5)}, draw=positive)


@pytest.mark.parametrize(("op", "attributes"), WITH_ATTRIBUTES)
def test_unary_with_attributes(op, attributes):
    check([make_node(op, ["x"], **attributes)], {"x": ("B", 6)}, draw=away_from_corners)


def test_gelu():
    x = {"x": ("B", 6)}
    half, root = np.array(0.5), np.array(np.sqrt(0.5))
    nodes = [
        make_node("Mul", ["x", "root"], ["a"]),
        make_node("Erf", ["a"], ["b"]),
        make_node("Add", ["b", "one"], ["c"]),
        make_node("Mul", ["x", "c"], ["d"]),
        make_node("Mul", ["d", "half"]),
    ]
    check(nodes, x, {"half": half, "root": root, "one": np.array(1.0)})


SHAPES = [
    (("B", 4), ("B", 4)),
    (("B", 4), (4,)),
    (("B", 4), ()),
    (("B", 3, 4), (3, 1)),
    (("B", 3, 4), (1, 1, 1)),
    (("B", 1, 4), (3, 1)),
]


@BATCHES
@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div"])
@pytest.mark.parametrize(("a", "b"), SHAPES)
def test_arithmetic_with_broadcasting(op, a, b, batch):
    check([make_node(op, ["a", "b"])], {"a": a, "b": b}, batch=batch, draw=positive)
    check([make_node(op, ["b", "a"])], {"a": a, "b": b}, batch=batch, draw=positive)


@pytest.mark.parametrize("op", ["Min", "Max"])
def test_extremum_of_two(op):
    check([make_node(op, ["a", "b"])], {"a": ("B", 4), "b": (4,)})


@pytest.mark.parametrize("exponent", [2.0, 3.0, 0.5, -1.0, 1.5])
def test_pow(exponent):
    check([make_node("Pow", ["x", "p"])], {"x": ("B", 4)}, {"p": np.array(exponent)}, draw=positive)


def test_where():
    nodes = [make_node("Greater", ["a", "zero"], ["c"]), make_node("Where", ["c", "a", "b"])]
    check(nodes, {"a": ("B", 4), "b": (4,)}, {"zero": np.array(0.0)})


@pytest.mark.parametrize("slope", [(3, 1), (1,), (3, 5)])
def test_prelu(slope):
    check([make_node("PRelu", ["x", "s"])], {"x": ("B", 3, 5), "s": slope})


def test_clip():
    bounds = {"lo": np.array(-1.0), "hi": np.array(1.0)}
    check([make_node("Clip", ["x", "lo", "hi"])], {"x": ("B", 9)}, bounds, draw=away_from_corners)


# -- moving elements -------------------------------------------------------------------------------------------------


@BATCHES
@pytest.mark.parametrize(
    ("op", "constants", "attributes"),
    [
        ("Reshape", [np.array([-1, 12], INTS)], {}),
        ("Reshape", [np.array([0, 2, 6], INTS)], {}),
        ("Flatten", [], {"axis": 1}),
        ("Unsqueeze", [np.array([1], INTS)], {}),
        ("Transpose", [], {"perm": [0, 2, 1]}),
        ("Slice", [np.array([v], INTS) for v in (1, 3, 2)], {}),
        ("Slice", [np.array([v], INTS) for v in (0, 9, 2, 2)], {}),
        ("Slice", [np.array([v], INTS) for v in (1, 4, 2, 2)], {}),
        ("Slice", [np.array([v], INTS) for v in (-1, -9, 2, -1)], {}),
        ("Slice", [np.array(v, INTS) for v in ([0, 1], [2, 4], [1, 2], [1, 1])], {}),
        ("Pad", [np.array([0, 1, 0, 0, 0, 2], INTS)], {}),
        ("Pad", [np.array([0, 0, -1, 0, 0, 1], INTS)], {}),
        ("Pad", [np.array([0, 0, 2, 0, 0, 1], INTS)], {"mode": "reflect"}),
        ("Pad", [np.array([0, 0, 2, 0, 0, 1], INTS)], {"mode": "edge"}),
        ("Tile", [np.array([1, 2, 3], INTS)], {}),
        ("Gather", [np.array(1, INTS)], {"axis": 2}),
        ("Gather", [np.array(-1, INTS)], {"axis": 1}),
        ("Gather", [np.array([2, 0, 2], INTS)], {"axis": 1}),
        ("Gather", [np.array([[1, 0], [3, 3]], INTS)], {"axis": 2}),
    ],
)
def test_moving(op, constants, attributes, batch):
    names = [f"c{i}" for i in range(len(constants))]
    check(
        [make_node(op, ["x", *names], **attributes)],
        {"x": ("B", 3, 4)},
        dict(zip(names, constants, strict=True)),
        batch=batch,
    )


def test_transpose_of_the_batch():
    check(
        [make_node("Transpose", ["x"], ["t"], perm=[2, 0, 1]), make_node("Transpose", ["t"], perm=[1, 2, 0])],
        {"x": ("B", 3, 4)},
    )


def test_expand():
    nodes = [make_node("Expand", ["p", "shape"], ["e"]), make_node("Mul", ["x", "e"])]
    check(nodes, {"x": ("B", 3, 4), "p": (3, 1)}, {"shape": np.array([1, 3, 4], INTS)})


def test_squeeze():
    check([make_node("Squeeze", ["x", "axes"])], {"x": ("B", 1, 4)}, {"axes": np.array([1], INTS)})


def test_concat():
    check([make_node("Concat", ["a", "b", "a"], axis=-1)], {"a": ("B", 2, 3), "b": ("B", 2, 1)})


def test_split_with_a_part_that_nobody_reads():
    nodes = [make_node("Split", ["x", "sizes"], ["a", "b", "c"], axis=2), make_node("Mul", ["a", "c"])]
    check(nodes, {"x": ("B", 3, 5)}, {"sizes": np.array([2, 1, 2], INTS)})


def test_embedding_rows_that_are_read_twice():
    nodes = [make_node("Gather", ["table", "index"], ["e"]), make_node("Mul", ["e", "x"])]
    check(nodes, {"table": (5, 3), "x": ("B", 4, 3)}, {"index": np.array([1, 4, 1, 0], INTS)})


# -- products --------------------------------------------------------------------------------------------------------


@BATCHES
@pytest.mark.parametrize(
    ("a", "b"),
    [
        (("B", 3), (3, 4)),
        (("B", 2, 3), (3, 4)),
        (("B", 2, 3), ("B", 3, 4)),
        (("B", 2, 3), (1, 3, 4)),
        (("B", 5, 2, 3), (5, 3, 2)),
        (("B", 3), (3,)),
        (("B", 2, 3), (3,)),
        ((3,), ("B", 3, 4)),
    ],
)
def test_matmul(a, b, batch):
    check([make_node("MatMul", ["a", "b"])], {"a": a, "b": b}, batch=batch)


@BATCHES
@pytest.mark.parametrize("turned", [0, 1])
@pytest.mark.parametrize("bias", [(4,), (1, 4), (), None])
def test_gemm(turned, bias, batch):
    shapes = {"a": ("B", 3), "b": (4, 3) if turned else (3, 4)} | ({"c": bias} if bias is not None else {})
    check([make_node("Gemm", list(shapes), transB=turned)], shapes, batch=batch)


@pytest.mark.parametrize(
    ("equation", "a", "b"),
    [
        ("bij,jk->bik", ("B", 2, 3), (3, 4)),
        ("bhqd,bhkd->bhqk", ("B", 2, 3, 4), ("B", 2, 5, 4)),
        ("bi,bj->bij", ("B", 2), ("B", 3)),
        ("bij,bij->b", ("B", 2, 3), ("B", 2, 3)),
    ],
)
def test_einsum(equation, a, b):
    check([make_node("Einsum", ["a", "b"], equation=equation)], {"a": a, "b": b})


# -- reductions ------------------------------------------------------------------------------------------------------


@BATCHES
@pytest.mark.parametrize("keep", [0, 1])
@pytest.mark.parametrize("axes", [[1], [2], [1, 2], [-1]])
@pytest.mark.parametrize("op", ["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceSumSquare"])
def test_reductions(op, axes, keep, batch):
    check(
        [make_node(op, ["x", "axes"], keepdims=keep)], {"x": ("B", 3, 4)}, {"axes": np.array(axes, INTS)}, batch=batch
    )


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize("axis", [1, -1])
def test_softmax(op, axis):
    check([make_node(op, ["x"], axis=axis)], {"x": ("B", 3, 4)})


def test_every_rule_is_tested():
    text = "".join(f.read_text() for f in Path(__file__).parent.glob("test_*rules.py"))
    # marks have another gradient than the derivative: it is compared with torch's
    missing = sorted(op for op in {*RULES} - MARKS if f'"{op}"' not in text)
    assert missing == [], f"rules without a finite-difference test: {missing}"
