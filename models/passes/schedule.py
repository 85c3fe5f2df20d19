"""The order of the nodes in a file, which decides when a runtime computes what, and so how much it holds.

onnxruntime walks back from the outputs, and of a node's inputs first to the one that is made by the last node in the
file. Left alone, that is the gradient of the first layer: the whole backward chain runs, every activation and adjoint
waits, and then all weight gradients are made. With the pieces of the gradient as the last nodes, those that can be made
first at the very end, it starts with the last layer, and each layer's weight gradient is made when its adjoint is. (The
layout's order would nearly do, but torch names the norms of a transformer's layer after all its products.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from models.ir.graph import Graph, Node
from models.ir.proto import reads

MOVES = frozenset({"Reshape", "Transpose", "Identity"})


def gradients_last(g: Graph, grad: str = "grad") -> None:
    """Move the makers of the gradient's pieces to the end, in place. Nothing is computed differently."""
    makers = {o: n for n in g.nodes for o in n.outputs}
    joined = makers[makers[grad].inputs[0]] if makers[grad].op == "Identity" else makers[grad]
    if joined.op != "Concat":
        return
    count = Counter(i for n in g.nodes for i in reads(n))
    place = {id(n): i for i, n in enumerate(g.nodes)}
    pieces = [makers[i] for i in joined.inputs if count[i] == 1 and len(makers[i].outputs) == 1]
    pieces.sort(key=lambda n: place[id(computed(n, makers))], reverse=True)
    last = {id(n) for n in [*pieces, joined, makers[grad]]}
    rest = [n for n in g.nodes if id(n) not in last]
    g.nodes = unique([*rest, *pieces, joined, makers[grad]])


def computed(n: Node, makers: Mapping[str, Node]) -> Node:
    """The node that computes what `n` only moves."""
    while n.op in MOVES and n.inputs[0] in makers:
        n = makers[n.inputs[0]]
    return n


def unique(nodes: list[Node]) -> list[Node]:
    """Each node once."""
    return list({id(n): n for n in nodes}.values())
