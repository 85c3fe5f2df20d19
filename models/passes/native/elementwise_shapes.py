"""The shape in which a group of elementwise nodes runs, where its nodes have several: Reshapes lie between them.

A Reshape only renames positions. So nodes of as many numbers may be one node if their axes can be cut into common
pieces: (4 B, 512) and (B, 4, 512) into the second, but not (4, 6) and (3, 8). A value that is repeated along some axes
keeps all pieces of the others. Ends are the counts of numbers behind which an axis ends, from the last axis on.
"""

from __future__ import annotations

from collections.abc import Iterator

from edge_sdk.models.ir.errors import UnsupportedPattern
from edge_sdk.models.ir.shapes import BatchDim, Dim, Shape, divide_exactly, multiply

ONE: Dim = 1


def count_numbers(shape: Shape) -> Dim | None:
    """The numbers in a value of this shape; None: the batch is in two of its axes, or an axis is empty."""
    try:
        return multiply(shape) if 0 not in shape else None
    except UnsupportedPattern:
        return None


def size_of(d: Dim) -> tuple[bool, int]:
    """What orders counts: those with the batch are the largest."""
    return (True, d.times) if isinstance(d, BatchDim) else (False, d)


def list_axes(shape: Shape) -> Iterator[tuple[int, Dim, Dim]]:
    """(place, end of the axis behind it, its own end) of all axes longer than 1, from the last one on."""
    start = ONE
    for place in reversed(range(len(shape))):
        if shape[place] != 1:
            end = multiply((shape[place], start))
            yield place, start, end
            start = end


def refine(a: Shape, b: Shape) -> Shape | None:
    """The shape of as few axes as possible that has an end wherever `a` or `b` has one; None if there is none."""
    ends = sorted({end for shape in (a, b) for _, _, end in list_axes(shape)}, key=size_of)
    axes, start = list[Dim](), ONE
    for end in ends:
        axis = divide_exactly(end, start)
        if axis is None:
            return None
        axes.append(axis)
        start = end
    return tuple(axes[::-1])


def spread(seen: Shape, shape: Shape, target: Shape) -> Shape | None:
    """The shape that a value has in `target` if it has the shape `seen` where the whole has `shape`.

    Args:
        shape, target: of as many numbers, and with common pieces.

    Returns:
        None: along an axis of `target` it is repeated in part.
    """
    seen = (1,) * (len(shape) - len(seen)) + seen
    moves = [(start, end, seen[place] != 1) for place, start, end in list_axes(shape)]
    found = list[Dim](target)
    for place, start, end in list_axes(target):
        states = {m for low, high, m in moves if size_of(low) < size_of(end) and size_of(start) < size_of(high)}
        if len(states) != 1:
            return None
        if states == {False}:
            found[place] = 1
    return tuple(found)


def count_axes(shape: Shape, count: Dim) -> int | None:
    """The last axes of a shape that have this many numbers, more than one; None: it has no end there."""
    ends = [len(shape) - place for place, _, end in list_axes(shape) if end == count]
    return ends[0] if ends else None
