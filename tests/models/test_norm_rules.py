"""Gradient rules of normalisation and recurrence against central differences in float64."""

import numpy as np
import pytest

from tests.models.rule_check import check, make_node

BATCHES = pytest.mark.parametrize("batch", [1, 3])


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
def test_lstm_whose_outputs_are_all_read_from_states_that_are_not_given(direction):
    d, hidden = (2 if direction == "bidirectional" else 1), 2
    shapes = {"x": ("B", 4, 3), "w": (d, 4 * hidden, 3), "r": (d, 4 * hidden, hidden)}
    nodes = [
        make_node("Transpose", ["x"], ["x.t"], perm=[1, 0, 2]),
        make_node("LSTM", ["x.t", "w", "r"], ["Y", "Y_h", "Y_c"], hidden_size=hidden, direction=direction),
        make_node("Mul", ["Y", "Y"], ["squares"]),  # (T, d, B, H)
        make_node("Mul", ["Y_h", "Y_c"], ["last"]),  # (d, B, H)
        make_node("Add", ["squares", "last"], ["all"]),
        make_node("Transpose", ["all"], ["y"], perm=[2, 0, 1, 3]),
    ]
    check(nodes, shapes, batch=3)


@DIRECTIONS
@BATCHES
@pytest.mark.parametrize("outputs", [["Y"], ["", "Y_h"], ["", "", "Y_c"]])
def test_lstm(outputs, direction, batch):
    recurrent("LSTM", 4, outputs, direction, batch, ["h0", "c0"])
