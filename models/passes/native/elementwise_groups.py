"""Chooses which elementwise nodes become one: those that have most to read and write in common, first.

A group reads each value once, and does not write what nobody else reads. So of all pairs of neighbours of one size the
pair that saves most passes over memory is joined first, as long as nothing outside lies on a way from one to the other:
that would have to run in the middle of the group.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from edge_sdk.models.ir.graph import OnnxGraph
from edge_sdk.models.ir.proto import list_reads
from edge_sdk.models.ir.shapes import Dim, Shape
from edge_sdk.models.passes.native.elementwise_nodes import ElementwiseNodes
from edge_sdk.models.passes.native.elementwise_shapes import count_numbers, refine

NEAR = 64
"""Nodes between two that are joined in any case: of those further apart, no value may have to live longer."""
MOST = 12
"""Values as large as a group's that it reads: all of them are there at once."""


@dataclass
class Unit:
    """Nodes that run as one.

    Attributes:
        count: of numbers that the nodes run over; None for a node that joins no other. shape: that all can be read in.
        places: of the nodes in the graph. reads, writes: values, behind Reshapes.
        ancestors: bits of the places of all nodes that must run before.
    """

    count: Dim | None
    shape: Shape
    places: list[int]
    reads: set[str]
    writes: set[str]
    ancestors: int = 0
    bits: int = field(init=False)

    def __post_init__(self) -> None:
        self.bits = sum(1 << i for i in self.places)


class Grouping:
    """Units of a graph, which are joined one pair after the other.

    Args:
        found: the nodes that may be in a group. outputs: of the graph.

    Attributes:
        units: the place of a unit's first node in the graph -> the unit.
    """

    def __init__(self, g: OnnxGraph, found: ElementwiseNodes, outputs: Collection[str]) -> None:
        self.g, self.found, self.outputs = g, found, frozenset(outputs)
        self._counts = {name: count_numbers(shape) for name, shape in g.shapes.items()}
        self.units: dict[int, Unit] = {}
        self._home: dict[str, int] = {}
        """Value -> the unit that makes it."""
        self._readers = defaultdict[str, set[int]](set)
        self._versions = defaultdict[int, int](int)
        for place, n in enumerate(g.nodes):
            if n.outputs[0] in found.passed:
                continue
            sources, shape = found.list_sources(n.outputs[0]), found.runs.get(n.outputs[0], ())
            taken = list_reads(n) if sources is None else set(sources)
            count = None if sources is None else count_numbers(shape)
            unit = Unit(count, shape, [place], taken, set(n.outputs))
            for key in {self._home[i] for i in taken if i in self._home}:
                unit.ancestors |= self.units[key].ancestors | self.units[key].bits
            self.units[place] = unit
            self._home |= dict.fromkeys(n.outputs, place)
            for i in taken:
                self._readers[i].add(place)

    def join_all(self) -> None:
        """Join pairs, those that save most first, until no more can be joined."""
        queue = [entry for key in self.units for entry in self._list_pairs(key) if entry[1] < entry[2]]
        heapq.heapify(queue)
        while queue:
            _, a, b, version = heapq.heappop(queue)
            if version != (self._versions[a], self._versions[b]) or not self._is_legal(a, b):
                continue
            key = self._join(a, b)
            for entry in self._list_pairs(key):
                heapq.heappush(queue, entry)

    def list_groups(self) -> list[Unit]:
        """The units of several nodes, or of one and a comparison that it reads."""
        units = [unit for unit in self.units.values() if unit.count is not None]
        return [u for u in units if len(u.places) > 1 or self.found.compares(self.g.nodes[u.places[0]])]

    def find_members(self, output: str) -> set[str]:
        """What the nodes make that run as one with the node of this output."""
        return self.units[self._home[output]].writes if output in self._home else set()

    def is_read_outside(self, value: str) -> bool:
        """True if the graph returns a value, or another unit than its own reads it."""
        return value in self.outputs or bool(self._readers[value])

    def _list_pairs(self, key: int) -> Iterator[tuple[int, int, int, tuple[int, int]]]:
        """The neighbours with which a unit saves something: (minus the passes saved, the two, their versions)."""
        unit, near = self.units[key], set[int]()
        if unit.count is None:
            return
        for value in unit.reads:
            near |= {self._home[value]} if value in self._home else set()
            near |= self._readers[value] if self._is_large(value, unit) else set()
        for value in unit.writes:
            near |= self._readers[value]
        for other in sorted(near - {key}):
            saved = self._count_saved(key, other) if self.units[other].count == unit.count else 0
            if saved:
                a, b = sorted((key, other))
                yield -saved, a, b, (self._versions[a], self._versions[b])

    def _count_saved(self, a: int, b: int) -> int:
        """Passes over a value as large as the units' that are saved if they are one; 0: values would live longer."""
        first, second = sorted((self.units[a], self.units[b]), key=lambda unit: unit.places)
        shared = {v for v in first.reads & second.reads if v not in self.g.constants and self._is_large(v, first)}
        passed = (first.writes & second.reads) | (second.writes & first.reads)
        inside = [v for v in passed if v not in self.outputs and self._readers[v] <= {a, b}]
        saved = len(shared) + len(passed) + len(inside)
        if second.places[0] - first.places[-1] <= NEAR:
            return saved
        kept = [v for v in first.reads if self._is_large(v, first) and not self._is_read_from(v, second.places[0])]
        return saved if saved > 1 and len(kept) <= len(inside) else 0

    def _is_large(self, value: str, unit: Unit) -> bool:
        """True if a value has as many numbers as those of a unit."""
        return self._counts.get(value) == unit.count

    def _is_read_from(self, value: str, place: int) -> bool:
        """True if a node at this place, or after it, reads a value."""
        return any(self.units[key].places[-1] >= place for key in self._readers[value])

    def _is_legal(self, a: int, b: int) -> bool:
        """True if both have a shape in common, and no way from one to the other leads over a third, or a sum."""
        one, other = self.units[a], self.units[b]
        passed = (one.writes & other.reads) | (other.writes & one.reads)
        large = [v for v in (one.reads | other.reads) - passed if self._is_large(v, one)]
        if len(large) > MOST or refine(one.shape, other.shape) is None or not passed.isdisjoint(self.found.sums):
            return False
        for first, last in ((a, b), (b, a)):
            before = {self._home[v] for v in self.units[last].reads if v in self._home} - {a, b}
            if any(self.units[key].ancestors & self.units[first].bits for key in before):
                return False
        return True

    def _join(self, a: int, b: int) -> int:
        """Make two units one; its key is that of the first."""
        one, other = self.units[a], self.units.pop(b)
        writes = one.writes | other.writes
        shape, places = refine(one.shape, other.shape) or one.shape, sorted(one.places + other.places)
        joined = Unit(one.count, shape, places, (one.reads | other.reads) - writes, writes)
        joined.ancestors = (one.ancestors | other.ancestors) & ~joined.bits
        self.units[a] = joined
        for value in one.reads | other.reads:
            self._readers[value] -= {a, b}
        for value in joined.reads:
            self._readers[value].add(a)
        self._home |= dict.fromkeys(other.writes, a)
        for unit in self.units.values():
            if unit.ancestors & joined.bits:
                unit.ancestors |= joined.ancestors | joined.bits
        self._versions[a] += 1
        self._versions[b] += 1
        return a
