"""Scores of sets of labels: counts add up, bins stand for scores within the error that is said, thresholds."""

from __future__ import annotations

import numpy as np
import pytest

from edge_sdk.algebra.metrics import classification, label_sets
from edge_sdk.algebra.metrics.classification import BINS, auc
from edge_sdk.algebra.metrics.label_sets import (
    bins_of,
    choose_thresholds,
    count_sums,
    harmonic,
    histogram_sums,
    macro_f1,
    scores_by_label,
    sigmoid,
)
from edge_sdk.errors import UsageError


def draw(count: int, labels: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Labels (count, K) and probabilities that know something of them, no two alike."""
    random = np.random.default_rng(seed)
    y = (random.random((count, labels)) < np.linspace(0.1, 0.6, labels)).astype(np.float32)
    return y, sigmoid(random.normal(2.5 * y - 1.5, 1.5))


def average_precision(y: np.ndarray, p: np.ndarray) -> float:
    """The definition: the mean precision at each sample with the label, scores falling."""
    there = y[np.argsort(-p)] > 0
    return float((np.cumsum(there) / np.arange(1, len(y) + 1))[there].mean())


def added(*several: dict[str, float]) -> dict[str, float]:
    return {name: sum(one.get(name, 0.0) for one in several) for name in {*(n for one in several for n in one)}}


def test_sums_of_parts_are_the_sums_of_all() -> None:
    y, p = draw(300)
    parts = [slice(0, 1), slice(1, 120), slice(120, 300)]
    for sums in (count_sums, histogram_sums):
        assert added(*(sums(y[s], p[s]) for s in parts)) == sums(y, p)


def test_counts_and_bins_say_the_same() -> None:
    y, p = draw(500)
    counts, scores = count_sums(y, p), scores_by_label(histogram_sums(y, p), 3)
    for k, one in enumerate(scores):
        there, said = y[:, k] > 0, p[:, k] >= 0.5
        assert one.tp == counts[f"tp:{k}"] == (there & said).sum() and one.fp == counts[f"fp:{k}"]
        assert one.fn == counts[f"fn:{k}"] == (there & ~said).sum() and one.tn == (~there & ~said).sum()
    assert counts["correct"] == ((p >= 0.5) == (y > 0)).all(1).sum()
    f1 = [2 * s.tp / (2 * s.tp + s.fp + s.fn) for s in scores]
    assert macro_f1(counts, 3) == pytest.approx(np.mean(f1)) and scores[1].f1 == pytest.approx(f1[1])


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("count", [7, 60, 4000])
def test_areas_are_off_by_no_more_than_they_say(seed: int, count: int) -> None:
    y, p = draw(count, seed=seed)
    for k, one in enumerate(scores_by_label(histogram_sums(y, p), 3)):
        area = auc(y[:, k] > 0, p[:, k])
        assert (one.auroc is None) == (area is None)
        assert area is None or abs(one.auroc - area) <= one.auroc_error + 1e-12
        if y[:, k].any():
            assert abs(one.precision - average_precision(y[:, k], p[:, k])) <= one.precision_error + 1e-9
    if count == 4000:
        assert one.auroc_error < 0.01 and one.precision_error < 0.01


def test_a_label_that_nobody_has_and_one_that_all_have() -> None:
    y, p = draw(40, 4)
    y[:, 0], y[:, 1], y[:, 2], p[:, 2], p[:, 0] = 0, 1, 0, 0.01, 0.2
    never, always, unseen, _ = scores_by_label(histogram_sums(y, p), 4)
    assert never.auroc is None and never.precision is None and never.f1 is None, "it is not predicted either"
    assert unseen.f1 is None and always.auroc is None and always.precision == 1.0 and always.precision_error == 0
    assert macro_f1(count_sums(y[:, [0, 2]], p[:, [0, 2]]), 2) == 1.0, "nothing is there, and nothing is said"
    p[:, 0] = 0.9
    assert macro_f1(count_sums(y[:, :1], p[:, :1]), 1) == 0.0


def test_one_sample_and_none() -> None:
    y, p = np.array([[1.0, 0.0]]), np.array([[0.7, 0.2]])
    assert count_sums(y, p)["correct"] == 1 and macro_f1(count_sums(y, p), 2) == 1.0
    none = count_sums(y[:0], p[:0])
    assert {*none} == {*count_sums(y, p)} and not any(none.values()) and histogram_sums(y[:0], p[:0]) == {}
    with pytest.raises(UsageError, match="labels of shape"):
        count_sums(y, p[:, :1])


def test_a_threshold_is_the_edge_with_the_best_f1_or_one_half() -> None:
    y, p = draw(2000)
    p *= 0.6  # a network that is never sure
    sums = histogram_sums(y, p)
    (found, *_), chosen = choose_thresholds(sums, 3)
    assert chosen == (True, True, True) and found < 0.5

    def f1(threshold: float) -> float:
        return macro_f1(count_sums(y[:, :1], p[:, :1], threshold), 1)

    assert f1(found) == pytest.approx(max(f1(edge / BINS) for edge in range(1, BINS)))
    few = histogram_sums(y[:12], p[:12])
    assert choose_thresholds(few, 3) == ((0.5,) * 3, (False,) * 3), "too few of each"
    assert choose_thresholds({}, 2)[0] == (0.5, 0.5) and bins_of({}, 0).shape == (2, BINS)


def test_harmonic_numbers() -> None:
    for n in (0, 1, 63, 64, 1000):
        assert harmonic(n) == pytest.approx(sum(1 / i for i in range(1, n + 1)), rel=1e-11)


def test_a_sigmoid_of_large_logits_is_no_overflow() -> None:
    with np.errstate(over="raise", invalid="raise"):
        assert sigmoid(np.array([-800.0, 0.0, 800.0])).tolist() == [0.0, 0.5, 1.0]


def test_scores_that_are_no_numbers_are_the_lowest() -> None:
    """A model whose training has gone wrong is judged like any other, and stops nobody's evaluation."""
    y, p = np.array([[1, 0], [0, 1]], np.float32), np.array([[np.nan, 0.9], [0.2, np.nan]])
    found = label_sets.histogram_sums(y, p)
    assert found == {"auc:0:0:12": 1.0, "auc:0:1:0": 1.0, "auc:1:0:57": 1.0, "auc:1:1:0": 1.0}
    assert label_sets.count_sums(y, p)["fn:0"] == 1
    of_classes = classification.sums(np.array([0, 1]), np.full((2, 2), np.nan, np.float32))
    assert sum(n for name, n in of_classes.items() if name.startswith("auc:0:")) == 2
