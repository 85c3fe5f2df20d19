"""Robust rules: pure functions of the children's contributions, one row for each child, in the order of their names.

    clip               D. Yin et al., ICML 2018, has the median; S. P. Karimireddy, L. He, M. Jaggi, "Learning from
                       History for Byzantine Robust Optimization", ICML 2021, clips distances from a centre. Here the
                       centre is the coordinate-wise median of this round, and a distance is shortened to `factor`
                       times the median distance (the quantile 1/2 of G. Andrew et al., NeurIPS 2021, of this round).
    trimmed_mean       D. Yin, Y. Chen, K. Ramchandran, P. Bartlett: "Byzantine-Robust Distributed Learning: Towards
                       Optimal Statistical Rates", ICML 2018, Definition 2.
    median             the same, Definition 1.
    mix_neighbours     Y. Allouah, S. Farhadkhani, R. Guerraoui, N. Gupta, R. Pinot, J. Stephan: "Fixing by Mixing: A
                       Recipe for Optimal Byzantine ML under Heterogeneity", AISTATS 2023, Algorithm 2 (NNM).
    mean_of_near       P. J. Rousseeuw, A. M. Leroy: "Robust Regression and Outlier Detection", Wiley 1987, chapter 1:
                       least squares reweighted with hard rejection, about the result of a robust rule.
    geometric_median   K. Pillutla, S. M. Kakade, Z. Harchaoui: "Robust Aggregation for Federated Learning", IEEE
                       Transactions on Signal Processing 2022: smoothed Weiszfeld steps.

Nothing is drawn and rows come in one order, so the same contributions give the same bits. With one or two children each
rule returns what it was given, or its mean: there is no majority among two.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.floating]
"""(children, n)."""
Row = npt.NDArray[np.float64]

HEAVY = 3.0
"""Times the median that a weight counts at most where rows are weighted: a claim of samples is only a claim."""
BLOCK = 2**16
"""Coordinates that are sorted at once: what a rule needs beside the uploads stays below 1 MB for each child."""
STEPS, CLOSE = 100, 1e-9
"""Of the geometric median: Weiszfeld's steps at most, and the relative movement at which they end."""
SMOOTHING = 1e-6
"""Least distance that is divided by, in median distances: a step onto a row itself must not divide by 0."""


def by_blocks(rule: Callable[[Row], Row], rows: Rows) -> Row:
    """A rule that looks at each coordinate for itself, applied to all of them: (n,)."""
    found = np.empty(rows.shape[1])
    for start in range(0, rows.shape[1], BLOCK):
        found[start : start + BLOCK] = rule(rows[:, start : start + BLOCK].astype(np.float64))
    return found


def median(rows: Rows) -> Row:
    """The coordinate-wise median (n,)."""
    return by_blocks(lambda block: np.median(block, axis=0), rows)


def trimmed_mean(rows: Rows, share: float) -> Row:
    """The coordinate-wise mean (n,) without the smallest and the largest, `cut_off` of each."""
    cut = cut_off(len(rows), share)
    return by_blocks(lambda block: np.sort(block, axis=0)[cut : len(rows) - cut].mean(0), rows)


def cut_off(count: int, share: float) -> int:
    """Number of rows, of `count`, left out at each end: that share, rounded up, but one or two always stay."""
    return min(ceil(share * count - 1e-9), (count - 1) // 2)


def distances(rows: Rows, centre: Row) -> Row:
    """Euclidean distance of each row from the centre: (children,)."""
    return np.array([np.linalg.norm(row.astype(np.float64) - centre) for row in rows])


def mix_neighbours(rows: Rows, share: float) -> Rows:
    """Each row (n,), in place of it the mean of the rows nearest to it, itself among them: all but `cut_off` of them.

    Devices with different data differ, and a rule that looks at single coordinates then throws away more than what is
    bad. Means of neighbours differ less, and a bad row has no more weight in them than it has among the rows.
    """
    keep = len(rows) - cut_off(len(rows), share)
    near = np.argsort(squared_distances(rows), axis=1, kind="stable")[:, :keep]
    return np.stack([rows[np.sort(of)].mean(0, dtype=np.float64).astype(rows.dtype) for of in near])


def squared_distances(rows: Rows) -> Row:
    """Between all pairs of rows: (children, children). Not by a product of matrices, whose bits depend on threads."""
    found = np.zeros((len(rows), len(rows)))
    for i, row in enumerate(rows):
        for j in range(i):
            found[i, j] = found[j, i] = float(np.square(np.subtract(row, rows[j], dtype=np.float64)).sum())
    return found


def mean_of_near(rows: Rows, weights: Row, centre: Row, keep: float) -> Row:
    """The weighted mean (n,) of the rows (k, n) within `keep` (1 or more) times the median distance of the centre.

    A robust rule alone costs much where devices differ and nobody is bad: each has one vote whatever it knows, and what
    is rare counts for nothing. Used as the centre only, it says who is near; of these everything counts. So at least
    half of the rows stay, and a bad one moves the mean only from within the distance at which honest ones are.
    """
    far = distances(rows, centre)
    near = np.flatnonzero(far <= keep * float(np.median(far)))
    counted = np.minimum(weights, HEAVY * float(np.median(weights)))[near]
    at = np.zeros(rows.shape[1])
    for share, row in zip(counted / counted.sum(), rows[near], strict=True):
        at += share * row.astype(np.float64)
    return at


def clip(rows: Rows, factor: float) -> list[Row | None]:
    """Each row, no further from the coordinate-wise median than `factor` times the median distance; None: as it is."""
    centre = median(rows)
    far = distances(rows, centre)
    limit = factor * float(np.median(far))
    shares = limit / np.maximum(np.maximum(far, limit), np.finfo(np.float64).tiny)
    return [
        None if share == 1 else centre + share * (row.astype(np.float64) - centre)
        for row, share in zip(rows, shares, strict=True)
    ]


def geometric_median(rows: Rows) -> Row:
    """The point (n,) whose distances from all rows have the least sum, by Weiszfeld's steps from the median."""
    at = median(rows)
    for _ in range(STEPS):
        far = distances(rows, at)
        least = SMOOTHING * float(np.median(far))
        if least == 0:
            return at  # most rows are equal, and this is where they are
        weights = 1 / np.maximum(far, least)
        weights /= weights.sum()
        before, at = at, np.zeros_like(at)
        for weight, row in zip(weights, rows, strict=True):
            at += weight * row.astype(np.float64)
        if np.linalg.norm(at - before) <= CLOSE * np.linalg.norm(before):
            break
    return at
