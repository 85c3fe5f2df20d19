"""Metrics of a classifier, in numpy: accuracy, precision, recall, F1, area under the ROC curve, mean loss.

Of several classes: macro, which is the mean over classes; the ROC curve of each class against the rest.
`histogram` makes sums of scores that add up over nodes, and `binned_auc` the area from such sums, so that nobody has to
show anybody its single predictions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from edge_sdk.errors import UsageError

Labels = npt.NDArray[np.integer]
Floats = npt.NDArray[np.floating]


def softmax(logits: Floats) -> Floats:
    """(samples, classes) -> probabilities."""
    e = np.exp(logits - logits.max(1, keepdims=True))
    return np.asarray(e / e.sum(1, keepdims=True))


def confusion(y: Labels, guessed: Labels, classes: int) -> npt.NDArray[np.int64]:
    """(classes, classes): how many of class i were taken for j."""
    check(y, guessed)
    return np.bincount(classes * y + guessed, minlength=classes**2).reshape(classes, classes).astype(np.int64)


def precision_recall_f1(table: npt.NDArray[np.int64]) -> tuple[float, float, float]:
    """Macro, over the classes that occur or were guessed; a class never guessed has precision 0, by custom.

    Args:
        table: as `confusion` has it.
    """
    right, held, guessed = np.diag(table), table.sum(1), table.sum(0)
    there = (held + guessed) > 0
    precision, recall = ratio(right, guessed), ratio(right, held)
    f1 = ratio(2 * right, held + guessed)
    return float(precision[there].mean()), float(recall[there].mean()), float(f1[there].mean())


def ratio(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> Floats:
    return np.asarray(np.divide(a, b, out=np.zeros(len(a)), where=b > 0))


def auc(positive: npt.NDArray[np.bool_], score: Floats) -> float | None:
    """P(a positive scores higher than a negative), ties half; None where one of the two is missing."""
    check(positive, score)
    n, m = int(positive.sum()), int((~positive).sum())
    if not n or not m:
        return None
    _, place, counts = np.unique(score, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[place]
    return float((ranks[positive].sum() - n * (n + 1) / 2) / (n * m))


def macro_auc(y: Labels, scores: Floats) -> float | None:
    """One against the rest, mean over the classes for which it is defined.

    Args:
        scores: (samples, classes); of two classes the second decides.
    """
    check(y, scores)
    columns = [1] if scores.shape[1] == 2 else range(scores.shape[1])
    found = [a for c in columns if (a := auc(y == c, scores[:, c])) is not None]
    return float(np.mean(found)) if found else None


def summary(y: Labels, logits: Floats) -> dict[str, float | None]:
    """All metrics of one set of predictions.

    Args:
        y: (samples,), from 0 on. logits: (samples, classes).
    """
    if not len(y):
        raise UsageError("metrics of no samples")
    p, guessed = softmax(logits.astype(np.float64)), logits.argmax(1)
    precision, recall, f1 = precision_recall_f1(confusion(y, guessed, logits.shape[1]))
    chosen = np.maximum(p[np.arange(len(y)), y], np.finfo(np.float64).tiny)
    found = {"loss": float(-np.log(chosen).mean()), "accuracy": float((guessed == y).mean())}
    return found | {"precision": precision, "recall": recall, "f1": f1, "auc": macro_auc(y, p)}


def check(y: npt.NDArray[Any], other: npt.NDArray[Any]) -> None:
    if len(y) != len(other):
        raise UsageError(f"{len(y)} labels and {len(other)} predictions")


# Sums over nodes ------------------------------------------------------------------------------------------------
BINS = 64
MOST_CLASSES = 100  # that have histograms: 2 x 64 sums each would be more than their worth


def histogram(y: Labels, scores: Floats, bins: int = BINS) -> dict[str, float]:
    """Counts of samples by score, for each class and for the rest, in equal bins of [0, 1]; empty bins left out.
    What is no number, as of a model whose training has gone wrong, counts as 0.

    Returns:
        "auc:<class>:<1 for the class, 0 for the rest>:<bin>" -> count; nothing of more than MOST_CLASSES classes.
    """
    if scores.shape[1] > MOST_CLASSES:
        return {}
    place = np.minimum((np.nan_to_num(scores) * bins).astype(int), bins - 1)
    sums: dict[str, float] = {}
    for c in range(scores.shape[1]):
        for mine in (0, 1):
            counts = np.bincount(place[(y == c) == bool(mine), c], minlength=bins)
            sums |= {f"auc:{c}:{mine}:{b}": float(n) for b, n in enumerate(counts) if n}
    return sums


def sums(y: Labels, logits: Floats) -> dict[str, float]:
    """Sums of one node: samples, correct ones, their loss, and histograms for the area under the ROC curve."""
    check(y, logits)
    p = softmax(logits.astype(np.float64))
    chosen = np.maximum(p[np.arange(len(y)), y], np.finfo(np.float64).tiny)
    right = float((logits.argmax(1) == y).sum())
    return {"samples": float(len(y)), "correct": right, "loss": float(-np.log(chosen).sum())} | histogram(y, p)


def areas(sums: Mapping[str, float]) -> tuple[dict[str, float], dict[str, float]]:
    """Sums of an evaluation without their histograms, and from these the area for each model: "global", ..."""
    models = dict.fromkeys(name.partition("_auc:")[0] for name in sums if "_auc:" in name)
    found = {model: area for model in models if (area := binned_auc(sums, f"{model}_")) is not None}
    return {name: value for name, value in sums.items() if "_auc:" not in name}, found


def binned_auc(sums: Mapping[str, float], prefix: str = "") -> float | None:
    """`macro_auc` of all nodes together from their added histograms; scores in one bin count as ties.

    Args:
        prefix: of the names in `sums`: "global_" in a report of an evaluation.
    """
    counts: dict[int, dict[int, dict[int, float]]] = {}
    for name, n in sums.items():
        if name.startswith(f"{prefix}auc:"):
            c, mine, place = (int(part) for part in name.split(":")[1:])
            counts.setdefault(c, {0: {}, 1: {}})[mine][place] = n
    found = [a for c in counts if (a := area(counts[c])) is not None]
    return float(np.mean(found)) if found else None


def area(counts: Mapping[int, Mapping[int, float]]) -> float | None:
    """Area under the ROC curve from two histograms, bin -> count: of the rest (0) and of the class (1)."""
    if not counts[0] or not counts[1]:
        return None
    bins = 1 + max(max(c) for c in counts.values())
    rest, mine = (np.array([counts[k].get(b, 0.0) for b in range(bins)]) for k in (0, 1))
    below = np.cumsum(rest) - rest
    return float((mine * (below + rest / 2)).sum() / (mine.sum() * rest.sum()))
