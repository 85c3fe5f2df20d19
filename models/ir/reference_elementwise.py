"""The operator Elementwise of domain "auscult" in numpy: a program of arithmetic, at each element of its inputs.

Inputs broadcast to one shape, which all outputs have. The attribute `program` begins with `Inputs` and their number. It
has a line for each value, numbered after the inputs: an operator of ONNX and the numbers of its operands, or `Constant` and a number as Python's `float.hex`
writes it. Truth values are 1 and 0. The last line, `Return`, has the numbers of the outputs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from onnx.reference.op_run import OpRun

from edge_sdk.models.ir.reference_products import to_tensor
from edge_sdk.models.ir.restore import restore_number

OPERATORS: dict[str, Callable[..., Any]] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": np.divide,
    "Max": np.maximum,
    "Min": np.minimum,
    "Neg": np.negative,
    "Abs": np.abs,
    "Sqrt": np.sqrt,
    "Reciprocal": lambda x: 1 / x,
    "Exp": np.exp,
    "Log": np.log,
    "Tanh": np.tanh,
    "Erf": lambda x: torch.erf(to_tensor(x)).numpy(),
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "Relu": lambda x: np.maximum(x, 0),
    "Sign": np.sign,
    "Greater": np.greater,
    "Less": np.less,
    "GreaterOrEqual": np.greater_equal,
    "LessOrEqual": np.less_equal,
    "Equal": np.equal,
    "And": lambda a, b: (a != 0) & (b != 0),
    "Or": lambda a, b: (a != 0) | (b != 0),
    "Not": lambda a: a == 0,
    "Where": lambda c, x, y: np.where(c != 0, x, y),
    "HardSigmoid": lambda x, alpha, beta: np.clip(alpha * x + beta, 0, 1),
}


class Elementwise(OpRun):
    """A program at each element, in the type of the first input.

    Raises:
        ValueError: a line is not of the language.
    """

    op_domain = "auscult"

    def _run(self, *inputs: np.ndarray, program: Any = None) -> tuple[np.ndarray, ...]:
        dtype, shape = inputs[0].dtype, np.broadcast_shapes(*(x.shape for x in inputs))
        values, (first, *lines, last) = list(inputs), str(program).split("\n")
        if first != f"Inputs {len(inputs)}":
            raise ValueError(f"program: the first line is {first!r}; it must be 'Inputs {len(inputs)}'")
        for line in lines:
            values.append(np.asarray(calculate(line, values, dtype)).astype(dtype))
        word, *numbers = last.split()
        if word != "Return":
            raise ValueError(f"program: the last line is {last!r}; it must be Return and the numbers of the outputs")
        return tuple(np.broadcast_to(values[int(i)], shape).copy() for i in numbers)


def calculate(line: str, values: list[np.ndarray], dtype: np.dtype) -> Any:
    """The value of one line; a constant is taken for what it was rounded from where more digits are wanted."""
    word, *operands = line.split()
    if word == "Constant":
        number = float.fromhex(operands[0])
        return restore_number(number) if dtype == np.float64 and np.isfinite(number) else number
    if word not in OPERATORS:
        raise ValueError(f"program: unknown operator {word!r}; there are {', '.join(OPERATORS)}")
    return OPERATORS[word](*(values[int(i)] for i in operands))
