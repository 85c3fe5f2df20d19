"""Carries reshapes and transposes along as views and writes them only where their value is read.

A chain of them becomes one transpose at most. Two operators work on what lies under a view, so that a transpose around
them disappears (attention as torch exports it puts time first and the batch second, and turns back at its end):
    a linear layer    acts on each row, so the rows stay in the order that they have; its bias goes into the same Gemm
    Gather of one     picks an entry from the axis where it lies in memory
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from edge_sdk.models.ir.graph import OnnxGraph
from edge_sdk.models.ir.nodes import OnnxNode
from edge_sdk.models.ir.proto import list_reads
from edge_sdk.models.ir.shapes import BatchDim, multiply
from edge_sdk.models.ir.views import View, reshape_view, transpose_view, view_whole, write_view

RESHAPES = frozenset({"Reshape", "Squeeze", "Unsqueeze", "Flatten"})


def arrange(g: OnnxGraph, keep: Collection[str], under: bool = False) -> None:
    """Rewrite the whole graph in place.

    Args:
        keep: values that others refer to by name, or differentiate with respect to.
        under: let operators work under views. Only for graphs without a backward pass: that one combines values of
            the forward pass whose rows must be in the same order.
    """
    walk = Arranger(g, keep)
    for n in walk.nodes:
        g.where = n.where
        if not (walk.defer(n) or (under and (walk.write_linear(n) or walk.write_pick(n)))):
            walk.emit(n)
    for name in sorted(keep):
        walk.materialise(name)
    g.where = ""


@dataclass(frozen=True)
class Linear:
    """A linear layer y = x weight' + bias, with a weight (out, in)."""

    x: str
    weight: str
    bias: tuple[str, ...]
    y: str


