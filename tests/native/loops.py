"""Sessions of one recurrent loop, and draws of what it is given."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from edge_sdk.model.sessions.onnx_session import OnnxSession
from edge_sdk.models.ir.evaluation.reference_loops import LOOPS, sigmoid

INPUTS = {name: loop.inputs for name, loop in LOOPS.items()}
OUTPUTS = {name: loop.outputs for name, loop in LOOPS.items()}
Arrays = dict[str, Any]


def list_shapes(operator: str, steps: int, rows: int, hidden: int) -> dict[str, tuple[int, ...]]:
    """Name of an input or output -> its shape."""
    gates = 4 if operator.startswith("Lstm") else 3
    state, each = (rows, hidden), (steps, rows, hidden)
    found = dict.fromkeys(("h0", "c0", "dh", "dc", "last_h", "last_c", "dh0", "dc0"), state)
    found |= dict.fromkeys(("dy", "m", "tanh_c", "ghm", "before", "h"), each)
    found |= dict.fromkeys(("gx", "gates", "dgh", "dgx"), (steps, rows, gates * hidden))
    found |= {"iof": (steps, rows, 3 * hidden), "zr": (steps, rows, 2 * hidden)}
    return found | {"r": (gates * hidden, hidden), "bh": (gates * hidden,)}


def draw(operator: str, steps: int, rows: int, hidden: int, seed: int = 0) -> Arrays:
    """Inputs of an operator: gates between their bounds, weights such that states neither vanish nor grow."""
    rng, shapes = np.random.default_rng(seed), list_shapes(operator, steps, rows, hidden)
    made = {name: rng.standard_normal(shapes[name]) for name in INPUTS[operator]}
    for name in made.keys() & {"iof", "zr"}:
        made[name] = sigmoid(made[name])
    for name in made.keys() & {"m", "tanh_c"}:
        made[name] = np.tanh(made[name])
    made["r"] = made["r"] / np.sqrt(hidden)
    return {name: value.astype(np.float32) for name, value in made.items()}


def make_loop(operator: str, backwards: bool) -> bytes:
    names = INPUTS[operator], OUTPUTS[operator]
    node = helper.make_node(operator, *names, domain="auscult", backwards=int(backwards))
    values = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in some] for some in names]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("auscult", 1)]
    model = helper.make_model(helper.make_graph([node], "g", *values), opset_imports=opsets, ir_version=8)
    return model.SerializeToString()


@cache
def open_loop(library: str, operator: str, backwards: bool = False, threads: int = 1) -> OnnxSession:
    return OnnxSession(operator, make_loop(operator, backwards), threads, library=library)


def run_loop(library: str, operator: str, given: Arrays, backwards: bool = False, threads: int = 1) -> Arrays:
    session = open_loop(library, operator, backwards, threads)
    return dict(zip(OUTPUTS[operator], session.run(given), strict=True))


def compute(operator: str, given: Mapping[str, Any], backwards: bool = False) -> Arrays:
    """The outputs of an operator in float64."""
    values = [np.asarray(given[name], np.float64) for name in INPUTS[operator]]
    with np.errstate(all="ignore"):
        return dict(zip(OUTPUTS[operator], LOOPS[operator].run(values, backwards), strict=True))
