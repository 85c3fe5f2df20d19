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

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from edge_sdk.errors import UsageError

Floats = npt.NDArray[np.floating]
Integers = npt.NDArray[np.integer]
Rows = npt.NDArray[np.int32]
Small = npt.NDArray[np.signedinteger[Any]]
"""Whole numbers in as few bytes as hold the largest that there can be: a device keeps several forests."""

DEEPEST = 60
"""Levels after which a node is a leaf whatever it holds."""

ROWS = 2**13
"""Samples in nodes that are split at once: what that takes is some MB, with whole nodes of up to so many more."""
DONE = 0.25
"""Share of the samples from which on it pays to leave those in decided nodes out."""
PIECE = 128
"""Samples that are voted on at once: what that takes is some 100 KB, and more are no faster."""
MOST_NODES = 2**23
"""Nodes of a forest: float32 holds their numbers exactly."""
FLOOR = 1e-3
"""Least share of the votes that a class is taken to have."""


@dataclass(frozen=True)
class Forest:
    """Trees, node by node; the first `trees` nodes are the roots.

    Attributes:
        feature: int8 (nodes,), or as wide as F needs, what a node asks for; of a leaf 0.
        threshold: float32 (nodes,): up to it a sample goes to `below`, else to the node after that.
        below: int32 (nodes,), the first of two children; of a leaf the leaf itself.
        label: int8 (nodes,), or as wide as `classes` needs, the class of most of a node's samples.
        trees: how many. classes: codes lie below that.
    """

    feature: Small
    threshold: npt.NDArray[np.float32]
    below: npt.NDArray[np.int32]
    label: Small
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
    samples = Columns(np.asarray(x, np.float32), np.asarray(y, np.int32), classes)
    rows: Rows = np.tile(np.arange(len(x), dtype=np.int32), trees)
    node: Rows = np.repeat(np.arange(trees, dtype=np.int32), len(x))  # that each row is in, counted within the level
    levels: list[tuple[Integers, Floats, Integers, Integers]] = []
    asked, said = least_kind(samples.features), least_kind(classes)
    first, width = 0, trees
    for depth in range(DEEPEST):
        rows, node = by_node(rows, node)
        level = Level(samples, rows, node, width)
        best_splits(level, random)
        splits = np.isfinite(level.best) & (depth < DEEPEST - 1)
        order = np.cumsum(splits, dtype=np.int32) - np.int32(1)
        own = np.arange(first, first + width, dtype=np.int32)
        below = np.where(splits, np.int32(first + width) + np.int32(2) * order, own)
        feature = np.where(splits, level.feature, np.int32(0)).astype(asked)
        levels.append((feature, level.threshold, below, level.label.astype(said)))
        first, width = first + width, 2 * int(splits.sum())
        if not width:
            break
        inner = splits[level.node]
        rows, node = level.rows[inner], level.node[inner]
        up = samples.values(rows, level.feature.astype(np.intp)[node]) > level.threshold[node]
        node = np.int32(2) * order[node] + up
        del level, inner, up  # what a level takes does not lie beside what the next one does
    found = [np.concatenate([level[k] for level in levels]) for k in range(4)]
    return Forest(found[0], found[1], found[2], found[3], trees, classes)


def least_kind(count: int) -> np.dtype[np.signedinteger[Any]]:
    """The smallest type of signed numbers that holds 0 to `count` - 1."""
    return np.dtype(np.min_scalar_type(-max(1, count)))


def by_node(rows: Rows, node: Rows) -> tuple[Rows, Rows]:
    """Samples of a level and their nodes (rows,), node by node, else in the order in which they come."""
    order = np.argsort(node, kind="stable").astype(np.int32)
    return rows[order], node[order]


def best_splits(level: Level, random: np.random.Generator) -> None:
    """The best of its random splits for each node of a level.

    A node whose children are of one class each is decided: nothing is better. A node that none of the drawn features
    tells apart is asked for all of them, one after the other: it becomes a leaf only if all its samples are of one
    class, or the same.
    """
    features, nodes = level.samples.features, len(level.best)
    for _ in range(ceil(sqrt(features))):
        level.try_splits(random.integers(0, features, nodes), random.random(nodes))
        level.drop_decided()
    for feature in range(features):
        if not level.keep_undecided():
            break
        level.try_splits(np.full(nodes, feature), random.random(nodes))


class Columns:
    """The samples of a forest, feature by feature, so that a node's values of one feature lie near each other.

    Args:
        x: float32 (N, F). y: int32 (N,), codes below `classes`.
    """

    def __init__(self, x: npt.NDArray[np.float32], y: npt.NDArray[np.int32], classes: int) -> None:
        self.count, self.features = x.shape
        self.flat = np.ascontiguousarray(x.T).ravel()
        self.y, self.classes = y, classes

    def values(self, rows: Integers, feature: npt.NDArray[np.intp]) -> npt.NDArray[np.float32]:
        """Values (rows,) of one feature of each row."""
        found: npt.NDArray[np.float32] = self.flat.take(feature * self.count + rows)
        return found


