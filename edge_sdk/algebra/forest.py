"""Extremely randomised trees in numpy: what a device learns of its own windows by itself, beside the network.

    node      of its samples, `features` features are drawn; each is split at a number that is uniform between its least
              and its largest value there; the split with the lowest Gini impurity is taken          best_splits
    leaf      a node of one class, or of samples that no drawn feature tells apart                    majority
    forest    the share of trees that vote for a class                                                vote

All trees grow together, one level of all of them at a time, so that numpy's calls are as many as a tree is deep. Same
samples and same generator: same forest, to the bit.

Source: P. Geurts, D. Ernst, L. Wehenkel: "Extremely randomized trees", Machine Learning 63 (2006), with its defaults
for classification: K = sqrt(number of features), n_min = 2, no bootstrap.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import ceil, sqrt

import numpy as np
import numpy.typing as npt

from edge_sdk.errors import UsageError

Floats = npt.NDArray[np.floating]
Integers = npt.NDArray[np.integer]

DEEPEST = 60
"""Levels after which a node is a leaf whatever it holds."""

ROWS = 2**13
"""Samples in nodes that are split at once: what that takes is some MB, with whole nodes of up to so many more."""
PIECE = 512
"""Samples that are voted on at once: what that takes is some MB."""
MOST_NODES = 2**23
"""Nodes of a forest: float32 holds their numbers exactly."""
FLOOR = 1e-3
"""Least share of the votes that a class is taken to have."""


@dataclass(frozen=True)
class Forest:
    """Trees, node by node; the first `trees` nodes are the roots.

    Attributes:
        feature: int32 (nodes,), what a node asks for; of a leaf 0.
        threshold: float32 (nodes,): up to it a sample goes to `below`, else to the node after that.
        below: int32 (nodes,), the first of two children; of a leaf the leaf itself.
        label: int32 (nodes,), the class of most of a node's samples.
        trees: how many. classes: codes lie below that.
    """

    feature: npt.NDArray[np.int32]
    threshold: npt.NDArray[np.float32]
    below: npt.NDArray[np.int32]
    label: npt.NDArray[np.int32]
    trees: int
    classes: int


# Growing --------------------------------------------------------------------------------------------------------
def grow(x: Floats, y: Integers, classes: int, trees: int, random: np.random.Generator) -> Forest:
    """A forest on samples.

    Args:
        x: (N, F) features. y: (N,) codes of their classes, below `classes`.
        trees: how many; each sees all samples.
        random: draws features and thresholds.

    Raises:
        UsageError: there is no sample, or no tree.
    """
    if not len(x) or trees < 1:
        raise UsageError(f"a forest of {trees} trees on {len(x)} samples: at least one of each")
    x, y = np.ascontiguousarray(x, np.float32), np.asarray(y, np.int32)
    rows = np.tile(np.arange(len(x), dtype=np.int32), trees)
    node = np.repeat(np.arange(trees, dtype=np.int32), len(x))  # that each row is in, counted within the level
    levels: list[tuple[Integers, Floats, Integers, Integers]] = []
    first, width = 0, trees
    for depth in range(DEEPEST):
        feature, threshold, splits, label = split_level(Level(x, y, rows, node, width, classes), random)
        splits &= depth < DEEPEST - 1
        order = np.cumsum(splits, dtype=np.int32) - np.int32(1)
        own = np.arange(first, first + width, dtype=np.int32)
        below = np.where(splits, np.int32(first + width) + np.int32(2) * order, own)
        levels.append((np.where(splits, feature, np.int32(0)), threshold, below, label))
        first, width = first + width, 2 * int(splits.sum())
        if not width:
            break
        inner = splits[node]
        rows, node = rows[inner], node[inner]
        node = np.int32(2) * order[node] + (x[rows, feature[node]] > threshold[node])
    found = [np.concatenate([level[k] for level in levels]) for k in range(4)]
    return Forest(found[0], found[1], found[2], found[3], trees, classes)


def split_level(level: Level, random: np.random.Generator) -> tuple[Integers, Floats, npt.NDArray[np.bool_], Integers]:
    """Features and thresholds of a level's splits, which nodes split, and the class of most samples of each."""
    feature, threshold, splits = best_splits(level, random)
    return feature, threshold, splits, level.counts.argmax(1).astype(np.int32)


