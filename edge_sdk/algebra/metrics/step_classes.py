"""Scores of the classes that models tell of each step of a window: those of sets of labels (label_sets.py), where each
step that has a class counts as a sample, and the set is this class alone.

Of class k with probability p_k, the largest of the others being p_j, the score is the share q_k = p_k / (p_k + p_j). It
is 1/2 or more for the class that is predicted, and for no other. So counts, histograms and what follows from them agree
although a class needs no 1/2 to be predicted, also where steps are only seen as a sum.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from edge_sdk.algebra.metrics.label_sets import FN, FP, TP, USUAL, sigmoid

Floats = npt.NDArray[np.floating]
LARGEST = 1e300
BELOW = float(np.nextafter(USUAL, 0))
"""The largest share of a class that is not predicted."""


def class_shares(logits: Floats) -> npt.NDArray[np.float64]:
    """Shares q (M, K) of K >= 2 classes, from their logits (M, K). Of equal ones the first is predicted; what is no
    number, as of a model whose training has gone wrong, counts as 0."""
    z, rows = np.nan_to_num(np.asarray(logits, np.float64), posinf=LARGEST, neginf=-LARGEST), np.arange(len(logits))
    best = z.argmax(1)
    others = z.copy()
    others[rows, best] = -np.inf
    rivals = np.repeat(z[rows, best][:, None], z.shape[1], 1)
    rivals[rows, best] = others.max(1)
    found = np.minimum(sigmoid(z - rivals), BELOW)
    found[rows, best] = np.maximum(sigmoid(z[rows, best] - others.max(1)), USUAL)
    return found


def kappa(sums: Mapping[str, float], classes: int) -> float:
    """Cohen's kappa of sums with counts: by how much more often two agree than chance would have it, 1 at best.

    kappa = (p_o - p_e) / (1 - p_e), with the share p_o of steps that are right and p_e that of steps which would be if
    classes were predicted as often, but at random: J. Cohen, "A coefficient of agreement for nominal scales",
    Educational and Psychological Measurement 1960. 1 where one class is all that occurs and is predicted.
    """
    right, there, said = (
        np.array([sums[f"{a}:{k}"] + (sums[f"{b}:{k}"] if b else 0.0) for k in range(classes)])
        for a, b in ((TP, ""), (TP, FN), (TP, FP))
    )
    count = there.sum()
    if not count:
        return 1.0
    observed, chance = right.sum() / count, (there * said).sum() / count**2
    return float((observed - chance) / (1 - chance)) if chance < 1 else 1.0
