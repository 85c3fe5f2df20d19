"""Every gradient rule against central differences in float64: the definition of a derivative."""

from pathlib import Path

import numpy as np
import pytest

from models.rules import RULES
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


# -- convolutions and pooling ----------------------------------------------------------------------------------------

CONVOLUTIONS_1D = [
    # channels in, out, length, kernel, attributes
    (2, 3, 8, 3, {}),
    (2, 3, 8, 1, {}),
    (2, 3, 9, 4, {"pads": [1, 2], "strides": [2]}),
    (2, 3, 9, 3, {"pads": [2, 2], "dilations": [2]}),
    (4, 6, 9, 3, {"group": 2, "pads": [1, 1]}),
    (4, 4, 9, 3, {"group": 4, "pads": [1, 1]}),
    (4, 4, 10, 5, {"group": 4, "pads": [2, 2], "strides": [2]}),
    (4, 8, 9, 3, {"group": 4, "pads": [1, 1]}),
    (2, 3, 10, 3, {"pads": [1, 1], "strides": [3], "dilations": [2]}),
]


@pytest.mark.parametrize(("inputs", "outputs", "length", "kernel", "attributes"), CONVOLUTIONS_1D)
def test_conv_1d(inputs, outputs, length, kernel, attributes):
    weight = (outputs, inputs // attributes.get("group", 1), kernel)
    shapes = {"x": ("B", inputs, length), "w": weight, "b": (outputs,)}
    check([make_node("Conv", list(shapes), kernel_shape=[kernel], **attributes)], shapes)


CONVOLUTIONS_2D = [
    (2, 3, (5, 6), (3, 3), {"pads": [1, 1, 1, 1]}),
    (2, 3, (5, 70), (3, 3), {"pads": [1, 1, 1, 1]}),
    (16, 3, (6, 5), (3, 3), {"pads": [1, 1, 1, 1], "strides": [2, 2]}),
    (16, 2, (6, 5), (2, 3), {}),
    (2, 3, (6, 7), (3, 2), {"pads": [1, 0, 2, 1], "strides": [2, 1], "dilations": [1, 2]}),
    (4, 6, (5, 5), (3, 3), {"group": 2, "pads": [1, 1, 1, 1]}),
    (4, 4, (5, 5), (3, 3), {"group": 4, "pads": [1, 1, 1, 1]}),
    (3, 2, (4, 4), (1, 1), {"strides": [2, 2]}),
    (8, 2, (4, 5), (3, 3), {"pads": [1, 1, 1, 1]}),  # shifted, by masks
    (8, 2, (17, 16), (3, 3), {"pads": [1, 1, 1, 1]}),  # shifted, by a one-hot Conv
    (8, 8, (2, 2), (3, 3), {"pads": [1, 1, 1, 1]}),  # shifted, one product for the batch
    (6, 3, (9, 8), (3, 3), {"dilations": [2, 1]}),  # by rows
    (2, 3, (7, 8), (5, 5), {"pads": [2, 1, 0, 2]}),  # columns by slices and Gather
    (3, 16, (6, 6), (3, 3), {"pads": [1, 1, 1, 1]}),  # columns times gy'
]


@pytest.mark.parametrize(("inputs", "outputs", "size", "kernel", "attributes"), CONVOLUTIONS_2D)
@BATCHES
def test_conv_2d(inputs, outputs, size, kernel, attributes, batch):
    weight = (outputs, inputs // attributes.get("group", 1), *kernel)
    shapes = {"x": ("B", inputs, *size), "w": weight}
    check([make_node("Conv", list(shapes), kernel_shape=list(kernel), **attributes)], shapes, batch=batch)


def test_conv_3d():
    shapes = {"x": ("B", 2, 3, 4, 3), "w": (3, 2, 2, 2, 2), "b": (3,)}
    check([make_node("Conv", list(shapes), kernel_shape=[2, 2, 2], pads=[1, 0, 0, 0, 1, 0])], shapes)


@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"strides": [2], "output_padding": [1], "pads": [1, 1]},
        {"strides": [3], "pads": [0, 1], "dilations": [2]},
        {"group": 2, "strides": [2]},
    ],
)
def test_conv_transpose(attributes):
    group = attributes.get("group", 1)
    shapes = {"x": ("B", 4, 5), "w": (4, 6 // group, 3), "b": (6,)}
    check([make_node("ConvTranspose", list(shapes), kernel_shape=[3], **attributes)], shapes)


@BATCHES
@pytest.mark.parametrize(
    ("size", "attributes"),
    [
        ((6, 6), {"kernel_shape": [2, 2], "strides": [2, 2]}),
        ((7, 5), {"kernel_shape": [2, 2], "strides": [2, 2]}),
        ((7, 7), {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
        ((6, 6), {"kernel_shape": [3, 2], "strides": [1, 1], "dilations": [2, 1]}),
    ],
)
def test_max_pool(size, attributes, batch):
    check([make_node("MaxPool", ["x"], **attributes)], {"x": ("B", 2, *size)}, batch=batch)


@pytest.mark.parametrize(
    ("length", "attributes"),
    [
        (6, {"kernel_shape": [2], "strides": [2]}),
        (7, {"kernel_shape": [3], "strides": [2]}),
        (7, {"kernel_shape": [3], "strides": [1], "pads": [1, 1], "count_include_pad": 1}),
    ],
)
def test_average_pool(length, attributes):
    check([make_node("AveragePool", ["x"], **attributes)], {"x": ("B", 2, length)})


@pytest.mark.parametrize("op", ["GlobalAveragePool", "GlobalMaxPool"])
def test_global_pool(op):
    check([make_node(op, ["x"])], {"x": ("B", 2, 3, 4)})


def test_resize():
    scales = np.array([1, 1, 2, 3], np.float32)
    at = {"mode": "nearest", "nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"}
    check([make_node("Resize", ["x", "", "scales"], **at)], {"x": ("B", 2, 3, 2)}, {"scales": scales})


# -- normalisation and recurrence ------------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [-1, 1])
def test_layer_norm(axis):
    size = (4,) if axis == -1 else (3, 4)
    shapes = {"x": ("B", 3, 4), "s": size, "b": size}
    check([make_node("LayerNormalization", list(shapes), axis=axis, epsilon=1e-3)], shapes)


def test_instance_norm():
    shapes = {"x": ("B", 3, 4), "s": (3,), "b": (3,)}
    check([make_node("InstanceNormalization", list(shapes), epsilon=1e-3)], shapes)


def test_batch_norm_with_fixed_statistics():
    shapes = {"x": ("B", 3, 4), "s": (3,), "b": (3,)}
    fixed = {"m": np.array([0.1, -0.2, 0.3]), "v": np.array([0.5, 1.5, 1.0])}
    check([make_node("BatchNormalization", ["x", "s", "b", "m", "v"])], shapes, fixed)


DIRECTIONS = pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])


def recurrent(op, gates, outputs, direction, batch, states, **attributes):
    d, steps, size, hidden = (2 if direction == "bidirectional" else 1), 4, 3, 2
    shapes = {
        "x": (steps, "B", size),
        "w": (d, gates * hidden, size),
        "r": (d, gates * hidden, hidden),
        "b": (d, 2 * gates * hidden),
    } | {s: (d, "B", hidden) for s in states}
    inputs = ["x", "w", "r", "b", "", *states]
    # data inputs of a forward graph have the batch first, so transpose on the way in
    turned = {k: ("B", *(s for s in v if s != "B")) if "B" in v else v for k, v in shapes.items()}
    nodes = [make_node("Transpose", [k], [k + ".t"], perm=[1, 0, 2]) for k, v in shapes.items() if "B" in v]
    named = [i + ".t" if i and "B" in shapes[i] else i for i in inputs]
    nodes.append(make_node(op, named, outputs, hidden_size=hidden, direction=direction, **attributes))
    first = next(o for o in outputs if o)
    rank = 4 if first == "Y" else 3
    perm = [rank - 2, *(i for i in range(rank) if i != rank - 2)]
    nodes.append(make_node("Transpose", [first], ["front"], perm=perm))
    nodes.append(make_node("Mul", ["front", "front"], ["y"]))
    check(nodes, turned, batch=batch)


@DIRECTIONS
@BATCHES
@pytest.mark.parametrize("outputs", [["Y"], ["", "Y_h"]])
def test_gru(outputs, direction, batch):
    recurrent("GRU", 3, outputs, direction, batch, ["h0"], linear_before_reset=1)


@DIRECTIONS
@BATCHES
@pytest.mark.parametrize("outputs", [["Y"], ["", "Y_h"], ["", "", "Y_c"]])
def test_lstm(outputs, direction, batch):
    recurrent("LSTM", 4, outputs, direction, batch, ["h0", "c0"])


def test_every_rule_is_tested_here():
    text = Path(__file__).read_text()
    missing = sorted(op for op in RULES if f'"{op}"' not in text)
    assert missing == [], f"rules without a finite-difference test: {missing}"
