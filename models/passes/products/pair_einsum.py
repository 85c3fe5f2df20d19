"""Writes each Einsum as products of two operands, which is what there is a gradient rule for.

Indices that one operand has alone are summed in it first, and of three operands or more the first two are multiplied,
then that and the next one, as `torch.einsum` does by itself.
"""

from __future__ import annotations

from edge_sdk.models.ir.graph import OnnxGraph
from edge_sdk.models.ir.nodes import OnnxNode

Term = tuple[str, str]
"""The indices of a value, and its name."""


def pair_einsums(g: OnnxGraph) -> None:
    """Rewrite all Einsums of a graph that are no products of two operands already, in place."""
    if not any(n.op == "Einsum" for n in g.nodes):
        return
    for n in g.take_nodes():
        terms, out = read_equation(n)
        if n.op == "Einsum" and terms and not is_product(terms, out):
            g.where = n.where
            write_pairs(g, n, list(zip(terms, n.inputs, strict=True)), out)
        else:
            g.put_back(n)
    g.where = ""


def read_equation(n: OnnxNode) -> tuple[list[str], str]:
    """Indices of the operands, and of the result; no operands where the rule is to say what cannot be done."""
    equation = str(n.attributes.get("equation", "")).replace(" ", "")
    left, arrow, out = equation.partition("->")
    terms = left.split(",")
    if n.op != "Einsum" or "..." in equation or any(len({*term}) != len(term) for term in [*terms, out]):
        return [], ""
    if not arrow:  # all indices that are there once, in the order of the alphabet
        out = "".join(sorted(i for i in {*left} - {","} if left.count(i) == 1))
    return terms, out


def is_product(terms: list[str], out: str) -> bool:
    """Two operands, and no index that is summed in one of them alone?"""
    return len(terms) == 2 and all({*a} <= {*b, *out} for a, b in (terms, terms[::-1]))


def write_pairs(g: OnnxGraph, n: OnnxNode, left: list[Term], out: str) -> None:
    """Append what gives the result of an Einsum."""
    while len(left) > 1:
        (a, b), rest = left[:2], left[2:]
        needed = {*out}.union(*(indices for indices, _ in rest))
        a, b = sum_alone(g, a, {*b[0], *needed}), sum_alone(g, b, {*a[0], *needed})
        kept = out if not rest else "".join(i for i in dict.fromkeys(a[0] + b[0]) if i in needed)
        sizes = dict(zip(a[0], g.shape(a[1]), strict=True))
        sizes |= {i: s for i, s in zip(b[0], g.shape(b[1]), strict=True) if s != 1 or i not in sizes}
        shape = tuple(sizes[i] for i in kept)
        left = [(kept, g.op("Einsum", a[1], b[1], equation=f"{a[0]},{b[0]}->{kept}", shape=shape)), *rest]
    indices, value = sum_alone(g, left[0], {*out})
    if indices != out:
        value = g.transpose(value, [indices.index(i) for i in out])
    g.op("Identity", value, shape=g.shape(value), output=n.outputs[0])


def sum_alone(g: OnnxGraph, term: Term, others: set[str]) -> Term:
    """The value, summed over indices that are nowhere else."""
    indices, value = term
    axes = [k for k, i in enumerate(indices) if i not in others]
    return ("".join(i for i in indices if i in others), g.sum(value, axes)) if axes else term
