"""The operator Elementwise of domain "auscult" in numpy: a program of arithmetic, at each element of its inputs.

Inputs broadcast to one shape, which all outputs but sums have. The attribute `program` begins with `Inputs` and their
number. It has a line for each further value, numbered after the inputs: an operator of ONNX and the numbers of its
operands, or `Constant` and a number as Python's `float.hex` writes it. Truth values are 1 and 0. `Sum 4 2` is the sum
of value 4 along the last two axes, an output that no other line reads. The last line, `Return`, has the numbers of the
outputs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from onnx.reference.op_run import OpRun

from edge_sdk.model.forms import NATIVE_DOMAIN
from edge_sdk.model.sessions import operator_probe
from edge_sdk.models.ir.evaluation.reference_products import to_tensor
from edge_sdk.models.ir.evaluation.restore import restore_number

OPERATORS: dict[str, Callable[..., Any]] = {
    **operator_probe.OPERATORS,
    "Erf": lambda x: torch.erf(to_tensor(x)).numpy(),
}
"""Those that devices compare the library with, and a faster one of many numbers."""


class Elementwise(OpRun):
    """A program at each element, in the type of the first input.

    Raises:
        ValueError: a line is not of the language.
    """

    op_domain = NATIVE_DOMAIN

    def _run(self, *inputs: np.ndarray, program: Any = None) -> tuple[np.ndarray, ...]:
        dtype, shape = inputs[0].dtype, np.broadcast_shapes(*(x.shape for x in inputs))
        values, (first, *lines, last) = list(inputs), str(program).split("\n")
        if first != f"Inputs {len(inputs)}":
            raise ValueError(f"program: the first line is {first!r}; it must be 'Inputs {len(inputs)}'")
        sums = set[int]()
        for line in lines:
            if line.startswith("Sum "):
                sums.add(len(values))
                values.append(add_up(line, values, shape))
            else:
                values.append(np.asarray(calculate(line, values, dtype)).astype(dtype))
        word, *numbers = last.split()
        if word != "Return":
            raise ValueError(f"program: the last line is {last!r}; it must be Return and the numbers of the outputs")
        found = [int(i) for i in numbers]
        return tuple(values[i] if i in sums else np.broadcast_to(values[i], shape).copy() for i in found)


def add_up(line: str, values: list[np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
    """The sum of a value of the whole shape along its last axes."""
    _, value, axes = line.split()
    along = tuple(range(len(shape) - int(axes), len(shape)))
    return np.asarray(np.broadcast_to(values[int(value)], shape).sum(along))


def calculate(line: str, values: list[np.ndarray], dtype: np.dtype) -> Any:
    """The value of one line; a constant is taken for what it was rounded from where more digits are wanted."""
    word, *operands = line.split()
    if word == "Constant":
        number = float.fromhex(operands[0])
        return restore_number(number) if dtype == np.float64 and np.isfinite(number) else number
    if word not in OPERATORS:
        raise ValueError(f"program: unknown operator {word!r}; there are {', '.join(OPERATORS)}")
    return OPERATORS[word](*(values[int(i)] for i in operands))