class Level:
    """The nodes of one level, and the best split of each so far.

    Attributes:
        rows, node: int32, all samples of the level, node by node, and which node each is in.
        label: int32 (nodes,), the class of most samples of each.
        feature, threshold: of these splits. best: impurity behind them; inf: there is none.
        open: which nodes are looked at, at first those of several classes. pieces: their samples, some thousand each.
    """

    def __init__(self, samples: Columns, rows: Integers, node: Integers, width: int) -> None:
        self.samples = samples
        self.feature, self.threshold = np.zeros(width, np.int32), np.zeros(width, np.float32)
        self.best, self.label = np.full(width, np.inf), np.zeros(width, np.int32)
        self.rows, self.node = rows, node
        self.open, pure = np.ones(width, np.bool_), np.zeros(width, np.bool_)
        self.pieces = list(self.cut(self.rows, self.node))
        for piece in self.pieces:
            self.label[piece.nodes] = piece.counts.argmax(0)
            pure[piece.nodes] = piece.squares == piece.sizes**2
        self.close(pure)

    def close(self, nodes: npt.NDArray[np.bool_]) -> None:
        """From here on these nodes are not looked at."""
        if (self.open & nodes).any():
            self.open &= ~nodes
            inside = self.open[self.node]
            self.pieces = list(self.cut(self.rows[inside], self.node[inside]))

    def cut(self, rows: Integers, node: Integers) -> Iterator[Piece]:
        """Pieces of whole nodes: what one takes on the way stays small, however many trees there are."""
        if not len(node):
            return
        starts = np.flatnonzero(np.r_[True, node[1:] != node[:-1]])
        ends = np.append(starts[1:], len(node))
        cuts = np.flatnonzero(np.diff(ends // ROWS)) + 1  # of the nodes: where a further ROWS rows are full
        for a, b in pairwise([0, *cuts.tolist(), len(starts)]):
            inside = slice(starts[a], ends[b - 1])
            yield Piece(self.samples, rows[inside], node[starts[a:b]], starts[a:b] - starts[a])

    def drop_decided(self) -> None:
        """Nodes that no split can be better for are not looked at any more, once they hold a good part of the rows."""
        done = sum(int(piece.sizes[self.best[piece.nodes] == 0].sum()) for piece in self.pieces)
        if done > DONE * sum(len(piece.rows) for piece in self.pieces):
            self.close(self.best == 0)

    def keep_undecided(self) -> bool:
        """Only nodes without a split are looked at from here on. False: there is none."""
        self.close(np.isfinite(self.best))
        return bool(self.pieces)

    def try_splits(self, drawn: Integers, shares: Floats) -> None:
        """One split of each node: of a feature (nodes,), at a share (nodes,) of the way between its extremes there."""
        for piece in self.pieces:
            of = piece.nodes
            threshold, impurity = piece.split(drawn[of], shares[of].astype(np.float32))
            better = impurity < self.best[of]
            of = of[better]
            self.best[of], self.feature[of], self.threshold[of] = impurity[better], drawn[of], threshold[better]


class Piece:
    """Some nodes of a level with all their samples, which are split in one go.

    Attributes:
        rows: int32 (R,), samples, node by node. starts: (m,), where in them each node begins.
        nodes, sizes: (m,), numbers of the nodes within the level, and how many samples each has.
        codes: int32 (R,), class and node of each row in one number.
        counts: (classes, m), samples of each class. squares: (m,), sums of their squares.
    """

    def __init__(self, samples: Columns, rows: Integers, nodes: Integers, starts: Integers) -> None:
        self.samples, self.rows, self.nodes, self.starts = samples, rows, nodes, starts
        self.sizes = np.diff(starts, append=len(rows))
        self.codes = self.spread(np.arange(len(nodes), dtype=np.int32)) + np.int32(len(nodes)) * samples.y[rows]
        self.counts = self.count(self.codes)
        self.squares = squares_of(self.counts, self.counts)

    def spread(self, of_nodes: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """What each node (m,) has, for each of its rows (R,)."""
        return np.repeat(of_nodes, self.sizes)

    def count(self, codes: Integers) -> npt.NDArray[np.int64]:
        """Samples of each class in each node, (classes, m)."""
        shape = self.samples.classes, len(self.nodes)
        return np.bincount(codes, minlength=shape[0] * shape[1]).reshape(shape)

    def split(self, feature: Integers, share: Floats) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float64]]:
        """Thresholds (m,) of a split of each node, and the Gini impurity (m,) behind them.

        sum over both children of n (1 - sum_c (n_c / n)^2), divided by the samples of the node; inf: all samples of the
        node have one value. Sums of squares of whole numbers are exact in any order.
        """
        values = self.samples.values(self.rows, self.spread(feature))
        low, high = (np.asarray(f.reduceat(values, self.starts)) for f in (np.minimum, np.maximum))
        threshold = low + share * (high - low)
        above = self.count(self.codes[values > self.spread(threshold)])
        n, square = above.sum(0), squares_of(above, above)
        rest, under = self.sizes - n, self.squares - 2 * squares_of(self.counts, above) + square
        impurity = (n - square / np.maximum(n, 1)) + (rest - under / np.maximum(rest, 1))
        return threshold, np.where(threshold < high, impurity / self.sizes, np.inf)


def squares_of(a: npt.NDArray[np.int64], b: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Products, summed over classes: (classes, m) twice -> (m,)."""
    return np.asarray(np.einsum("cm,cm->m", a, b))


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
    fields = forest.feature, forest.threshold, forest.below, forest.label
    return np.concatenate([head, *fields], dtype=np.float32, casting="same_kind")


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
    kinds = least_kind(int(whole[0].max()) + 1), least_kind(classes)
    return Forest(whole[0].astype(kinds[0]), np.array(threshold), whole[1], whole[2].astype(kinds[1]), trees, classes)
