"""Marks with a gradient: functions with a backward pass of their own, and results whose losses are added."""

from __future__ import annotations

from dataclasses import replace

from edge_sdk.models.ir.errors import UnsupportedPattern
from edge_sdk.models.ir.graph import OnnxGraph
from edge_sdk.models.ir.marks import HEADS, OWN_GRADIENT
from edge_sdk.models.ir.nodes import OnnxNode, ScanBody
from edge_sdk.models.ir.proto import list_reads, select_needed
from edge_sdk.models.rules.table import Adjoints, Want, rule


@rule(OWN_GRADIENT)
def own_gradient(g: OnnxGraph, n: OnnxNode, gy: str, want: Want) -> Adjoints:
    """The nodes that were traced for a cotangent, written for this one."""
    count = (len(n.inputs) - 2) // 2
    inputs, found = n.inputs[2 : 2 + count], n.inputs[2 + count :]
    wanted = [f for f, w in zip(found, want[2:], strict=False) if w]
    made = dict(zip(wanted, write_again(g, n.inputs[1], gy, wanted), strict=True))
    adjoints = [made[f] if w else None for f, w in zip(found, want[2:], strict=False)]
    return [None, None, *(g.unbroadcast(a, g.shape(x)) if a else None for a, x in zip(adjoints, inputs, strict=True))]


@rule(HEADS)
def heads(g: OnnxGraph, n: OnnxNode, gy: str, want: Want) -> Adjoints:
    """The adjoint of the first; those of the others are seeds, as they have losses of their own."""
    return [gy]


def write_again(g: OnnxGraph, old: str, new: str, results: list[str]) -> list[str]:
    """Append the nodes between `old` and `results` once more, with `new` (of the same shape) in the place of `old`.

    Returns:
        the new results; those that `old` does not change as they are.

    Raises:
        UnsupportedPattern: there is a loop among the nodes.
    """
    names = {old: new}
    for n in select_needed(g, results):
        if names.keys().isdisjoint(list_reads(n)):
            continue
        if any(isinstance(v, ScanBody) for v in n.attributes.values()):
            raise UnsupportedPattern(f"{n.op} in a backward pass of its own", n.where, "write it without a loop")
        made = {o: g.new_name(n.op.lower()) for o in n.outputs}
        g.put_back(replace(n, inputs=[names.get(i, i) for i in n.inputs], outputs=[*made.values()], call=None))
        g.shapes.update({made[o]: g.shapes[o] for o in n.outputs if o in g.shapes})
        names |= made
    return [names.get(r, r) for r in results]
