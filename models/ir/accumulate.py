"""Sums of adjoints.

The adjoint of a value that is read in several places is the sum of its readers' adjoints. Where the readers took
disjoint slices (query, key and value of attention; the gates of a recurrence), each adjoint is a slice with zeros
around it. Putting the slices side by side gives the same sum, with one copy instead of a padded copy and an addition
per reader.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edge_sdk.models.ir.graph import OnnxGraph
from edge_sdk.models.ir.nodes import OnnxNode


@dataclass(frozen=True)
class PaddedSlice:
    """A value that is `part` at [start, end) of one axis of length `size`, and zero elsewhere."""

    part: str
    axis: int
    start: int
    end: int
    size: int


def add_adjoints(g: OnnxGraph, adjoints: Sequence[str]) -> str:
    """The sum of all adjoints of one value."""
    joined = join_slices(g, adjoints) if len(adjoints) > 1 else None
    if joined:
        return joined
    out = adjoints[0]
    for other in adjoints[1:]:
        out = g.add(out, other)
    return out


def join_slices(g: OnnxGraph, adjoints: Sequence[str]) -> str | None:
    """The sum as one Concat, or None if the adjoints do not fill one axis without overlap."""
    placed = [find_slice(g, g.makers.get(a)) for a in adjoints]
    if any(p is None for p in placed):
        return None
    parts = sorted((p for p in placed if p), key=lambda p: p.start)
    ends = [0, *(p.end for p in parts)]
    fits = all(p.start == end for p, end in zip(parts, ends, strict=False)) and ends[-1] == parts[0].size
    if not fits or len({p.axis for p in parts}) != 1:
        return None
    return g.concat([p.part for p in parts], parts[0].axis)


def find_slice(g: OnnxGraph, n: OnnxNode | None) -> PaddedSlice | None:
    """The slice that a node put zeros around along one axis; None for other nodes."""
    if n is None or n.op != "Pad" or len(n.inputs) != 2 or "mode" in n.attributes:
        return None
    both, rank = g.constants[n.inputs[1]].tolist(), g.rank(n.outputs[0])
    axes = [i for i in range(rank) if both[i] or both[rank + i]]
    if len(axes) != 1 or min(both) < 0:
        return None
    axis, size = axes[0], g.shape(n.outputs[0])[axes[0]]
    if not isinstance(size, int):
        return None
    return PaddedSlice(n.inputs[0], axis, both[axis], size - both[rank + axis], size)
