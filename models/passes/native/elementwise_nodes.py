"""Which nodes of a graph may be part of an Elementwise node, and which values they read.

A node that compares floats is copied into every group that uses its truth value, for no group returns one. So what a
node reads are the floats behind its truth values. Likewise it reads what is behind a Reshape, which only renames
positions. A sum along the last axes may be the end of a group.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from edge_sdk.models.ir.graph import OnnxGraph
from edge_sdk.models.ir.nodes import OnnxNode
from edge_sdk.models.ir.proto import list_reads
from edge_sdk.models.ir.shapes import Dim, Shape, broadcast, multiply
from edge_sdk.models.ir.value_kinds import COMPARISONS, FLOAT, LOGIC, TRUTH, list_kinds
from edge_sdk.models.passes.native.elementwise_program import is_writable
from edge_sdk.models.passes.native.elementwise_shapes import count_numbers

ACTIVATIONS = frozenset({"Relu", "HardSigmoid", "Clip", "LeakyRelu", "Sigmoid", "Tanh"})
"""Functions that onnxruntime makes part of the convolution before them, if that has no other reader."""


class ElementwiseNodes:
    """The nodes that may be in groups.

    Attributes:
        truths: value -> the comparison that makes it, which is copied where it is used.
        behind: what a Reshape makes -> what it reads, behind all Reshapes before it.
        leaves: output of a node that may be in a group -> the floats that it reads, without single constants.
        runs: the same outputs -> the shape of the node's values; of a sum, before it.
        sums: output of a sum -> how many numbers become one.
        passed: values that all readers see through.
    """

    def __init__(self, g: OnnxGraph, outputs: Collection[str]) -> None:
        self.g, self._kinds = g, list_kinds(g)
        self._makers = {o: n for n in g.nodes for o in n.outputs}
        self._uses = Counter([*(i for n in g.nodes for i in list_reads(n)), *outputs])
        self.truths: dict[str, OnnxNode] = {}
        self.behind: dict[str, str] = {}
        self.leaves: dict[str, list[str]] = {}
        self.runs: dict[str, Shape] = {}
        self.sums: dict[str, Dim] = {}
        self._compared: dict[str, list[str]] = {}
        for n in g.nodes:
            if not n.domain and len(n.outputs) == 1 and all(i in g.shapes for i in [*n.inputs, *n.outputs] if i):
                self._add(n)
        self.passed = ({*self.truths} | {*self.behind}) - {*outputs}
        for n in reversed(g.nodes):
            if n.outputs[0] not in self.leaves and n.outputs[0] not in self.passed:
                self.passed -= list_reads(n)

    def list_sources(self, output: str) -> list[str] | None:
        """The values that a node reads, behind all Reshapes; None: it may not be in a group."""
        found = self.leaves.get(output)
        return None if found is None else [self.behind.get(i, i) for i in found]

    def compares(self, n: OnnxNode) -> bool:
        """True if a node uses a truth value that some comparison makes."""
        return any(i in self.truths for i in n.inputs)

    def _add(self, n: OnnxNode) -> None:
        """Note a comparison of floats, a Reshape of floats, or a node that may be in a group."""
        out, shape = n.outputs[0], self.g.shape(n.outputs[0])
        if n.op == "Reshape":
            x, count = n.inputs[0], count_numbers(shape)
            if self._kinds[x] == FLOAT and x not in self.g.constants and count_numbers(self.g.shape(x)) == count:
                self.behind[out] = self.behind.get(x, x)
            return
        if n.op == "ReduceSum":
            self._add_sum(n)
            return
        found = self._list_leaves(n)
        if found is None:
            return
        if n.op in COMPARISONS | LOGIC:
            self.truths[out], self._compared[out] = n, found
        elif self._kinds[out] == FLOAT and is_writable(self.g, n) and not self._is_activation_of_layer(n):
            whole: Shape = ()
            for i in found:
                whole = broadcast(whole, self.g.shape(i))
            if found and whole == shape and count_numbers(shape) is not None:
                self.leaves[out], self.runs[out] = found, shape

    def _add_sum(self, n: OnnxNode) -> None:
        """Note a sum along the last axes."""
        (x, *_), out = n.inputs, n.outputs[0]
        summed = find_summed(self.g, n)
        if self._kinds[x] == FLOAT and x not in self.g.constants and summed not in (None, 1):
            self.leaves[out], self.runs[out], self.sums[out] = [x], self.g.shape(x), summed or 1

    def _list_leaves(self, n: OnnxNode) -> list[str] | None:
        """The floats behind a node's inputs; None: some are neither floats nor comparisons of floats."""
        found: dict[str, None] = {}
        for place, name in enumerate(n.inputs):
            kind, array = self._kinds.get(name, ""), self.g.constants.get(name)
            if not name:
                continue
            if kind != (TRUTH if is_truth(n, place) else FLOAT) and not (n.op == "Equal" and kind == TRUTH):
                return None
            if array is not None:
                found |= {} if array.size == 1 else {name: None}
            elif kind == TRUTH and name not in self.truths:
                return None
            else:
                found |= dict.fromkeys(self._compared.get(name, [name]))
        return list(found)

    def _is_activation_of_layer(self, n: OnnxNode) -> bool:
        """True if onnxruntime makes a node part of the convolution that it follows."""
        before = self._makers.get(n.inputs[0])
        alone = self._uses[n.inputs[0]] == 1
        return n.op in ACTIVATIONS and before is not None and alone and before.op == "Conv" and not before.domain


def find_summed(g: OnnxGraph, n: OnnxNode) -> Dim | None:
    """The numbers that become one in a sum along the last axes; None: it goes along others."""
    shape, given = g.shape(n.inputs[0]), g.constants.get(n.inputs[1]) if len(n.inputs) > 1 else None
    if given is None or not given.size or count_numbers(shape) is None:
        return None
    axes = {int(a) % len(shape) for a in given}
    last = shape[min(axes) :]
    return multiply(last) if all(a in axes or shape[a] == 1 for a in range(min(axes), len(shape))) else None


def is_truth(n: OnnxNode, place: int) -> bool:
    """True if a node takes a truth value at this place of its inputs."""
    return n.op in LOGIC or n.op == "Cast" or (n.op == "Where" and place == 0)
