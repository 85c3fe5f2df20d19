"""Arguments of torch functions as the exporter takes them: numbers of one type, einsum with a letter for each axis."""

from __future__ import annotations

import string
from collections.abc import Sequence

import torch

aten = torch.ops.aten
RANGES = (aten.arange.start, aten.arange.start_step)


def write_plain_arguments(program: torch.export.ExportedProgram) -> None:
    """Rewrite calls of clamp, arange and einsum, in place."""
    for node in program.graph.nodes:
        mixed = {int, float} <= {type(a) for a in node.args}
        if node.target in RANGES and mixed:
            node.args = tuple(float(a) if isinstance(a, int) else a for a in node.args)
        elif node.target is aten.clamp.default and {int, float} <= {type(a) for a in node.args[1:]}:
            node.args = (node.args[0], *(float(a) if isinstance(a, int) else a for a in node.args[1:]))
        elif node.target is aten.einsum.default and "..." in node.args[0]:
            ranks = [len(operand.meta["val"].shape) for operand in node.args[1]]
            node.args = (name_axes(node.args[0], ranks), *node.args[1:])


def name_axes(equation: str, ranks: Sequence[int]) -> str:
    """An equation without dots, for operands of so many axes; as it is where their dots stand for different axes."""
    before, arrow, after = equation.replace(" ", "").partition("->")
    terms = before.split(",")
    counts = {rank - len(t.replace("...", "")) for t, rank in zip(terms, ranks, strict=True) if "..." in t}
    if len(counts) != 1:
        return equation
    free = [c for c in string.ascii_letters if c not in equation]
    named = "".join(free[: counts.pop()])
    if not arrow:
        after = "..." + "".join(sorted(c for c in set(before) if c.isalpha() and before.count(c) == 1))
    return f"{before.replace('...', named)}->{after.replace('...', named)}"
