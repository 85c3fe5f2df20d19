"""Metrics and differences against their definitions, written out."""

from __future__ import annotations

from statistics import mean

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_sdk.errors import UsageError
from edge_sdk.replay.metrics.statistics import (
    compare,
    difference_interval,
    majority_confusion,
    mean_interval,
    measure,
    recall_by_class,
    spread,
    student_t,
    wilson,
)

LABELS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=40)


def confusion(pairs):
    found = np.zeros((4, 4), np.int64)
    for truth, guess in pairs:
        found[truth, guess] += 1
    return found


def f1(pairs, c):
    right = sum(t == g == c for t, g in pairs)
    false_alarms, misses = sum(t != c == g for t, g in pairs), sum(t == c != g for t, g in pairs)
    return 2 * right / (2 * right + false_alarms + misses)


@given(LABELS)
def test_metrics_are_what_they_are_defined_to_be(pairs):
    found = measure(confusion(pairs))
    truths = {t for t, _ in pairs}
    recall = {c: mean(g == c for t, g in pairs if t == c) for c in truths}
    assert found.accuracy == pytest.approx(mean(t == g for t, g in pairs))
    assert found.macro_f1 == pytest.approx(mean(f1(pairs, c) for c in {c for pair in pairs for c in pair}))
    assert found.balanced_accuracy == pytest.approx(mean(recall.values()))
    names = "abcd"
    assert recall_by_class(confusion(pairs), names) == pytest.approx({names[c]: r for c, r in recall.items()})


def test_metrics_of_nothing_are_refused():
    with pytest.raises(UsageError, match="no samples"):
        measure(np.zeros((3, 3), np.int64))


def test_the_majority_is_that_of_training():
    found = majority_confusion({"b": 3, "a": 1, "c": 3}, np.array([[1, 0, 0], [0, 5, 1], [0, 0, 2]]), "abc")
    assert found.tolist() == [[0, 1, 0], [0, 6, 0], [0, 2, 0]]
    assert measure(found).accuracy == pytest.approx(6 / 9)


def test_differences_are_paired():
    found = compare([0.9, 0.5, 0.7, 0.6], [0.8, 0.6, 0.695, 0.605])
    assert found.mean == pytest.approx((0.1 - 0.1 + 0.005 - 0.005) / 4, abs=1e-12) and found.devices == 4
    assert found.worse == 0.5 and found.worse_by_a_point == 0.25
    assert found.low < 0 < found.high
    constant = compare([0.5, 0.7], [0.4, 0.6])
    assert constant.low == pytest.approx(0.1) and constant.high == pytest.approx(0.1) and constant.worse == 0
    rounded = compare([0.1 + 0.2], [0.3])
    assert rounded.worse == 0
    for values, others in (([], []), ([1.0], [1.0, 2.0])):
        with pytest.raises(UsageError, match="pairs are compared"):
            compare(values, others)


def test_the_interval_covers_the_mean_as_often_as_it_says():
    """Of 4,000 samples of few normal values, as of many: 95 %, whose standard error is 0.3 %."""
    random = np.random.default_rng(0)
    for devices in (3, 5, 14):
        ends = [mean_interval(random.normal(size=devices)) for _ in range(4000)]
        assert abs(sum(low <= 0 <= high for low, high in ends) / 4000 - 0.95) < 0.012


def test_the_quantile_of_students_t():
    """Against SciPy's, of 1 to a million devices."""
    t = pytest.importorskip("scipy.stats").t
    for freedom in (*range(1, 41), 100, 1000, 999_999):
        assert student_t(freedom) == pytest.approx(t.ppf(0.975, freedom), rel=2e-3)


def test_an_interval_of_shares_ends_where_differences_of_shares_end():
    found = compare([1.0, 0.0], [0.0, 1.0])
    assert (found.low, found.high) == (-1.0, 1.0)
    assert mean_interval(np.array([0.25])) == (0.25, 0.25)


def test_spread():
    assert spread([1.0, 3.0]) == pytest.approx((2.0, 2**0.5))
    assert spread([4.0]) == (4.0, 0.0)


def test_wilsons_interval_of_a_share() -> None:
    """81 of 263: the example of R. G. Newcombe, Statistics in Medicine 17 (1998) 857-872."""
    assert wilson(81 / 263, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert wilson(0.0, 20) == pytest.approx((0.0, 0.1611), abs=5e-5)
    low, high = wilson(1.0, 20)
    assert low == pytest.approx(1 - 0.1611, abs=5e-5) and high == 1.0
    with pytest.raises(UsageError):
        wilson(0.5, 0)


def test_newcombes_interval_of_a_difference() -> None:
    """56 of 70 against 48 of 80: his example, pages 873-890."""
    found = difference_interval(56 / 70, 70, 48 / 80, 80)
    assert found == pytest.approx((0.0524, 0.3339), abs=5e-5)
    assert difference_interval(48 / 80, 80, 56 / 70, 70) == pytest.approx((-found[1], -found[0]))
