"""How a rule enters the table.

A rule for an operator with one output is `f(g, node, gy, want) -> adjoints of the inputs`; `want[i]` says whether the
adjoint of input i will be used. Results may be shorter than the inputs; None: not wanted or not differentiable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from models.ir.graph import OnnxGraph
from models.ir.nodes import OnnxNode

Adjoints = Sequence[str | None]
Want = Sequence[bool]
Rule = Callable[[OnnxGraph, OnnxNode, Adjoints, Want], Adjoints]
Simple = Callable[[OnnxGraph, OnnxNode, str, Want], Adjoints]

RULES: dict[str, Rule] = {}


def rule(*operators: str) -> Callable[[Simple], Simple]:
    """Enter a rule for operators of which only the first output is differentiated."""

    def enter(f: Simple) -> Simple:
        def whole(g: OnnxGraph, node: OnnxNode, outs: Adjoints, want: Want) -> Adjoints:
            return f(g, node, outs[0], want)

        RULES.update(dict.fromkeys(operators, whole))
        return f

    return enter


def rule_of_all(*operators: str) -> Callable[[Rule], Rule]:
    """Enter a rule that is given the adjoints of all outputs (None where there is none)."""

    def enter(f: Rule) -> Rule:
        RULES.update(dict.fromkeys(operators, f))
        return f

    return enter
