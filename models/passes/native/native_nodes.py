"""Puts operators of the library auscult-native in the place of what the rules wrote with standard ones.

A rule that knows such an operator says which native nodes could make the values that it has written
(`OnnxGraph.native`, rules/windows/native.py); here they take the place of the nodes that make them now:
    LstmLoop            h0, c0, gx, r                           -> last_h, last_c, iof, m, tanh_c, before, h
    LstmLoopGradient    dh, dc, dy, iof, m, tanh_c, before, r   -> dh0, dc0, adjoint of gx
    GruLoop             h0, gx, r, bh                           -> last_h, zr, m, ghm, h
    GruLoopGradient     dh, dy, zr, m, ghm, before, r           -> dh0, adjoints of gh and of gx
    ConvWeightGradient  x, gy                                   -> adjoint of the weights
A Scan has some ten nodes a step, and to start each of them takes onnxruntime as long as to compute a small one; the
loops take gates as they are, so that no slopes are prepared. The gradient of a convolution's weights needs what each of
its taps sees: many times as large as its input, and gathered here a piece at a time, in the cache.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping

from edge_sdk.models.derive.targets import Target
from edge_sdk.models.ir.graph import OnnxGraph
from edge_sdk.models.ir.nodes import OnnxNode
from edge_sdk.models.ir.proto import list_reads, select_needed


def use_native_nodes(target: Target) -> Target | None:
    """A finished graph with all native nodes that it has use for; None: there are none."""
    g = copy.deepcopy(target.graph)
    g.nodes = select_needed(g, target.outputs)
    old = {o: n for n in g.nodes for o in n.outputs if o}
    new = choose_native(g, old)
    g.native = []
    for n in g.nodes:
        n.outputs = [give_way(g, o) if o in new else o for o in n.outputs]
    g.nodes = sort_nodes(old, new)
    g.nodes = select_needed(g, target.outputs)
    native = {id(n) for n in new.values() if n.domain}
    if not any(id(n) in native for n in g.nodes):
        return None
    return Target(g, target.outputs, target.slots)


def choose_native(g: OnnxGraph, makers: Mapping[str, OnnxNode]) -> dict[str, OnnxNode]:
    """Value -> the node of the native form that makes it, where all that it reads is there: gradients may be left out.

    A node of ONNX alone moves what others make or read; if that is there, and nothing of it is new, it stays as it is.
    """
    there, found = {*g.inputs, *g.constants, *makers}, dict[str, OnnxNode]()
    for nodes in g.native:
        within = {o for n in nodes for o in n.outputs}
        changes = any(n.domain for n in nodes) or not within <= makers.keys()
        changes = changes or any(i in found for n in nodes for i in n.inputs)
        if changes and all(i in there or i in within for n in nodes for i in n.inputs):
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
    """Put a node behind those whose values it reads.

    Raises:
        ValueError: one of them reads what is made of its own values.
    """
    waiting: dict[int, OnnxNode] = {id(n): n}
    while waiting:
        key, one = next(reversed(waiting.items()))
        missing = [makers[i] for i in sorted(list_reads(one)) if i in makers and id(makers[i]) not in done]
        if not missing:
            done[key] = waiting.pop(key)
        elif id(missing[0]) in waiting:
            raise ValueError(f"{one.op} and {missing[0].op} read each other's values")
        else:
            waiting[id(missing[0])] = missing[0]
