"""Values that groups compute again instead of reading them: a product or a sum costs less than a pass over memory.

Where a group writes a value that only other groups read, and these read what it is made of anyway, or can read that in
its place, nobody needs to write it.
"""

from __future__ import annotations

from edge_sdk.models.ir.shapes import Shape
from edge_sdk.models.passes.elementwise_groups import Grouping, Unit
from edge_sdk.models.passes.elementwise_shapes import refine

CHEAP = frozenset({"Add", "Sub", "Mul", "Neg", "Abs", "Max", "Min", "Relu", "HardSigmoid", "Cast", "Where"})
MOST = 4
"""Nodes that are repeated for a value."""


def repeat_cheap_nodes(grouping: Grouping) -> None:
    """Let groups compute cheap values of other groups again, in place, where that saves passes over memory."""
    groups = {id(unit) for unit in grouping.list_groups()}
    for unit in list(grouping.units.values()):
        if id(unit) in groups:
            for place in unit.places:
                value = grouping.g.nodes[place].outputs[0]
                if grouping.is_large(value, unit) and value not in grouping.outputs and grouping.readers[value]:
                    repeat(grouping, unit, value, groups)
    left = True
    while left:
        left = any([leave_out_unread(grouping, key) for key, unit in grouping.units.items() if id(unit) in groups])


def repeat(grouping: Grouping, unit: Unit, value: str, groups: set[int]) -> None:
    """Let all readers of a value compute it, if all are groups and that saves passes."""
    keys = sorted(grouping.readers[value])
    readers, nodes = [grouping.units[key] for key in keys], find_cheap_nodes(grouping, unit, value)
    if nodes is None or any(id(reader) not in groups or reader.count != unit.count for reader in readers):
        return
    places, sources = nodes
    shapes = [merge_shapes(grouping, reader, places) for reader in readers]
    large = {v for v in sources if v not in grouping.g.constants and grouping.is_large(v, unit)}
    more = sum(len(large - reader.reads) - 1 for reader in readers)
    if more > 0 or None in shapes or any(lives_longer(grouping, large, reader) for reader in readers):
        return
    for key, reader, shape in zip(keys, readers, shapes, strict=True):
        reader.copies |= places
        reader.shape = shape or reader.shape
        reader.reads = (reader.reads - {value}) | sources
        for source in sources:
            grouping.readers[source].add(key)
    grouping.readers[value] -= set(keys)


def find_cheap_nodes(grouping: Grouping, unit: Unit, value: str) -> tuple[set[int], set[str]] | None:
    """The places of a unit's nodes that make a value, and what they read from outside; None: they cost too much."""
    nodes, found = grouping.g.nodes, grouping.found
    makers = {nodes[i].outputs[0]: i for i in (*unit.places, *unit.copies)}
    places, sources, waiting = set[int](), set[str](), [value]
    while waiting:
        one = waiting.pop()
        if one not in makers:
            sources.add(one)
        elif makers[one] not in places:
            places.add(makers[one])
            waiting += found.list_sources(one) or []
    return None if len(places) > MOST or any(nodes[i].op not in CHEAP for i in places) else (places, sources)


def merge_shapes(grouping: Grouping, reader: Unit, places: set[int]) -> Shape | None:
    """A shape in which a unit can run with further nodes."""
    shape = reader.shape
    for i in places:
        merged = refine(shape, grouping.found.runs[grouping.g.nodes[i].outputs[0]])
        if merged is None:
            return None
        shape = merged
    return shape


def lives_longer(grouping: Grouping, large: set[str], reader: Unit) -> bool:
    """True if more than one of these values is there at the place of a unit only because that reads it."""
    return sum(not grouping.is_read_from(v, reader.places[0]) for v in large) > 1


def leave_out_unread(grouping: Grouping, key: int) -> bool:
    """Leave out the nodes of a unit whose values nobody reads any more; True if there were some."""
    unit, nodes, needed = grouping.units[key], grouping.g.nodes, set[str]()
    kept = set[int]()
    for place in sorted({*unit.places, *unit.copies}, reverse=True):
        output = nodes[place].outputs[0]
        if output in needed or (output in unit.writes and grouping.is_read_outside(output)):
            kept.add(place)
            needed |= {*(grouping.found.list_sources(output) or [])}
    made = {nodes[i].outputs[0] for i in kept}
    reads = needed - made
    if len(kept) == len(unit.places) + len(unit.copies):
        return False
    for value in unit.reads - reads:
        grouping.readers[value].discard(key)
    unit.places, unit.copies, unit.reads = [i for i in unit.places if i in kept], unit.copies & kept, reads
    unit.writes = {nodes[i].outputs[0] for i in unit.places}
    return True
