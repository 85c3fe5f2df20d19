"""Writes groups of elementwise nodes as one node each, in the shapes that need the fewest Reshapes around them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from edge_sdk.model.forms import NATIVE_DOMAIN
from edge_sdk.models.ir.graph import OnnxGraph
from edge_sdk.models.ir.nodes import OnnxNode
from edge_sdk.models.ir.proto import list_reads
from edge_sdk.models.ir.shapes import Shape, as_numbers, broadcast, reshape_sizes
from edge_sdk.models.passes.native.elementwise_nodes import ElementwiseNodes
from edge_sdk.models.passes.native.elementwise_program import ProgramWriter
from edge_sdk.models.passes.native.elementwise_shapes import count_axes, count_numbers, spread

Found = TypeVar("Found")


@dataclass(frozen=True)
class Leaf:
    """A value that a node of a group reads from outside.

    Attributes:
        name: as the node reads it. source: the value behind its Reshapes. member: output of the node.
    """

    name: str
    source: str
    member: str


class GroupWriter:
    """Writes the groups of one graph.

    Args:
        found: the nodes that may be in groups. outputs: of the graph.
    """

    def __init__(self, g: OnnxGraph, found: ElementwiseNodes, outputs: Collection[str]) -> None:
        self.g, self.found = g, found
        self._reshaped = {(source, g.shape(name)): name for name, source in found.behind.items()}
        self._wanted = defaultdict[str, set[Shape]](set)
        """Value -> the shapes in which nodes that are in no group read it."""
        own, others = [o for o in outputs if o in g.shapes], found.passed | found.leaves.keys() | found.behind.keys()
        for n in g.nodes:
            if n.outputs[0] not in others:
                own += [i for i in list_reads(n) if i in g.shapes]
        for name in own:
            self._wanted[found.behind.get(name, name)].add(g.shape(name))

    def write(self, members: Sequence[OnnxNode], outputs: Sequence[str], common: Shape) -> list[OnnxNode]:
        """The node of a group, and new Reshapes around it.

        Args:
            outputs: what members make for others. common: a shape in which all of the group can run.
        """
        leaves, shape = self._list_leaves(members), self._choose_shape(members, outputs, common)
        forms = {leaf: sure(self._form(leaf, shape), leaf.name) for leaf in leaves}
        numbers = {key: i for i, key in enumerate(dict.fromkeys((leaf.source, form) for leaf, form in forms.items()))}
        first = self.g.take_nodes()
        names = dict[int, str]()
        for leaf, form in forms.items():
            names.setdefault(numbers[leaf.source, form], self._find(leaf, form) or self._reshape(leaf, form))
        inputs = self._reach_rank([names[i] for i in range(len(names))], shape)
        made = [self._result_shape(o, shape) for o in outputs]
        results = [
            o if self.g.shape(o) == s else self.g.new_name("elementwise") for o, s in zip(outputs, made, strict=True)
        ]
        self.g.shapes |= dict(zip(results, made, strict=True))
        program = self._write_program(members, outputs, shape, {k: numbers[k.source, f] for k, f in forms.items()})
        self.g.nodes.append(
            OnnxNode("Elementwise", inputs, results, {"program": program}, NATIVE_DOMAIN, members[-1].where)
        )
        for output, result in zip(outputs, results, strict=True):
            if result != output:
                own = self.g.shape(output)
                self.g.op("Reshape", result, self.g.ints(reshape_sizes(own)), shape=own, output=output)
                self._reshaped[output, self.g.shape(result)] = result
        written, self.g.nodes = self.g.nodes, first
        return written

    def _write_program(
        self, members: Sequence[OnnxNode], outputs: Sequence[str], shape: Shape, numbers: dict[Leaf, int]
    ) -> str:
        writer = ProgramWriter(self.g, 1 + max(numbers.values()), self.found.truths, self.found.behind)
        for n in members:
            leaves = {leaf.name: i for leaf, i in numbers.items() if leaf.member == n.outputs[0]}
            summed = self.found.sums.get(n.outputs[0])
            if summed is None:
                writer.write(n, leaves)
            else:
                writer.add_up(n, sure(count_axes(shape, summed), n.outputs[0]), leaves)
        return writer.finish(outputs)

    def _result_shape(self, output: str, shape: Shape) -> Shape:
        """The shape in which a group of this shape returns a value."""
        summed = self.found.sums.get(output)
        return shape if summed is None else shape[: len(shape) - sure(count_axes(shape, summed), output)]

    def _list_leaves(self, members: Sequence[OnnxNode]) -> list[Leaf]:
        """What members read from outside, in order."""
        made, behind = {o for n in members for o in n.outputs}, self.found.behind
        read = [(i, n.outputs[0]) for n in members for i in self.found.leaves[n.outputs[0]]]
        return [Leaf(i, behind.get(i, i), output) for i, output in read if behind.get(i, i) not in made]

    def _choose_shape(self, members: Sequence[OnnxNode], outputs: Sequence[str], common: Shape) -> Shape:
        """The shape with the fewest new Reshapes of those in which the group can run; the first of equals."""
        leaves = self._list_leaves(members)
        count = count_numbers(common)
        full = [self.g.shape(i) for leaf in leaves for i in (leaf.source, leaf.name)]
        sums = [self.found.sums[n.outputs[0]] for n in members if n.outputs[0] in self.found.sums]
        shapes = [self.found.runs[n.outputs[0]] for n in members] + [s for s in full if count_numbers(s) == count]

        def cost(shape: Shape) -> tuple[bool, int]:
            forms = {leaf: self._form(leaf, shape) for leaf in leaves}
            if None in forms.values() or any(count_axes(shape, summed) is None for summed in sums):
                return True, 0  # it does not fit
            new = {(leaf.source, f) for leaf, f in forms.items() if f is not None and not self._is_there(leaf, f)}
            return False, len(new) + sum(len(self._wanted[o] - {self._result_shape(o, shape)}) for o in outputs)

        return min(dict.fromkeys([*shapes, common]), key=cost)

    def _form(self, leaf: Leaf, shape: Shape) -> Shape | None:
        """The shape that a leaf has beside others of `shape`; None: it is none there."""
        return spread(self.g.shape(leaf.name), self.found.runs[leaf.member], shape)

    def _is_there(self, leaf: Leaf, form: Shape) -> bool:
        """True if a leaf in this shape needs no Reshape that no other node needs."""
        found = self._find(leaf, form)
        return found != "" and found not in self.found.passed

    def _find(self, leaf: Leaf, form: Shape) -> str:
        """A value of this shape, but for leading axes of length 1, that is a leaf's already; "" if there is none."""
        for name in (leaf.source, leaf.name):
            shape, array = self.g.shape(name), self.g.constants.get(name)
            fits = strip(shape) == strip(form) and len(shape) <= len(form)
            if fits and (array is None or array.dtype.kind == "f"):
                return name
        return self._reshaped.get((leaf.source, form), "")

    def _reshape(self, leaf: Leaf, form: Shape) -> str:
        """A leaf in a new shape, and truth values as 1 and 0."""
        array = self.g.constants.get(leaf.source)
        if array is not None:
            return self.g.constant(np.reshape(array.astype(np.float64), as_numbers(form)))
        name = self.g.op("Reshape", leaf.source, self.g.ints(reshape_sizes(form)), shape=form)
        self._reshaped[leaf.source, form] = name
        return name

    def _reach_rank(self, inputs: list[str], shape: Shape) -> list[str]:
        """The inputs, the first with more axes if together they have too few for the whole shape."""
        whole: Shape = ()
        for name in inputs:
            whole = broadcast(whole, self.g.shape(name))
        if whole == shape:
            return inputs
        own = strip(self.g.shape(inputs[0]))
        return [self.g.reshape(inputs[0], (1,) * (len(shape) - len(own)) + own), *inputs[1:]]


def strip(shape: Shape) -> Shape:
    """A shape without leading axes of length 1."""
    while shape and shape[0] == 1:
        shape = shape[1:]
    return shape


def sure(found: Found | None, name: str) -> Found:
    """What was found for a value; groups are such that it always is.

    Raises:
        ValueError: it was not.
    """
    if found is None:
        raise ValueError(f"{name} does not fit the shape of its group")
    return found
