"""Groups of elementwise nodes as one: a second form of a graph, for devices with auscult-native.

onnxruntime runs one node after the other, each over all of its values: of an activation and its slope, every product
and sum goes through memory. An Elementwise node (domain "auscult") has them as a program that runs over a few values
at a time (`elementwise_program.py`); which nodes become one is chosen in `elementwise_groups.py`.
"""

from __future__ import annotations

import copy
import heapq
from collections import defaultdict
from collections.abc import Collection, Sequence

import numpy as np

from edge_sdk.models.derive.targets import Target
from edge_sdk.models.derive.tensors import rename
from edge_sdk.models.ir.graph import OnnxGraph
from edge_sdk.models.ir.nodes import OnnxNode
from edge_sdk.models.ir.proto import list_reads, select_needed
from edge_sdk.models.passes.elementwise_groups import Grouping
from edge_sdk.models.passes.elementwise_nodes import ElementwiseNodes
from edge_sdk.models.passes.elementwise_program import ProgramWriter

DOMAIN = "auscult"


def fuse_elementwise(target: Target) -> Target | None:
    """The graph with groups of elementwise nodes as one node each; None: there is no group."""
    g = copy.deepcopy(target.graph)
    g.nodes = select_needed(g, target.outputs)
    drop_identities(g, target.outputs)
    found = ElementwiseNodes(g, target.outputs)
    nodes = [n for n in g.nodes if n.outputs[0] not in found.copied]
    grouping = Grouping(g, nodes, found.reads, target.outputs)
    grouping.join_all()
    placed, count = dict(enumerate(nodes)), 0
    for unit in grouping.units.values():
        members = [nodes[i] for i in unit.places]
        if unit.shape is None or (len(members) == 1 and not found.compares(members[0])):
            continue
        outputs = [o for n in members for o in n.outputs if grouping.readers[o] or o in target.outputs]
        for i in unit.places:
            del placed[i]
        placed[unit.places[-1]] = write_group(g, members, outputs, found)
        count += 1
    g.nodes = sort([placed[i] for i in sorted(placed)])
    return Target(g, target.outputs, target.slots) if count else None


def drop_identities(g: OnnxGraph, outputs: Collection[str]) -> None:
    """Let all nodes read what an Identity passes on, in place; one that makes an output of the graph stays."""
    names: dict[str, str] = {}
    for n in g.nodes:
        if n.op == "Identity" and not n.domain and n.outputs[0] not in outputs:
            names[n.outputs[0]] = names.get(n.inputs[0], n.inputs[0])
    g.nodes = [n for n in g.nodes if n.outputs[0] not in names]
    rename(g.nodes, names)


def write_group(g: OnnxGraph, members: Sequence[OnnxNode], outputs: Sequence[str], found: ElementwiseNodes) -> OnnxNode:
    """The node that computes what a group returns."""
    made = {o for n in members for o in n.outputs}
    inputs = list(dict.fromkeys(i for n in members for i in found.reads[n.outputs[0]] if i not in made))
    writer = ProgramWriter(g, inputs, found.truths)
    for n in members:
        writer.write(n)
    attributes = {"program": writer.finish(outputs)}
    return OnnxNode("Elementwise", [as_float(g, i) for i in inputs], list(outputs), attributes, DOMAIN)


def as_float(g: OnnxGraph, name: str) -> str:
    """A constant of truth values as 1 and 0; else the name that was given."""
    array = g.constants.get(name)
    return name if array is None or array.dtype.kind != "b" else g.constant(array.astype(np.float64))


def sort(nodes: Sequence[OnnxNode]) -> list[OnnxNode]:
    """The nodes in an order in which each follows those that it reads from, else as they are."""
    home = {o: i for i, n in enumerate(nodes) for o in n.outputs if o}
    before = [{home[v] for v in list_reads(n) if v in home} for n in nodes]
    after = defaultdict[int, list[int]](list)
    for i, places in enumerate(before):
        for place in places:
            after[place].append(i)
    waits, ready, done = (
        [len(places) for places in before],
        [i for i, b in enumerate(before) if not b],
        list[OnnxNode](),
    )
    while ready:
        i = heapq.heappop(ready)
        done.append(nodes[i])
        for reader in after[i]:
            waits[reader] -= 1
            if not waits[reader]:
                heapq.heappush(ready, reader)
    return done
