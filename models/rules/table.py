"""The table of gradient rules, and the decorators that enter a rule into it.

A rule for an operator with one output is `f(g, node, gy, want) -> adjoints of the inputs`, where gy is the adjoint of
the output and `want[i]` says whether the adjoint of input i will be used. The result may be shorter than the inputs;
None stands for an adjoint that is not wanted or does not exist.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from edge_sdk.models.ir.errors import UnsupportedPattern
from edge_sdk.models.ir.graph import OnnxGraph
from edge_sdk.models.ir.nodes import OnnxNode

Adjoints = Sequence[str | None]
Want = Sequence[bool]
Rule = Callable[[OnnxGraph, OnnxNode, Adjoints, Want], Adjoints]
RuleOfOne = Callable[[OnnxGraph, OnnxNode, str, Want], Adjoints]

RULES: dict[str, Rule] = {}


def rule(*operators: str) -> Callable[[RuleOfOne], RuleOfOne]:
    """Enter a rule for operators of which only the first output is differentiated."""

    def enter(f: RuleOfOne) -> RuleOfOne:
        def whole(g: OnnxGraph, node: OnnxNode, outs: Adjoints, want: Want) -> Adjoints:
            if outs[0] is None or any(outs[1:]):
                raise UnsupportedPattern(f"{node.op}, of which more than the first output is read", node.where)
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
