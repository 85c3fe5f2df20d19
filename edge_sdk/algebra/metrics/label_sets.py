"""Scores of predicted sets of labels as sums that add up over samples, devices and hospitals, and what they come to.

Of each label k, with the probability p that a model gives it, and predicted where p >= 0.5:

tp:k, fp:k, fn:k   samples with the label that are predicted, without it that are, with it that are not; all others of
                   the "samples" are the true negatives
correct            samples whose predicted set is the true one, label by label (exact match, or subset accuracy)
auc:k:1:b          samples with the label whose p lies in bin b of BINS equal ones; auc:k:0:b those without it

The bins are those of `classification.histogram`. As 0.5 is the edge of one, the first three follow from them, also
where devices are only seen as a sum.

F1 of a label is 2 tp / (2 tp + fp + fn), and macro-F1 its mean over the labels that occur or are predicted. Where none
is, it is 1: every set is right.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log

import numpy as np
import numpy.typing as npt

from edge_sdk.algebra.metrics.classification import BINS, area
from edge_sdk.errors import UsageError

Floats = npt.NDArray[np.floating]
Sums = Mapping[str, float]
TP, FP, FN, F1 = "tp", "fp", "fn", "f1"
USUAL = 0.5
"""Threshold of each label, unless another one was chosen."""
FEWEST = 10
"""Samples with a label, and without it, from which on a threshold is chosen by them."""
EULER = 0.57721566490153286


@dataclass(frozen=True)
class LabelScores:
    """Scores of one label over some samples.

    Attributes:
        tp, fp, fn, tn: counts, see the head of this module.
        f1: 0 where the label is never predicted; None: it neither occurs nor is predicted.
        auroc: area under the ROC curve, by the bins; None: all samples have the label, or none has.
        auroc_error: it is off by so much at most.
        precision: average precision, the mean over the samples with the label of the share of samples with it among
            those that score as high or higher; None: no sample has the label.
        precision_error: it is off by so much at most, if no two samples have the same score.
    """

    tp: float
    fp: float
    fn: float
    tn: float
    f1: float | None
    auroc: float | None = None
    auroc_error: float = 0.0
    precision: float | None = None
    precision_error: float = 0.0


# Sums -----------------------------------------------------------------------------------------------------------
def sigmoid(logits: Floats) -> npt.NDArray[np.float64]:
    """Probabilities of logits, of the same shape."""
    z = np.asarray(logits, np.float64)
    e = np.exp(-np.abs(z))
    return np.where(z >= 0, 1.0, e) / (1.0 + e)


def count_sums(y: Floats, p: Floats, thresholds: Floats | float = USUAL) -> dict[str, float]:
    """Counts of labels y (N, K), 0 or 1, by probabilities (N, K). `thresholds`: one, or one for each label."""
    if y.shape != p.shape or y.ndim != 2:  # samples and labels
        raise UsageError(f"labels of shape {y.shape} and predictions of {p.shape}")
    there, said = y > USUAL, p >= thresholds
    counts = {TP: (there & said).sum(0), FP: (~there & said).sum(0), FN: (there & ~said).sum(0)}
    found = {f"{name}:{k}": float(n) for name, each in counts.items() for k, n in enumerate(each.tolist())}
    return {"correct": float((there == said).all(1).sum()), **found}


def histogram_sums(y: Floats, p: Floats) -> dict[str, float]:
    """Counts of samples by probability, with and without each label, in equal bins of [0, 1]; empty ones left out.
    What is no number, as of a model whose training has gone wrong, counts as 0."""
    place, there = np.minimum((np.nan_to_num(p) * BINS).astype(np.int64), BINS - 1), y > USUAL
    sums: dict[str, float] = {}
    for k in range(y.shape[1]):
        for mine in (0, 1):
            counts = np.bincount(place[there[:, k] == bool(mine), k], minlength=BINS)
            sums |= {f"auc:{k}:{mine}:{b}": float(n) for b, n in enumerate(counts.tolist()) if n}
    return sums


def is_count(name: str) -> bool:
    """Is it the name of one label's count?"""
    return name.partition(":")[0] in (TP, FP, FN)


# What they come to ----------------------------------------------------------------------------------------------
def macro_f1(sums: Sums, labels: int) -> float:
    """Macro-F1 of sums with counts."""
    found = [f1 for k in range(labels) if (f1 := f1_of(*(sums[f"{name}:{k}"] for name in (TP, FP, FN)))) is not None]
    return sum(found) / len(found) if found else 1.0