def best_splits(level: Level, random: np.random.Generator) -> tuple[Integers, Floats, npt.NDArray[np.bool_]]:
    """Features and thresholds of the best of its random splits for each node of a level, and which nodes split.

    A node that none of the drawn features tells apart is asked for all of them, one after the other: it becomes a leaf
    only if all its samples are of one class, or the same.
    """
    features, nodes = level.x.shape[1], len(level.counts)
    for _ in range(ceil(sqrt(features))):
        level.try_splits(random.integers(0, features, nodes), random.random(nodes))
    for feature in range(features):
        if not level.keep_undecided():
            break
        level.try_splits(np.full(nodes, feature), random.random(nodes))
    return level.feature, level.threshold, np.isfinite(level.best)


class Level:
    """The nodes of one level, and the best split of each so far.

    Attributes:
        counts: int32 (nodes, classes), of the classes of their samples.
        feature, threshold: of these splits. best: impurity behind them; inf: there is none.
        rows, node: samples in nodes of several classes, node by node, and which node each is in.
    """

    def __init__(self, x: Floats, y: Integers, rows: Integers, node: Integers, width: int, classes: int) -> None:
        self.x, self.y = x, y
        self.feature, self.threshold = np.zeros(width, np.int32), np.zeros(width, np.float32)
        self.best = np.full(width, np.inf)
        self.counts = np.zeros((width, classes), np.int32)
        order = np.argsort(node, kind="stable").astype(np.int32)
        self.rows, self.node = rows[order], node[order]
        self.find_pieces()
        for piece in self.pieces:
            self.counts[self.nodes_of(piece)] = self.count(self.rows[piece], self.node[piece])
        self.keep((self.counts > 0).sum(1) > 1)

    def find_pieces(self) -> None:
        """Cuts the rows into pieces of whole nodes: what a piece takes on the way stays small, however many trees."""
        self.starts = np.flatnonzero(np.r_[True, self.node[1:] != self.node[:-1]]) if len(self.node) else self.node[:0]
        ends = np.append(self.starts[1:], len(self.node))
        cuts = np.flatnonzero(np.diff(ends // ROWS)) + 1  # of the nodes: where a further ROWS rows are full
        bounds = [0, *ends[cuts - 1].tolist(), len(self.node)]
        self.pieces = [slice(a, b) for a, b in pairwise(bounds) if a < b]

    def nodes_of(self, piece: slice) -> slice:
        """The nodes of the level from the first to the last that a piece holds."""
        return slice(int(self.node[piece.start]), int(self.node[piece.stop - 1]) + 1)

    def count(self, rows: Integers, node: Integers) -> Integers:
        """Samples of each class, (nodes of the piece, classes)."""
        first, classes = int(node[0]), self.counts.shape[1]
        wide = int(node[-1]) - first + 1
        codes = (node - first) * classes + self.y[rows]
        return np.bincount(codes, minlength=wide * classes).reshape(wide, classes)

    def keep(self, nodes: npt.NDArray[np.bool_]) -> None:
        """From here on only these nodes are looked at."""
        inside = nodes[self.node]
        self.rows, self.node = self.rows[inside], self.node[inside]
        self.find_pieces()

    def keep_undecided(self) -> bool:
        """Only nodes without a split are looked at from here on. False: there is none."""
        self.keep(~np.isfinite(self.best))
        return len(self.rows) > 0

    def try_splits(self, drawn: Integers, shares: Floats) -> None:
        """One split of each node: of a feature (nodes,), at a share (nodes,) of the way between its extremes there."""
        for piece in self.pieces:
            rows, node = self.rows[piece], self.node[piece]
            starts = self.starts[np.searchsorted(self.starts, piece.start) : np.searchsorted(self.starts, piece.stop)]
            self.try_piece(rows, node, starts - piece.start, self.nodes_of(piece), drawn, shares)

    def try_piece(
        self, rows: Integers, node: Integers, starts: Integers, of: slice, drawn: Integers, shares: Floats
    ) -> None:
        """One split of each node of a piece. `starts`: where in its rows each of them begins."""
        at, first, counts = node[starts], of.start, self.counts[of]
        values = self.x[rows, drawn[node]]
        low, high = (np.asarray(f.reduceat(values, starts)) for f in (np.minimum, np.maximum))
        cut = np.zeros(len(counts), np.float32)
        cut[at - first] = low + shares[at].astype(np.float32) * (high - low)
        up = values > cut[node - first]
        codes = (node[up] - first) * counts.shape[1] + self.y[rows[up]]
        above = np.bincount(codes, minlength=counts.size).reshape(counts.shape)
        impurity = mixed_impurity(above, counts - above, counts.sum(1))
        better = np.zeros(len(counts), np.bool_)
        better[at - first] = (cut[at - first] < high) & (impurity[at - first] < self.best[at])
        self.best[of] = np.where(better, impurity, self.best[of])
        self.feature[of] = np.where(better, drawn[of], self.feature[of])
        self.threshold[of] = np.where(better, cut, self.threshold[of])


def mixed_impurity(above: Integers, under: Integers, sizes: Integers) -> Floats:
    """Gini impurity of two children, weighted by size: sum over both of n (1 - sum_c (n_c / n)^2), per sample."""
    total = np.zeros(len(sizes))
    for part in (above, under):
        n = part.sum(1)
        total += n - (part.astype(np.float64) ** 2).sum(1) / np.maximum(n, 1)
    return np.asarray(total / np.maximum(sizes, 1))


# Predicting -----------------------------------------------------------------------------------------------------
def vote(forest: Forest, x: Floats) -> npt.NDArray[np.float64]:
    """Shares of the trees that vote for each class, (N, classes), for features x (N, F)."""
    x = np.asarray(x, np.float32)
    if len(x) > PIECE:
        return np.concatenate([vote(forest, x[i : i + PIECE]) for i in range(0, len(x), PIECE)])
    at = np.tile(np.arange(forest.trees), (len(x), 1))
    which = np.arange(len(x))[:, None]
    while True:
        below = forest.below[at]
        step = below + (x[which, forest.feature[at]] > forest.threshold[at])
        following = np.where(below == at, at, step)
        if np.array_equal(following, at):
            break
        at = following
    codes = forest.label[at] + forest.classes * which
    return np.bincount(codes.ravel(), minlength=len(x) * forest.classes).reshape(len(x), -1) / forest.trees


def log_votes(forest: Forest, x: Floats) -> npt.NDArray[np.float64]:
    """Logarithms of `vote`, where no class has less than FLOOR: a forest has not seen everything."""
    p = np.maximum(vote(forest, x), FLOOR)
    return np.asarray(np.log(p / p.sum(1, keepdims=True)))


# One vector -----------------------------------------------------------------------------------------------------
def pack(forest: Forest | None) -> npt.NDArray[np.float32]:
    """A forest as one vector of float32, which holds its whole numbers exactly; of None an empty one."""
    if forest is None:
        return np.zeros(0, np.float32)
    if len(forest.label) > MOST_NODES:
        raise UsageError(f"a forest of {len(forest.label)} nodes: at most {MOST_NODES}; take fewer trees or samples")
    head = np.array([forest.trees, forest.classes], np.float32)
    return np.concatenate([head, forest.feature, forest.threshold, forest.below, forest.label]).astype(np.float32)


def unpack(vector: npt.NDArray[np.float32]) -> Forest | None:
    """The forest of such a vector.

    Raises:
        UsageError: no forest has this vector: a damaged file.
    """
    if not len(vector):
        return None
    nodes = (len(vector) - 2) // 4
    if len(vector) != 4 * nodes + 2 or not np.isfinite(vector).all():
        raise UsageError(f"a forest of {len(vector)} numbers: expected two and four for each node, all finite")
    trees, classes = (int(n) for n in vector[:2])
    feature, threshold, below, label = vector[2:].reshape(4, nodes)
    whole = [np.asarray(v, np.int32) for v in (feature, below, label)]
    places, last = np.arange(nodes), np.where(whole[1] == np.arange(nodes), nodes - 1, nodes - 2)
    is_tree = (whole[1] >= places).all() and (whole[1] <= last).all() and (whole[0] >= 0).all()
    if not (1 <= trees <= nodes and is_tree and ((whole[2] >= 0) & (whole[2] < classes)).all()):
        raise UsageError(f"a forest of {trees} trees and {classes} classes: its nodes do not fit together")
    return Forest(whole[0], np.array(threshold), whole[1], whole[2], trees, classes)
