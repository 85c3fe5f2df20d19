"""Chooses which elementwise nodes become one: those that have most to read and write in common, first.

A group reads each value once, and does not write what nobody else reads. So of all pairs of neighbours, of one shape,
the pair that saves most passes over memory is joined first, as long as nothing outside lies on a way from one to the
other: that would have to run in the middle of the group.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from edge_sdk.models.ir.graph import OnnxGraph
from edge_sdk.models.ir.nodes import OnnxNode
from edge_sdk.models.ir.proto import list_reads
from edge_sdk.models.ir.shapes import Shape

NEAR = 64
"""Nodes between two that are joined for a single pass: further apart, values would live longer."""


@dataclass
class Unit:
    """Nodes that run as one.

    Attributes:
        shape: of all outputs; None for a node that joins no other. places: of the nodes in the graph.
        reads, writes: values. ancestors: bits of the places of all nodes that must run before.
    """

    shape: Shape | None
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
        nodes: in order of execution. reads: output of a node that may be in a group -> what it reads.
        outputs: of the graph.
    """

    def __init__(
        self, g: OnnxGraph, nodes: Sequence[OnnxNode], reads: Mapping[str, Sequence[str]], outputs: Collection[str]
    ) -> None:
        self.g, self.outputs = g, frozenset(outputs)
        self.units: dict[int, Unit] = {}
        self.home: dict[str, int] = {}
        """Value -> the unit that makes it."""
        self.readers = defaultdict[str, set[int]](set)
        self._versions = defaultdict[int, int](int)
        for place, n in enumerate(nodes):
            known = reads.get(n.outputs[0])
            taken = set(known) if known is not None else list_reads(n)
            unit = Unit(g.shape(n.outputs[0]) if known is not None else None, [place], taken, set(n.outputs))
            for key in {self.home[i] for i in taken if i in self.home}:
                unit.ancestors |= self.units[key].ancestors | self.units[key].bits
            self.units[place] = unit
            self.home |= dict.fromkeys(n.outputs, place)
            for i in taken:
                self.readers[i].add(place)

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

    def _list_pairs(self, key: int) -> Iterator[tuple[int, int, int, tuple[int, int]]]:
        """The neighbours with which a unit saves something: (minus the passes saved, the two, their versions)."""
        unit, near = self.units[key], set[int]()
        if unit.shape is None:
            return
        for value in unit.reads:
            near |= {self.home[value]} if value in self.home else set()
            near |= self.readers[value] if self.g.shapes.get(value) == unit.shape else set()
        for value in unit.writes:
            near |= self.readers[value]
        for other in sorted(near - {key}):
            saved = self._count_saved(key, other) if self.units[other].shape == unit.shape else 0
            if saved:
                a, b = sorted((key, other))
                yield -saved, a, b, (self._versions[a], self._versions[b])

    def _count_saved(self, a: int, b: int) -> int:
        """Passes over a value of the units' shape that are saved if they are one."""
        one, other = self.units[a], self.units[b]
        shared = [v for v in one.reads & other.reads if self.g.shapes.get(v) == one.shape]
        passed = (one.writes & other.reads) | (other.writes & one.reads)
        inside = [v for v in passed if v not in self.outputs and self.readers[v] <= {a, b}]
        saved = len(shared) + len(passed) + len(inside)
        return saved if saved > 1 or find_gap(one, other) <= NEAR else 0

    def _is_legal(self, a: int, b: int) -> bool:
        """True if no way from one unit to the other leads over a third."""
        for first, last in ((a, b), (b, a)):
            before = {self.home[v] for v in self.units[last].reads if v in self.home} - {a, b}
            if any(self.units[key].ancestors & self.units[first].bits for key in before):
                return False
        return True

    def _join(self, a: int, b: int) -> int:
        """Make two units one; its key is that of the first."""
        one, other = self.units[a], self.units.pop(b)
        writes = one.writes | other.writes
        joined = Unit(one.shape, sorted(one.places + other.places), (one.reads | other.reads) - writes, writes)
        joined.ancestors = (one.ancestors | other.ancestors) & ~joined.bits
        self.units[a] = joined
        for value in one.reads | other.reads:
            self.readers[value] -= {a, b}
        for value in joined.reads:
            self.readers[value].add(a)
        self.home |= dict.fromkeys(other.writes, a)
        for unit in self.units.values():
            if unit.ancestors & joined.bits:
                unit.ancestors |= joined.ancestors | joined.bits
        self._versions[a] += 1
        self._versions[b] += 1
        return a


def find_gap(a: Unit, b: Unit) -> int:
    """The nodes between two units in the order of the graph; below 0 where they overlap."""
    return max(a.places[0], b.places[0]) - min(a.places[-1], b.places[-1])
