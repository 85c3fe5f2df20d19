"""Reverse mode: the adjoints of a graph's leaves from those of its outputs, with one rule per operator.

For y = f(x1, x2, ...) and a scalar objective L, a rule is given gy = dL/dy and writes dL/dx1, dL/dx2, ... Only nodes
between the wanted leaves and the outputs are visited, so a partial gradient has a shorter graph. LSTMs are opened
before (passes/scheduling/open_lstm.py), and have no rule. Marks (ir/marks.py) are taken out after it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from edge_sdk.algebra.vectors import Slot
from edge_sdk.models.derive.steep import find_steep
from edge_sdk.models.ir.accumulate import add_adjoints
from edge_sdk.models.ir.errors import UnsupportedOperator
from edge_sdk.models.ir.graph import OnnxGraph
from edge_sdk.models.ir.marks import COTANGENT, MARKS, STOP_GRADIENT
from edge_sdk.models.ir.nodes import OnnxNode
from edge_sdk.models.passes.products.pair_einsum import pair_einsums
from edge_sdk.models.passes.scheduling.open_lstm import open_lstms
from edge_sdk.models.rules.advice import ADVICE

Adjoints = Sequence[str | None]
Rule = Callable[[OnnxGraph, OnnxNode, Adjoints, Sequence[bool]], Adjoints]

# operators without a derivative: their outputs are shapes, indices, booleans or constants
SHAPES = {"Shape", "Size", "Constant", "ConstantOfShape", "Range", "OneHot", "NonZero", "ArgMax", "ArgMin"}
BOOLEANS = {"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Not", "And", "Or", "Xor", "IsNaN", "IsInf"}
STEPS = {"Sign", "Floor", "Ceil", "Round"}  # their derivative is 0, in torch as well
INERT = frozenset(SHAPES | BOOLEANS | STEPS | {STOP_GRADIENT, COTANGENT})


def write_gradient(g: OnnxGraph, seeds: Mapping[str, str], leaves: Sequence[str]) -> dict[str, str | None]:
    """Append the backward pass; leaf -> name of dL/dleaf, or None if L does not depend on it.

    Args:
        g: the forward graph.
        seeds: value -> name of its adjoint dL/dvalue, of the same shape.
        leaves: values to differentiate with respect to.
    """
    from edge_sdk.models.rules import RULES

    open_lstms(g)
    pair_einsums(g)
    depends = find_dependents(g, leaves)
    g.steep = find_steep(g, seeds, depends)
    parts: dict[str, list[str]] = {k: [v] for k, v in seeds.items()}
    for node in reversed(list(g.nodes)):
        if not any(o in parts and o in depends for o in node.outputs):
            continue
        outs = [add_adjoints(g, parts[o]) if o in parts else None for o in node.outputs]
        g.where = node.where
        own = g.custom_gradients.get(node.outputs[0])
        inputs = list(own.inputs) if own else node.inputs
        want = [i in depends for i in inputs]
        results = (
            own.backward(g, *(o or "" for o in outs), want) if own else find_rule(RULES, node)(g, node, outs, want)
        )
        for name, value, wanted in zip(inputs, results, want, strict=False):
            if wanted and value is not None:
                parts.setdefault(name, []).append(value)
    g.where = ""
    take_out_marks(g)
    return {leaf: add_adjoints(g, parts[leaf]) if leaf in parts else None for leaf in leaves}


def write_flat_gradient(
    g: OnnxGraph, seeds: dict[str, str], slots: Sequence[Slot], known: Mapping[str, str] = MappingProxyType({})
) -> str:
    """The adjoints of the slots as one vector, zeros where the loss does not depend on one.

    Args:
        known: name of a slot -> its adjoint, where that is no derivative of the seeds.
    """
    adjoints = write_gradient(g, seeds, ["p." + s.name for s in slots])
    parts = []
    for s in slots:
        found = known.get(s.name) or adjoints["p." + s.name]
        parts.append(g.reshape(found, (s.size,)) if found else g.zeros((s.size,)))
    return g.concat(parts, 0)


def take_out_marks(g: OnnxGraph) -> OnnxGraph:
    """Replace all marks by the values that they stand at, in place; the graph."""
    if any(n.op in MARKS for n in g.nodes):
        for n in g.take_nodes():
            g.put_back(replace(n, op="Identity", inputs=n.inputs[:1]) if n.op in MARKS else n)
    return g


def find_dependents(g: OnnxGraph, leaves: Sequence[str]) -> set[str]:
    """All values that the leaves change in a differentiable way."""
    reached = set(leaves)
    for node in g.nodes:
        if node.op not in INERT and not is_to_integer(node) and any(i in reached for i in node.inputs):
            reached.update(node.outputs)
        own = g.custom_gradients.get(node.outputs[0])
        if own and any(i in reached for i in own.inputs):
            reached.update(node.outputs)
    return reached


def is_to_integer(node: OnnxNode) -> bool:
    """True for a Cast to integers or booleans."""
    return node.op == "Cast" and node.attributes["to"] != "float"


def find_rule(rules: Mapping[str, Rule], node: OnnxNode) -> Rule:
    """The rule for a node.

    Raises:
        UnsupportedOperator: there is none.
    """
    if node.op not in rules or node.domain not in ("", "ai.onnx"):
        raise UnsupportedOperator(node.op, node.where, ADVICE.get(node.op, ""))
    return rules[node.op]