def f1_of(tp: float, fp: float, fn: float) -> float | None:
    """F1 of one label; None: it neither occurs nor is predicted."""
    return 2 * tp / (2 * tp + fp + fn) if tp + fp + fn else None


def bins_of(sums: Sums, label: int, prefix: str = "") -> npt.NDArray[np.float64]:
    """Samples without the label and with it by bin of their score, (2, BINS). `prefix`: of the names in `sums`."""
    return np.array([[sums.get(f"{prefix}auc:{label}:{mine}:{b}", 0.0) for b in range(BINS)] for mine in (0, 1)])


def scores_by_label(sums: Sums, labels: int, prefix: str = "") -> tuple[LabelScores, ...]:
    """Scores of each label from sums with histograms."""
    return tuple(scores_of(bins_of(sums, k, prefix)) for k in range(labels))


def scores_of(bins: npt.NDArray[np.float64]) -> LabelScores:
    """Scores of one label by its bins, as `bins_of` has them."""
    (tn, fp), (fn, tp) = ((float(row[: BINS // 2].sum()), float(row[BINS // 2 :].sum())) for row in bins)
    rest, mine = bins
    counts: dict[int, dict[int, float]] = {k: {b: n for b, n in enumerate(bins[k].tolist()) if n} for k in (0, 1)}
    found, pairs = area(counts), float(rest.sum() * mine.sum())
    error = float((rest * mine).sum()) / (2 * pairs) if pairs else 0.0
    precision, off = average_precision(rest, mine)
    return LabelScores(
        tp, fp, fn, tn, f1_of(tp, fp, fn), auroc=found, auroc_error=error, precision=precision, precision_error=off
    )


def average_precision(rest: Floats, mine: Floats) -> tuple[float | None, float]:
    """Average precision by bins (B,), and its error: the middle, and half the difference, of what it is when in each
    bin all samples with the label score highest, and when all score lowest."""
    total = float(mine.sum())
    if not total:
        return None, 0.0
    ends, tp, fp = [0.0, 0.0], 0.0, 0.0
    for n, m in zip(rest[::-1].tolist(), mine[::-1].tolist(), strict=True):
        ends = [end + gathered(tp, before, m) for end, before in zip(ends, (fp, fp + n), strict=True)]
        tp, fp = tp + m, fp + n
    best, worst = (end / total for end in ends)
    return (best + worst) / 2, (best - worst) / 2


def gathered(tp: float, fp: float, more: float) -> float:
    """The sum over i = 1 ... `more` of the precision (tp + i) / (tp + i + fp)."""
    return more - fp * (harmonic(tp + fp + more) - harmonic(tp + fp))


def harmonic(n: float) -> float:
    """1 + 1/2 + ... + 1/n; of large n by Euler's series, to twelve digits."""
    if n < 64:
        return sum(1 / i for i in range(1, int(n) + 1))
    return log(n) + EULER + 1 / (2 * n) - 1 / (12 * n**2) + 1 / (120 * n**4)


# Thresholds -----------------------------------------------------------------------------------------------------
def choose_thresholds(sums: Sums, labels: int, prefix: str = "") -> tuple[tuple[float, ...], tuple[bool, ...]]:
    """Thresholds that reach the best F1 of each label, and which of them were chosen, not usual.

    A threshold is the edge of a bin: of equally good ones that next to 0.5. A label with fewer than FEWEST samples, or
    that fewer lack, has 0.5: the best of so few says little.
    """
    found = [best_edge(bins_of(sums, k, prefix)) for k in range(labels)]
    return tuple(edge or USUAL for edge in found), tuple(edge is not None for edge in found)


def best_edge(bins: npt.NDArray[np.float64]) -> float | None:
    """The edge of a bin above which F1 is best; None: there are too few samples."""
    if bins.sum(1).min() < FEWEST:
        return None
    fp, tp = np.cumsum(bins[:, ::-1], 1)[:, ::-1]
    f1 = 2 * tp / (tp + fp + bins[1].sum())
    edges = np.arange(BINS) / BINS
    best: Sequence[float] = edges[(f1 >= f1[1:].max() - 1e-12) & (edges > 0)].tolist()
    return min(best, key=lambda edge: (abs(edge - USUAL), edge))
