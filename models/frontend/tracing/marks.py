"""Functions of our own in a traced program, at which autograd does something else than the derivative.

ONNX has no `detach` and no backward pass that a module brings with it. Functions stand for them, from the traced
program to the graph that is differentiated, and are in no graph that a device gets:

    stop_gradient(x)                    x, through which no gradient goes
    given_gradient(y, inputs)           the gradient of the loss with respect to y, once it is known
    with_heads(y, others)               y, with other results whose loss is added
    own_gradient(y, g, inputs, found)   y, whose gradient goes to `inputs`, as `found` is made of g, the given gradient
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from onnx.defs import OpSchema
from onnxscript import values

from edge_sdk.models.ir.marks import COTANGENT, HEADS, MARK_DOMAIN, OWN_GRADIENT, STOP_GRADIENT

Tensor = torch.Tensor
MARKS = values.Opset(MARK_DOMAIN, 1)


@torch.library.custom_op("auscult::stop_gradient", mutates_args=())
def stop_gradient(x: Tensor) -> Tensor:
    """A copy of x."""
    return x.clone()


@torch.library.custom_op("auscult::given_gradient", mutates_args=())
def given_gradient(y: Tensor, inputs: Sequence[Tensor]) -> Tensor:
    """A copy of y: a value of the cotangent's shape. `inputs`: of the function that y is the result of."""
    return y.clone()


@torch.library.custom_op("auscult::own_gradient", mutates_args=())
def own_gradient(y: Tensor, g: Tensor, inputs: Sequence[Tensor], found: Sequence[Tensor]) -> Tensor:
    """A copy of y."""
    return y.clone()


@torch.library.custom_op("auscult::with_heads", mutates_args=())
def with_heads(y: Tensor, others: Sequence[Tensor]) -> Tensor:
    """A copy of y."""
    return y.clone()


for mark in (stop_gradient, given_gradient, own_gradient, with_heads):
    mark.register_fake(lambda x, *others: torch.empty_like(x))

STOP: Any = torch.ops.auscult.stop_gradient.default
GIVEN: Any = torch.ops.auscult.given_gradient.default
OWN: Any = torch.ops.auscult.own_gradient.default
JOINED: Any = torch.ops.auscult.with_heads.default


def write_mark(name: str, *given: Any) -> Any:
    """Writes a mark as an operator of MARK_DOMAIN. `given`: values, and lists of values."""
    plain = [v for one in given for v in (one if isinstance(one, (list, tuple)) else [one])]
    floats = ["tensor(float)", "tensor(double)"]
    parameters = [OpSchema.FormalParameter(f"x{k}", "T") for k, _ in enumerate(plain)]
    schema = OpSchema(
        name, MARK_DOMAIN, 1, inputs=parameters, outputs=[OpSchema.FormalParameter("y", "T")],
        type_constraints=[("T", floats, "")],
    )  # fmt: skip
    return values.Op(MARKS, name, schema)(*plain)


# torch 2.8 matches the arguments of a call with the parameters of its function, one by one: *args would be one of them
def write_stop(x: Any) -> Any:
    return write_mark(STOP_GRADIENT, x)


def write_given(y: Any, inputs: Any) -> Any:
    return write_mark(COTANGENT, y, inputs)


def write_own(y: Any, g: Any, inputs: Any, found: Any) -> Any:
    return write_mark(OWN_GRADIENT, y, g, inputs, found)


def write_heads(y: Any, others: Any) -> Any:
    return write_mark(HEADS, y, others)


WRITTEN: dict[Callable[..., Any], Callable[..., Any]] = {
    STOP: write_stop,
    GIVEN: write_given,
    OWN: write_own,
    JOINED: write_heads,
}


def find_marks(program: torch.export.ExportedProgram | None) -> dict[Callable[..., Any], Callable[..., Any]]:
    """ONNX functions of the marks in a program, for `torch.onnx.export`."""
    used = {node.target for node in program.graph.nodes} if program else ()
    return {mark: function for mark, function in WRITTEN.items() if mark in used}


def list_differentiated(program: torch.export.ExportedProgram, given: Sequence[str]) -> set[str]:
    """Names of the values of a program whose gradient is read, on the way from some inputs to its results.

    Args:
        given: names of these inputs.
    """
    changed = set(given)
    for node in program.graph.nodes:
        if node.target not in (STOP, GIVEN) and any(a.name in changed for a in list_passed(node)):
            changed.add(node.name)
    read = set[str]()
    for node in reversed(program.graph.nodes):
        if (node.op == "output" or node.name in read) and node.target not in (STOP, GIVEN):
            read.update(a.name for a in list_passed(node))
    return changed & read


def list_passed(node: torch.fx.Node) -> Sequence[torch.fx.Node]:
    """The arguments of a call that its gradient may go to."""
    inputs: Any = node.args[2] if node.target is OWN else node.all_input_nodes
    return list(inputs)
