"""Mixing matrices: a[n, m] is the weight that hospital n puts on the model of hospital m.

All builders return float64 (N, N) matrices that `checked` accepts: nothing negative, rows and columns that sum to 1.
Then mixing preserves the sum of all models, and a mixed model lies in the convex hull of the models.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from edge_sdk.errors import UsageError

Matrix = npt.NDArray[np.float64]
Edge = tuple[str, str]

TOLERANCE = 1e-12
GRAPHS = ("complete", "identity", "ring")


def complete(names: Sequence[str]) -> Matrix:
    """The mean of all."""
    return np.full((len(names), len(names)), 1 / len(names))


def by_devices(sizes: Mapping[str, int], members: Sequence[str]) -> Matrix:
    """The mean of the members, each weighing as much as it has devices. Its columns sum to 1 for equal sizes only."""
    weights = np.array([sizes[n] for n in members], np.float64)
    return np.tile(weights / weights.sum(), (len(members), 1))


def metropolis(names: Sequence[str], edges: Iterable[Edge]) -> Matrix:
    """1 / (1 + the larger degree) on each edge that lies within `names`, the rest on the diagonal."""
    index = {name: i for i, name in enumerate(names)}
    pairs = {frozenset((index[a], index[b])) for a, b in edges if a != b and a in index and b in index}
    degree = np.bincount([i for pair in pairs for i in pair], minlength=len(names))
    a = np.zeros((len(names), len(names)))
    for i, j in map(sorted, pairs):
        a[i, j] = a[j, i] = 1 / (1 + max(degree[i], degree[j]))
    return a + np.diag(1 - a.sum(1))


def ring(names: Sequence[str]) -> list[Edge]:
    """Everybody with the next one, in the order of their names."""
    around = sorted(names)
    return list(zip(around, around[1:] + around[:1], strict=True))


def parse_edges(text: str) -> list[Edge]:
    """Pairs from "north~south, south~west".

    Raises:
        UsageError: it is written in another way.
    """
    pairs = [tuple(name.strip() for name in part.split("~")) for part in text.split(",")]
    if bad := [pair for pair in pairs if len(pair) != 2 or not all(pair) or pair[0] == pair[1]]:
        known = ", ".join(GRAPHS)
        raise UsageError(f"graph = {text!r}: {'~'.join(bad[0])!r} is no edge; expected {known}, or 'a~b, b~c'")
    return [(a, b) for a, b in pairs]


def list_names(graph: str) -> set[str]:
    """The hospitals that the text of a graph names."""
    return set() if graph in GRAPHS else {name for edge in parse_edges(graph) for name in edge}


def matrix(graph: str, names: Sequence[str], members: Sequence[str]) -> Matrix:
    """The mixing of `members`, who are neighbours where they are so in the graph over all `names`.

    Args:
        graph: one of GRAPHS, or edges as `edges_of` reads them.
    """
    if graph == "complete":
        return complete(members)
    if graph == "identity":
        return np.eye(len(members))
    return metropolis(members, ring(names) if graph == "ring" else parse_edges(graph))


def check_matrix(a: Matrix) -> Matrix:
    """The matrix itself, after a check.

    Raises:
        UsageError: it is not doubly stochastic.
    """
    if a.ndim != 2 or a.shape[0] != a.shape[1] or not a.size:
        raise UsageError(f"a mixing matrix of shape {a.shape}, it is square")
    if not (a >= 0).all():
        raise UsageError(f"a mixing matrix with the entry {np.nanmin(a):.3g}, all are 0 or more")
    for axis, what in ((1, "row"), (0, "column")):
        sums = a.sum(axis)
        worst = int(np.argmax(np.abs(sums - 1)))
        if not abs(sums[worst] - 1) <= TOLERANCE * len(a):
            raise UsageError(f"a mixing matrix whose {what} {worst} sums to {sums[worst]:.12g}, each one sums to 1")
    return a
