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

from edge_sdk.models.derive.targets import Target
from edge_sdk.models.derive.tensors import rename
from edge_sdk.models.ir.graph import OnnxGraph
from edge_sdk.models.ir.nodes import OnnxNode
from edge_sdk.models.ir.proto import list_reads, select_needed
from edge_sdk.models.ir.shapes import reshape_sizes
from edge_sdk.models.passes.native.elementwise_groups import Grouping, Unit
from edge_sdk.models.passes.native.elementwise_nodes import ElementwiseNodes
from edge_sdk.models.passes.native.elementwise_prepare import drop_identities, skip_expansions, write_composites
from edge_sdk.models.passes.native.elementwise_shapes import count_numbers
from edge_sdk.models.passes.native.elementwise_writer import GroupWriter


def fuse_elementwise(target: Target) -> Target | None:
    """The graph with groups of elementwise nodes as one node each; None: there is no group.

    A batch normalisation, a product with one vector and a mean are parts of groups as products, sums and quotients; but
    they stay one node where a group would have nothing else.
    """
    g, composites, grouping = group(target, ())
    alone = [o for o, parts in composites.items() if grouping.find_members(parts[-1]) <= {*parts}]
    if alone:
        g, composites, grouping = group(target, alone)
    groups = grouping.list_groups()
    if not groups:
        return None
    write_groups(g, grouping, groups, target.outputs)
    merge_reshapes(g, target.outputs)
    g.nodes = select_needed(g, target.outputs)
    return Target(g, target.outputs, target.slots)


def group(target: Target, leave: Collection[str]) -> tuple[OnnxGraph, dict[str, list[str]], Grouping]:
    """A copy of the graph, what became of some nodes (see `write_composites`), and its nodes in groups."""
    g = copy.deepcopy(target.graph)
    g.nodes = select_needed(g, target.outputs)
    drop_identities(g, target.outputs)
    skip_expansions(g)
    composites = write_composites(g, leave)
    g.nodes = select_needed(g, target.outputs)
    grouping = Grouping(g, ElementwiseNodes(g, target.outputs), target.outputs)
    grouping.join_all()
    return g, composites, grouping


def write_groups(g: OnnxGraph, grouping: Grouping, groups: Sequence[Unit], outputs: Collection[str]) -> None:
    """Replace the members of groups by one node each, in place; nodes that nobody reads any more may be left."""
    writer = GroupWriter(g, grouping.found, outputs)
    placed, gone = defaultdict[int, list[OnnxNode]](list), set[str]()
    for unit in groups:
        members = [g.nodes[i] for i in unit.places]
        gone |= unit.writes
        results = [o for n in members for o in n.outputs if grouping.is_read_outside(o)]
        placed[unit.places[-1]] = writer.write(members, results, unit.shape)
    for place, n in enumerate(g.nodes):
        if n.outputs[0] not in gone:
            placed[place].append(n)
    g.nodes = sort([n for place in sorted(placed) for n in placed[place]])


def merge_reshapes(g: OnnxGraph, outputs: Collection[str]) -> None:
    """Let a Reshape of a Reshape read what the first one reads, and leave out those that change nothing, in place."""
    behind: dict[str, str] = {}
    names: dict[str, str] = {}
    for n in g.nodes:
        if n.op != "Reshape" or n.domain or any(i not in g.shapes for i in (n.inputs[0], n.outputs[0])):
            continue
        x, out = names.get(n.inputs[0], n.inputs[0]), n.outputs[0]
        x, count = behind.get(x, x), count_numbers(g.shape(out))
        if count is None or count != count_numbers(g.shape(x)):
            continue
        behind[out] = x
        if g.shape(x) == g.shape(out) and out not in outputs:
            names[out] = x
        elif x != n.inputs[0]:
            n.inputs = [x, g.ints(reshape_sizes(g.shape(out)))]
    g.nodes = [n for n in g.nodes if n.outputs[0] not in names]
    rename(g.nodes, names)


def sort(nodes: Sequence[OnnxNode]) -> list[OnnxNode]:
    """The nodes in an order in which each follows those that it reads from, else as they are.

    Raises:
        ValueError: there is none.
    """
    home = {o: i for i, n in enumerate(nodes) for o in n.outputs if o}
    before = [{home[v] for v in list_reads(n) if v in home} for n in nodes]
    after = defaultdict[int, list[int]](list)
    for i, places in enumerate(before):
        for place in places:
            after[place].append(i)
    waits, ready = [len(places) for places in before], [i for i, places in enumerate(before) if not places]
    done = list[OnnxNode]()
    while ready:
        i = heapq.heappop(ready)
        done.append(nodes[i])
        for reader in after[i]:
            waits[reader] -= 1
            if not waits[reader]:
                heapq.heappush(ready, reader)
    if len(done) < len(nodes):
        raise ValueError("groups of elementwise nodes read each other's values")
    return done
