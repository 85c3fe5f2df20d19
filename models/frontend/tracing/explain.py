"""The way from a module to its graph, for people: each layer's torch functions, and what they were written as."""

from __future__ import annotations

from collections.abc import Iterator

from edge_sdk.models.derive.reverse import INERT
from edge_sdk.models.frontend.tracing.export import Forward
from edge_sdk.models.frontend.tracing.forward import read_call, read_path
from edge_sdk.models.passes.scheduling.open_lstm import OPENED


def explain_forward(forward: Forward) -> Iterator[str]:
    """One line for each torch function: its layer and ONNX operators; "no rule" where one cannot be differentiated."""
    from edge_sdk.models.rules import RULES

    last, operators = ("", ""), list[str]()
    for node in forward.model.graph.node:
        call = read_call(node)
        here = (read_path(node) or "the module", f"{call.name}.{call.overload}" if call else "-")
        if here != last and operators:
            yield write_line(*last, operators)
            operators = []
        known = node.op_type in RULES or node.op_type in INERT | OPENED
        operators.append(node.op_type if known else f"{node.op_type} (no rule)")
        last = here
    if operators:
        yield write_line(*last, operators)


def write_line(path: str, function: str, operators: list[str]) -> str:
    """The line of one torch function."""
    return f"{path:<32} {function:<36} {' '.join(operators)}"
