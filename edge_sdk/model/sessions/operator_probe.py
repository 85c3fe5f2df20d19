"""The probe of the library's own operators: does it have them, and do they compute what numpy does in float64?

`Elementwise` runs a small program for each element of tensors that broadcast to one shape. Its first line says how many
inputs there are. Values are numbered: the inputs, then one for each line, which names an operator of ONNX and the
numbers of what it takes, or a constant. Truth is 1 and 0. The last line names the values that are outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from math import erf
from typing import Any

import numpy as np

from edge_sdk.model.bundle import BundleError
from edge_sdk.model.forms import NATIVE_DOMAIN
from edge_sdk.model.inputs import Array
from edge_sdk.model.onnx_write import write, write_graph, write_node
from edge_sdk.model.sessions.onnx_session import OnnxSession

INPUTS, CONSTANT, RETURN = "Inputs", "Constant", "Return"
OPERATORS: Mapping[str, Callable[..., Any]] = {
    "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide, "Max": np.maximum, "Min": np.minimum,
    "Neg": np.negative, "Abs": np.abs, "Sqrt": np.sqrt, "Reciprocal": np.reciprocal, "Exp": np.exp, "Log": np.log,
    "Tanh": np.tanh, "Erf": np.vectorize(erf), "Sigmoid": lambda x: 1 / (1 + np.exp(-x)), "Sign": np.sign,
    "Relu": lambda x: np.maximum(x, 0), "Greater": np.greater, "Less": np.less, "GreaterOrEqual": np.greater_equal,
    "LessOrEqual": np.less_equal, "Equal": np.equal, "And": np.logical_and, "Or": np.logical_or, "Not": np.logical_not,
    "Where": lambda c, x, y: np.where(c != 0, x, y), "HardSigmoid": lambda x, a, b: np.clip(a * x + b, 0, 1),
}  # fmt: skip
PROGRAM = (
    "Inputs 3", "Constant 0x1.0000000000000p-2", "Mul 0 1", "Add 4 2", "Sub 5 3", "Mul 0 0", "Add 7 3", "Div 6 8",
    "Sqrt 8", "Log 8", "Reciprocal 10", "Neg 7", "Exp 13", "Tanh 6", "Erf 4", "Sigmoid 9", "Abs 1", "Relu 5", "Sign 0",
    "Greater 0 1", "Less 0 2", "GreaterOrEqual 1 2", "LessOrEqual 0 2", "Equal 20 22", "And 21 22", "Or 23 26",
    "Not 24", "Where 27 15 16", "Max 9 11", "Min 12 14", "HardSigmoid 5 3 3", "Add 29 30", "Sub 33 31", "Add 34 17",
    "Mul 32 10", "Add 35 36", "Add 18 19", "Mul 20 28", "Add 38 39", "Add 40 25", "Return 37 41",
)  # fmt: skip
"""Each operator once at least, on three inputs; 3 is the constant."""
SHAPES = ((3, 1, 37), (5, 37), ())
"""Of the inputs: two ways to broadcast, and rows of no whole number of vectors."""
LIMIT = 1e-5
"""Difference, relative to 1 and the value: many times the roundings of values up to 30."""


def check_operators(library: str, products: bool) -> None:
    """Compares the library's own operators with numpy, in a session as graphs will have it.

    Raises:
        BundleError: it has none, as an older version, or they compute something else.
    """
    try:
        session = OnnxSession("probe of operators", write_probe(products), 1, library=library, products=products)
    except BundleError as error:
        told = "auscult-native has no operators for native graphs; install the version that belongs to this release"
        raise BundleError(f"{told} ({error})") from error
    rng = np.random.default_rng(0)
    inputs = [np.asarray(rng.standard_normal(shape), np.float32) for shape in SHAPES]
    found, wanted = session.run(dict(zip("abc", inputs, strict=True))), run_program(PROGRAM, inputs)
    if not products:
        wanted.append(np.trunc(inputs[0]) @ np.trunc(inputs[1]).T)
    for got, want in zip(found, wanted, strict=True):
        near = got.shape == want.shape and np.all(np.abs(got - want) <= LIMIT * (1 + np.abs(want)))
        if not near:  # what is no number is not near either
            raise BundleError("the operators of auscult-native are wrong on this machine; they are not used")


def run_program(program: Sequence[str], inputs: Sequence[Array]) -> list[Array]:
    """The outputs of a program in float64, each of the shape to which all inputs broadcast."""
    shape = np.broadcast_shapes(*(each.shape for each in inputs))
    values = [np.asarray(each, np.float64) for each in inputs]
    for line in program:
        operator, *words = line.split()
        if operator == RETURN:
            return [np.broadcast_to(values[int(word)], shape) for word in words]
        if operator == INPUTS:
            continue
        if operator == CONSTANT:
            made = float.fromhex(words[0])
        else:
            made = OPERATORS[operator](*(values[int(word)] for word in words))
        values.append(np.asarray(made, np.float64))
    raise ValueError(f"a program without {RETURN}")


@cache
def write_probe(products: bool) -> bytes:
    """A graph that runs PROGRAM: a, b, c -> y, z.

    Args:
        products: whose products it has does not matter; else one of integers is added, p = int(a) int(b)^T, which only
            onnxruntime has: an older library would put its own in their place.
    """
    program = write(1, "program") + write(4, "\n".join(PROGRAM)) + write(20, 3)
    nodes = write_node("Elementwise", ("a", "b", "c"), ("y", "z"), program, NATIVE_DOMAIN)
    if products:
        return write_graph(nodes, ("a", "b", "c"), ("y", "z"), NATIVE_DOMAIN)
    to_integers, to_floats = (write(1, "to") + write(3, kind) + write(20, 2) for kind in (7, 1))
    nodes += write_node("Cast", ("a",), ("i",), to_integers) + write_node("Cast", ("b",), ("j",), to_integers)
    nodes += write_node("Transpose", ("j",), ("t",)) + write_node("MatMul", ("i", "t"), ("q",))
    nodes += write_node("Cast", ("q",), ("p",), to_floats)
    return write_graph(nodes, ("a", "b", "c"), ("y", "z", "p"), NATIVE_DOMAIN)
