"""The order of the nodes in a file. It decides when a runtime computes what, and so how much memory it needs.

onnxruntime walks back from the outputs; of a node's inputs it visits first the one made by the last node in the file.
If nothing is changed, that is the gradient of the first layer: the whole backward chain runs while every activation and
adjoint is held, and only then all weight gradients are made. So the pieces of the gradient become the last nodes of the
file, those that can be made first at the very end. Then the walk starts with the last layer, and each weight gradient
is made as soon as its adjoint is there. (The order of the layout would nearly do, but torch names the norms of a
transformer's layer after all its products.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from edge_sdk.models.ir.graph import OnnxGraph
from edge_sdk.models.ir.nodes import OnnxNode
from edge_sdk.models.ir.proto import list_reads

MOVES = frozenset({"Reshape", "Transpose", "Identity"})


def move_gradients_last(g: OnnxGraph, grad: str = "grad") -> None:
    """Move the nodes that make the pieces of the gradient to the end, in place; every value stays the same."""
    makers = {o: n for n in g.nodes for o in n.outputs}
    joined = makers[makers[grad].inputs[0]] if makers[grad].op == "Identity" else makers[grad]
    if joined.op != "Concat":
        return
    count = Counter(i for n in g.nodes for i in list_reads(n))
    place = {id(n): i for i, n in enumerate(g.nodes)}
    pieces = [makers[i] for i in joined.inputs if count[i] == 1 and len(makers[i].outputs) == 1]
    pieces.sort(key=lambda n: place[id(find_computing_node(n, makers))], reverse=True)
    last = {id(n) for n in [*pieces, joined, makers[grad]]}
    rest = [n for n in g.nodes if id(n) not in last]
    g.nodes = remove_repeats([*rest, *pieces, joined, makers[grad]])


def find_computing_node(n: OnnxNode, makers: Mapping[str, OnnxNode]) -> OnnxNode:
    """The node that computes the values that `n` only moves."""
    while n.op in MOVES and n.inputs[0] in makers:
        n = makers[n.inputs[0]]
    return n


def remove_repeats(nodes: list[OnnxNode]) -> list[OnnxNode]:
    """The nodes without repetitions, in the same order."""
    return list({id(n): n for n in nodes}.values())
