"""The native form of recurrent layers: whole loops over time as operators of the library auscult-native.

A Scan has some ten nodes a step, and to start each of them takes onnxruntime as long as to compute a small one. The
operators of domain "auscult" do all steps of a layer in one go, and take gates as the forward loop leaves them, so that
no slopes are prepared. `rules/recurrent.py` and `passes/open_lstm.py` say of each loop that they write which native
nodes could make the same values (`OnnxGraph.loops`), and here these take the place of what makes them now:
    LstmLoop          h0, c0, gx, r                                -> last_h, last_c, iof, m, tanh_c, before, h
    LstmLoopGradient  dh, dc, dy, iof, m, tanh_c, before, r        -> dh0, dc0, adjoint of gx
    GruLoop           h0, gx, r, bh                                -> last_h, zr, m, ghm, h
    GruLoopGradient   dh, dy, zr, m, ghm, before, r                -> dh0, adjoints of gh and of gx
"""

from __future__ import annotations

import copy
from collections.abc import Mapping

from edge_sdk.models.derive.targets import Target
from edge_sdk.models.ir.graph import OnnxGraph
from edge_sdk.models.ir.nodes import OnnxNode
from edge_sdk.models.ir.proto import list_reads, select_needed


def use_native_loops(target: Target) -> Target | None:
    """A finished graph with whole loops as operators; None: there are no loops in it."""
    g = copy.deepcopy(target.graph)
    g.nodes = select_needed(g, target.outputs)
    old = {o: n for n in g.nodes for o in n.outputs if o}
    new = choose_loops(g, old)
    if not old.keys() & new.keys():
        return None
    g.native = []
    for n in g.nodes:
        n.outputs = [give_way(g, o) if o in new else o for o in n.outputs]
    g.nodes = sort_nodes(old, new)
    g.nodes = select_needed(g, target.outputs)
    return Target(g, target.outputs, target.slots)


def choose_loops(g: OnnxGraph, makers: Mapping[str, OnnxNode]) -> dict[str, OnnxNode]:
    """Value -> the native node that makes it, for the loops whose inputs are all there: a gradient may be left out."""
    there, found = {*g.inputs, *g.constants, *makers}, dict[str, OnnxNode]()
    for nodes in g.native:
        within = {o for n in nodes for o in n.outputs}
        if all(i in there or i in within for n in nodes for i in n.inputs):
            found.update({o: n for n in nodes for o in n.outputs})
            there |= within
    return found


def give_way(g: OnnxGraph, value: str) -> str:
    """A new name for a value that another node makes from now on."""
    name = g.new_name("old")
    g.shapes[name] = g.shapes[value]
    return name


def sort_nodes(old: Mapping[str, OnnxNode], new: Mapping[str, OnnxNode]) -> list[OnnxNode]:
    """All nodes in the old order, native ones where what they replace was, and each behind those whose values it reads.

    Args:
        old, new: value -> its node, in the order of execution.
    """
    makers, done = {**old, **new}, dict[int, OnnxNode]()
    for value, node in old.items():
        for n in (makers[value], node):
            emit(n, makers, done)
    return list(done.values())


def emit(n: OnnxNode, makers: Mapping[str, OnnxNode], done: dict[int, OnnxNode]) -> None:
    """Put a node behind those whose values it reads."""
    waiting: list[OnnxNode] = [n]
    while waiting:
        one = waiting[-1]
        first = [makers[i] for i in sorted(list_reads(one)) if i in makers and id(makers[i]) not in done]
        waiting += first
        if not first:
            done[id(waiting.pop())] = one