class Arranger:
    """One walk over the nodes.

    Attributes:
        views: value -> the view that it is of another value. pending: value that is not written yet -> path of its
            module. done: outputs of nodes that have become part of another one.
        makers, users: value -> the node that makes it, the nodes that read it.
        native, given: values that native nodes make, and read. moves: nodes before these that make what they read.
    """

    def __init__(self, g: OnnxGraph, keep: Collection[str]) -> None:
        self.g, self.keep, self.nodes = g, keep, g.take_nodes()
        self.views: dict[str, View] = {}
        self.pending: dict[str, str] = {}
        self.done: set[str] = set()
        self.native = {o for nodes in g.native for n in nodes for o in n.outputs}
        self.given, self.moves = find_moved(g, self.nodes), 0
        self.makers = {o: n for n in self.nodes for o in n.outputs}
        self.users: dict[str, list[OnnxNode]] = {}
        for n in self.nodes:
            for i in list_reads(n):
                self.users.setdefault(i, []).append(n)

    def view(self, name: str) -> View:
        """A value as a view of one that is in memory."""
        return self.views.get(name) or view_whole(name, self.g.shape(name))

    def show(self, name: str, view: View, where: str) -> None:
        """Remember that a value is a view; `where` is the path of its module."""
        self.views[name], self.pending[name] = view, where

    def materialise(self, name: str) -> None:
        """Write a value that is still only a view."""
        if name in self.pending:
            before, self.g.where = self.g.where, self.pending.pop(name)
            write_view(self.g, self.views[name], name)
            self.g.where = before

    def emit(self, n: OnnxNode) -> None:
        """Append a node as it is, behind the views that it reads."""
        if n.outputs[0] in self.done:
            return
        for i in sorted(list_reads(n)):
            self.materialise(i)
        self.g.put_back(n)

    def defer(self, n: OnnxNode) -> bool:
        """Turn a node that only moves values into a view; False for others, and for values to keep."""
        y = n.outputs[0]
        if y in self.keep:
            return False
        if n.op == "Transpose" and not self.is_factor(n):
            x = self.view(n.inputs[0])
            self.show(y, transpose_view(x, n.attributes.get("perm", range(len(x.axes))[::-1])), n.where)
            self.keep_native(n)
            return True
        seen = reshape_view(self.view(n.inputs[0]), self.g.shape(y)) if n.op in RESHAPES else None
        if seen is not None:
            self.show(y, seen, n.where)
            self.keep_native(n)
        return seen is not None

    def keep_native(self, n: OnnxNode) -> None:
        """Keep a node that only moves what native nodes make or read: they make and read no views."""
        y = n.outputs[0]
        if n.inputs[0] in self.native and y not in self.native:
            self.g.native.append((n,))
            self.native.add(y)
        elif y in self.given and y not in self.native:
            self.g.native.insert(self.moves, (n,))
            self.moves += 1

    def is_factor(self, n: OnnxNode) -> bool:
        """True for the matrix transpose of a factor, which onnxruntime makes part of the product."""
        r = self.g.rank(n.inputs[0])
        swap = n.attributes.get("perm", [*range(r)][::-1]) == [*range(r - 2), r - 1, r - 2]
        after = self.users.get(n.outputs[0], [])
        return swap and bool(after) and all(u.op in ("MatMul", "Gemm") for u in after)

    def write_linear(self, n: OnnxNode) -> bool:
        """Write a linear layer as a Gemm on rows in the order in which they lie in memory; False for other nodes."""
        layer = self.as_linear(n)
        if layer is None or (n.op == "Gemm" and layer.x not in self.pending):
            return False
        view = self.view(layer.x) if layer.x in self.pending else view_whole(layer.x, self.g.shape(layer.x))
        rows = tuple(sorted((a for axis in view.axes[:-1] for a in axis), key=view.order.index))
        for i in (layer.weight, *layer.bias):
            self.materialise(i)
        x = write_view(self.g, replace(view, axes=(rows, view.axes[-1])))
        outputs = self.g.numbers(layer.weight)[0]
        as_it_is = view.axes[:-1] == (rows,)
        y = self.g.op(
            "Gemm", x, layer.weight, *layer.bias, transB=1, shape=(self.g.shape(x)[0], outputs),
            output=layer.y if as_it_is else "",
        )  # fmt: skip
        last = len(view.sizes)
        if not as_it_is:
            after = View(y, (*rows, last), (*view.axes[:-1], (last,)), (*view.sizes, outputs))
            self.show(layer.y, after, n.where)
        return True

    def as_linear(self, n: OnnxNode) -> Linear | None:
        """The linear layer that starts at a node.

        Torch exports nn.Linear as a Gemm, or as a MatMul with a transposed matrix and perhaps the Add of a bias.
        """
        at = n.attributes
        if n.op == "Gemm":
            plain = at.get("transB") and not at.get("transA") and at.get("alpha", 1) == at.get("beta", 1) == 1
            return Linear(n.inputs[0], n.inputs[1], tuple(n.inputs[2:]), n.outputs[0]) if plain else None
        turned = self.makers.get(n.inputs[1]) if n.op == "MatMul" else None
        if turned is None or turned.op != "Transpose" or self.g.rank(n.inputs[1]) != 2 or self.g.rank(n.inputs[0]) < 2:
            return None
        x, weight, y = n.inputs[0], turned.inputs[0], n.outputs[0]
        then = self.users.get(y, [])
        if (
            len(then) == 1
            and then[0].op == "Add"
            and then[0].inputs[0] == y
            and self.is_bias(then[0].inputs[1], weight)
        ):
            self.done.add(then[0].outputs[0])
            return Linear(x, weight, (then[0].inputs[1],), then[0].outputs[0])
        return Linear(x, weight, (), y)

    def is_bias(self, name: str, weight: str) -> bool:
        """True for a vector of the right length that is there already."""
        there = name in self.views or name in self.g.constants or name in self.g.inputs or name in self.g.makers
        return there and self.g.shape(name) == self.g.shape(weight)[:1]

    def write_pick(self, n: OnnxNode) -> bool:
        """Write a Gather of one entry of an axis that lies in memory as one; False for other nodes."""
        g, index = self.g, n.inputs[1] if n.op == "Gather" else ""
        if index not in g.constants or g.rank(index) or n.inputs[0] not in self.views:
            return False
        view = self.views[n.inputs[0]]
        axis = n.attributes.get("axis", 0) % len(view.axes)
        if len(view.axes[axis]) != 1 or isinstance(view.shape()[axis], BatchDim):
            return False
        at = view.order.index(view.axes[axis][0])
        before, after = view.order[:at], view.order[at + 1 :]
        sizes = [multiply(view.sizes[a] for a in part) for part in (before, view.axes[axis], after)]
        made = g.op("Gather", g.reshape(view.root, sizes), index, axis=1, shape=(sizes[0], sizes[2]))
        rest = View(made, (*before, *after), view.axes[:axis] + view.axes[axis + 1 :], view.sizes)
        self.show(n.outputs[0], rest, n.where)
        return True


def find_moved(g: OnnxGraph, nodes: Sequence[OnnxNode]) -> set[str]:
    """What native nodes read, and what that is a view of."""
    found = {i for group in g.native for n in group for i in n.inputs}
    for n in reversed(nodes):
        if n.op in (*RESHAPES, "Transpose") and n.outputs[0] in found:
            found.add(n.inputs[0])
    return found
