"""The program of an Elementwise node (domain "auscult"): what a group of nodes computes at each element, as text.

The first line is `Inputs` and their number. They are numbered first, then each line is the next value: `Mul 0 2`,
`Constant 0x1.8p+0`, `Sum 5 1` (of value 5, along the last axis). The last line, `Return`, has the numbers of the
outputs. Equal lines are written once, but for sums. `models/ir/evaluation/reference_elementwise.py` has the operators.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import reduce

import numpy as np

from edge_sdk.models.ir.graph import OnnxGraph
from edge_sdk.models.ir.nodes import OnnxNode
from edge_sdk.models.ir.value_kinds import COMPARISONS, LOGIC

ARITHMETIC = frozenset(
    {"Sub", "Div", "Neg", "Abs", "Sqrt", "Reciprocal", "Exp", "Log", "Tanh", "Erf", "Sigmoid", "Relu", "Sign", "Where"}
)
DIRECT = ARITHMETIC | COMPARISONS | LOGIC
"""Operators that a program has under the same name, with the same operands."""
CHAINED = {"Add": "Add", "Mul": "Mul", "Sum": "Add", "Max": "Max", "Min": "Min"}
"""Operators of two values or more -> that of two."""


class ProgramWriter:
    """Writes the lines of one program.

    Args:
        inputs: number of the inputs. truths: value -> the comparison that makes it, which is copied.
        behind: what a Reshape makes -> what it reads.
    """

    def __init__(self, g: OnnxGraph, inputs: int, truths: Mapping[str, OnnxNode], behind: Mapping[str, str]) -> None:
        self.g, self._inputs, self._truths, self._behind = g, inputs, truths, behind
        self._lines: list[str] = []
        self._known: dict[str, int] = {}
        self._made: dict[str, int] = {}

    def op(self, kind: str, *operands: int) -> int:
        """The number of a line with this operator."""
        return self._line(" ".join([kind, *map(str, operands)]))

    def constant(self, x: float) -> int:
        """The number of a constant, rounded to float32."""
        with np.errstate(over="ignore"):
            return self._line(f"Constant {float(np.float32(x)).hex()}")

    def _line(self, text: str) -> int:
        if text not in self._known:
            self._known[text] = self._inputs + len(self._lines)
            self._lines.append(text)
        return self._known[text]

    def write(self, n: OnnxNode, leaves: Mapping[str, int]) -> None:
        """The lines of a node; leaves: value that it reads from outside -> number of the input that it is."""
        self._made[n.outputs[0]] = self._express(n, leaves)

    def add_up(self, n: OnnxNode, axes: int, leaves: Mapping[str, int]) -> None:
        """The line of a sum along the last axes."""
        self._lines.append(f"Sum {self._read(n.inputs[0], leaves)} {axes}")  # also if it is there: it is returned once
        self._made[n.outputs[0]] = self._inputs + len(self._lines) - 1

    def _read(self, name: str, leaves: Mapping[str, int]) -> int:
        """The number of a value: an input, what an earlier node or a comparison makes, or a constant."""
        if name in leaves:
            return leaves[name]
        if self._behind.get(name, name) in self._made:
            return self._made[self._behind.get(name, name)]
        if name in self._truths:
            return self._express(self._truths[name], leaves)
        return self.constant(self.g.constants[name].item())

    def _express(self, n: OnnxNode, leaves: Mapping[str, int]) -> int:
        """The number of what a node makes."""
        names = n.inputs[:1] if n.op == "Pow" else n.inputs
        numbers = [self._read(i, leaves) for i in names if i]
        if n.op in CHAINED:
            return reduce(lambda a, b: self.op(CHAINED[n.op], a, b), numbers)
        return self.op(n.op, *numbers) if n.op in DIRECT else FORMULAS[n.op](self, n, *numbers)

    def finish(self, outputs: Iterable[str]) -> str:
        """The text of the program that returns these values."""
        last = " ".join(["Return", *(str(self._made[o]) for o in outputs)])
        return "\n".join([f"Inputs {self._inputs}", *self._lines, last])


def is_writable(g: OnnxGraph, n: OnnxNode) -> bool:
    """True if a program can compute what a node makes of floats and truth values."""
    if n.domain or len(n.outputs) != 1:
        return False
    if n.op in CHAINED:
        return len(n.inputs) > 1
    if n.op == "Pow":
        exponent = g.constants.get(n.inputs[1])
        return exponent is not None and exponent.size == 1 and exponent.item() == 2
    return n.op in DIRECT or n.op in FORMULAS


def keep(w: ProgramWriter, n: OnnxNode, x: int) -> int:
    """A truth value as float: it is 1 or 0 already."""
    return x


def hard_sigmoid(w: ProgramWriter, n: OnnxNode, x: int) -> int:
    alpha, beta = n.attributes.get("alpha", 0.2), n.attributes.get("beta", 0.5)
    return w.op("HardSigmoid", x, w.constant(alpha), w.constant(beta))


def hard_swish(w: ProgramWriter, n: OnnxNode, x: int) -> int:
    return w.op("Mul", x, w.op("HardSigmoid", x, w.constant(1 / 6), w.constant(0.5)))


def clip(w: ProgramWriter, n: OnnxNode, x: int, *bounds: int) -> int:
    """Max and Min; a bound that is not there has the name ""."""
    for kind, bound in zip((k for k, i in zip(("Max", "Min"), n.inputs[1:], strict=False) if i), bounds, strict=True):
        x = w.op(kind, x, bound)
    return x


def leaky_relu(w: ProgramWriter, n: OnnxNode, x: int) -> int:
    slope = w.constant(n.attributes.get("alpha", 0.01))
    return w.op("Where", w.op("GreaterOrEqual", x, w.constant(0)), x, w.op("Mul", slope, x))


def prelu(w: ProgramWriter, n: OnnxNode, x: int, slope: int) -> int:
    return w.op("Where", w.op("Greater", x, w.constant(0)), x, w.op("Mul", slope, x))


def elu(w: ProgramWriter, n: OnnxNode, x: int) -> int:
    below = w.op("Mul", w.constant(n.attributes.get("alpha", 1.0)), w.op("Sub", w.op("Exp", x), w.constant(1)))
    return w.op("Where", w.op("GreaterOrEqual", x, w.constant(0)), x, below)


def softplus(w: ProgramWriter, n: OnnxNode, x: int) -> int:
    """max(x, 0) + log(1 + e^-|x|), with what the sum with 1 loses, as in small_values.py."""
    small, one = w.op("Exp", w.op("Neg", w.op("Abs", x))), w.constant(1)
    u = w.op("Add", small, one)
    lost = w.op("Div", w.op("Sub", small, w.op("Sub", u, one)), u)
    return w.op("Add", w.op("Max", x, w.constant(0)), w.op("Add", w.op("Log", u), lost))


def square(w: ProgramWriter, n: OnnxNode, x: int) -> int:
    """The power whose exponent is 2, the only one that is written."""
    return w.op("Mul", x, x)


FORMULAS: dict[str, Callable[..., int]] = {
    "Cast": keep,
    "HardSigmoid": hard_sigmoid,
    "HardSwish": hard_swish,
    "Clip": clip,
    "LeakyRelu": leaky_relu,
    "PRelu": prelu,
    "Elu": elu,
    "Softplus": softplus,
    "Pow": square,
}
"""Operators that are written with others."""
