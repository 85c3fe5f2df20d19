"""Metrics by their definitions, on cases small enough to count by hand."""

from __future__ import annotations

import numpy as np
import pytest

from edge_sdk.algebra.metrics import classification
from edge_sdk.errors import UsageError

RNG = np.random.default_rng(0)
Y = RNG.integers(0, 4, 300)
LOGITS = RNG.normal(size=(300, 4)) + 1.5 * np.eye(4)[Y]


def by_pairs(positive, score):
    wins = [(a > b) + (a == b) / 2 for a in score[positive] for b in score[~positive]]
    return np.mean(wins)


@pytest.mark.parametrize("ties", [False, True])
def test_auc_is_the_probability_that_a_positive_scores_higher(ties):
    positive, score = RNG.random(60) < 0.3, RNG.normal(size=60)
    score = np.round(score) if ties else score
    assert np.isclose(classification.auc(positive, score), by_pairs(positive, score))


def test_auc_of_the_perfect_the_wrong_and_the_constant():
    y = np.array([0, 0, 1, 1], bool)
    assert classification.auc(y, np.arange(4.0)) == 1 and classification.auc(y, -np.arange(4.0)) == 0
    assert classification.auc(y, np.zeros(4)) == 0.5 and classification.auc(y, np.zeros(4)) is not None
    assert classification.auc(np.ones(4, bool), np.arange(4.0)) is None


def test_macro_auc_leaves_out_what_does_not_occur():
    p = classification.softmax(LOGITS)
    assert np.isclose(classification.macro_auc(Y, p), np.mean([by_pairs(c == Y, p[:, c]) for c in range(4)]))
    seen = Y < 3
    assert np.isclose(
        classification.macro_auc(Y[seen], p[seen]), np.mean([by_pairs(Y[seen] == c, p[seen, c]) for c in range(3)])
    )
    two = p[:, :2] / p[:, :2].sum(1, keepdims=True)
    assert classification.macro_auc(Y % 2, two) == classification.auc(Y % 2 == 1, two[:, 1])


def test_precision_recall_f1_by_hand():
    y, guessed = np.array([0, 0, 0, 1, 1, 2]), np.array([0, 0, 1, 1, 0, 0])
    table = classification.confusion(y, guessed, 4)
    assert table.tolist() == [[2, 1, 0, 0], [1, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0]]
    precision, recall, f1 = classification.precision_recall_f1(table)
    assert np.isclose(precision, (2 / 4 + 1 / 2 + 0) / 3) and np.isclose(recall, (2 / 3 + 1 / 2 + 0) / 3)
    assert np.isclose(f1, (4 / 7 + 2 / 4 + 0) / 3)


def test_summary():
    found = classification.summary(Y, LOGITS)
    p = classification.softmax(LOGITS)
    assert np.isclose(found["loss"], -np.log(p[np.arange(300), Y]).mean())
    assert found["accuracy"] == (LOGITS.argmax(1) == Y).mean() and found["auc"] > 0.8
    assert classification.summary(Y[:1], 1e4 * LOGITS[:1])["auc"] is None


def test_histograms_add_up_to_the_area():
    p = classification.softmax(LOGITS)
    sums: dict[str, float] = {}
    for part in np.array_split(np.arange(300), 7):
        for name, n in classification.histogram(Y[part], p[part]).items():
            sums[name] = sums.get(name, 0) + n
    assert sum(sums.values()) == 4 * 300
    binned = np.minimum((p * classification.BINS).astype(int), classification.BINS - 1)
    assert np.isclose(classification.binned_auc(sums), classification.macro_auc(Y, binned.astype(float)))
    assert abs(classification.binned_auc(sums) - classification.macro_auc(Y, p)) < 5e-3
    assert classification.binned_auc({"loss": 1.0}) is None


def test_what_does_not_match_is_refused():
    with pytest.raises(UsageError, match="3 labels and 4 predictions"):
        classification.confusion(np.zeros(3, int), np.zeros(4, int), 2)
    with pytest.raises(UsageError, match="no samples"):
        classification.summary(np.zeros(0, int), np.zeros((0, 2)))
