"""A view: one value seen as another through reshapes and transposes.

Axes are cut into atoms, the smallest pieces that any reshape on the way separates. A view is the order in which the
atoms of its root are read, and how they are grouped into axes; so a chain of any length is one transpose at most.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from edge_sdk.models.ir.graph import OnnxGraph
from edge_sdk.models.ir.shapes import Dim, Shape, divide_exactly, multiply, reshape_sizes

Atom = int
"""Number of an atom: its index in View.sizes."""


@dataclass(frozen=True)
class View:
    """The value `root` in another arrangement.

    Attributes:
        order: atoms in the order in which the root has them. axes: atoms of each axis of the view. sizes: of each atom.
    """

    root: str
    order: tuple[Atom, ...]
    axes: tuple[tuple[Atom, ...], ...]
    sizes: tuple[Dim, ...]

    @property
    def flat(self) -> list[Atom]:
        return [a for axis in self.axes for a in axis]

    def shape(self) -> Shape:
        return tuple(multiply(self.sizes[a] for a in axis) for axis in self.axes)


def view_whole(root: str, shape: Shape) -> View:
    """A view that shows a value as it is."""
    numbers = tuple(range(len(shape)))
    return View(root, numbers, tuple((n,) for n in numbers), tuple(shape))


def transpose_view(v: View, perm: Sequence[int]) -> View:
    return replace(v, axes=tuple(v.axes[p] for p in perm))


def reshape_view(v: View, shape: Shape) -> View | None:
    """The view in another shape; None where an axis would have to be cut into sizes that do not divide it."""
    rest, axes = v.flat[::-1], []
    for size in shape:
        axis: list[Atom] = []
        while size != 1:
            if not rest:
                return None
            atom = rest.pop()
            left = divide_exactly(size, v.sizes[atom])
            if left is None:
                more = divide_exactly(v.sizes[atom], size)
                if more is None:
                    return None
                v, tail = cut_atom(v, atom, size, more)
                rest.append(tail)
                left = 1
            axis.append(atom)
            size = left
        axes.append(tuple(axis))
    if any(v.sizes[a] != 1 for a in rest):
        return None
    return replace(v, axes=tuple(axes), order=tuple(a for a in v.order if a not in rest))


def cut_atom(v: View, atom: Atom, first: Dim, second: Dim) -> tuple[View, Atom]:
    """Cut an atom in two: the old number stays the outer one, the new number follows it everywhere."""
    tail = len(v.sizes)

    def grown(atoms: tuple[Atom, ...]) -> tuple[Atom, ...]:
        return tuple(n for a in atoms for n in ((a, tail) if a == atom else (a,)))

    sizes = (*(first if a == atom else s for a, s in enumerate(v.sizes)), second)
    return View(v.root, grown(v.order), tuple(grown(axis) for axis in v.axes), sizes), tail


def write_view(g: OnnxGraph, v: View, output: str = "") -> str:
    """Write the view as a value of its own: Reshape, Transpose, Reshape at most."""
    x, shape, runs = v.root, v.shape(), find_runs(v)
    slow_first = sorted(runs, key=lambda r: v.order.index(r[0]))
    if runs != slow_first:
        x = g.reshape(x, [multiply(v.sizes[a] for a in r) for r in slow_first])
        perm = [slow_first.index(r) for r in runs]
        turned = tuple(g.shape(x)[p] for p in perm)
        x = g.op("Transpose", x, perm=perm, shape=turned, output=output if turned == shape else "")
    if g.shape(x) != shape:
        return g.op("Reshape", x, g.ints(reshape_sizes(shape)), shape=shape, output=output)
    return g.op("Identity", x, shape=shape, output=output) if output not in ("", x) else x


def find_runs(v: View) -> list[tuple[Atom, ...]]:
    """Runs of atoms that follow each other in the view as in the root."""
    place = {a: i for i, a in enumerate(a for a in v.order if v.sizes[a] != 1)}
    runs: list[list[Atom]] = []
    for a in (a for a in v.flat if v.sizes[a] != 1):
        if runs and place[a] == place[runs[-1][-1]] + 1:
            runs[-1].append(a)
        else:
            runs.append([a])
    return [tuple(r) for r in runs]
