"""Scores of reconstructed windows: sums that add up, the area under the curve within its error, thresholds."""

import numpy as np
import pytest

from edge_sdk.algebra.metrics.reconstruction import (
    score_sums,
    scores_of,
    threshold_of,
    window_errors,
    window_variances,
)
from edge_sdk.errors import UsageError


def draw(seed, count=400, apart=1.0):
    random = np.random.default_rng(seed)
    abnormal = random.random(count) < 0.2
    return random.lognormal(np.where(abnormal, apart, 0.0), 0.8), abnormal


def test_errors_and_variances_are_means_over_the_numbers_of_a_window():
    random = np.random.default_rng(0)
    x, z = random.normal(3, 2, (2, 5, 2, 7))
    assert window_errors(x, z) == pytest.approx(((x - z) ** 2).mean((1, 2)))
    assert window_variances(x) == pytest.approx(x.var(2).mean(1))
    assert window_variances(x[:0]).shape == (0,)
    with pytest.raises(UsageError, match=r"\(5, 2, 7\) and reconstructions of \(5, 2, 6\)"):
        window_errors(x, z[..., 1:])


def test_sums_of_devices_are_the_sums_of_all_windows_in_units_of_each_threshold():
    parts = [(*draw(k, apart=2.0), 0.5 + k) for k in range(3)]
    parts = [(errors * limit, abnormal, limit) for errors, abnormal, limit in parts]
    each = [score_sums(*part) for part in parts]
    total = {name: sum(one.get(name, 0.0) for one in each) for name in {*(n for one in each for n in one)}}
    together = score_sums(np.concatenate([e / t for e, _, t in parts]), np.concatenate([a for _, a, _ in parts]), 1.0)
    own, other = scores_of(total), scores_of(together)
    assert (own.normal, own.abnormal, own.alarms, own.found) == (
        other.normal,
        other.abnormal,
        other.alarms,
        other.found,
    )
    assert own.auroc == pytest.approx(other.auroc) and own.threshold == pytest.approx(1.5)
    assert own.error == pytest.approx(np.concatenate([e[~a] for e, a, _ in parts]).mean())


@pytest.mark.parametrize("apart", [0.0, 0.5, 2.0, 6.0])
def test_the_area_by_bins_is_within_its_error_of_sklearns(apart):
    metrics = pytest.importorskip("sklearn.metrics")
    for seed in range(5):
        errors, abnormal = draw(seed, apart=apart)
        found = scores_of(score_sums(errors, abnormal, threshold_of(errors[~abnormal], 0.99)))
        assert abs(found.auroc - metrics.roc_auc_score(abnormal, errors)) <= found.auroc_error < 0.02


def test_a_threshold_is_the_quantile_and_alarms_are_above_it():
    errors, abnormal = draw(1, 1000, 3.0)
    limit = threshold_of(errors[~abnormal], 0.9)
    assert limit == np.quantile(errors[~abnormal], 0.9) and threshold_of(errors[:0], 0.9) is None
    found = scores_of(score_sums(errors, abnormal, limit))
    assert found.alarms == pytest.approx(0.1, abs=0.002) and found.threshold == limit
    assert found.found == (errors[abnormal] > limit).mean() > 0.8
    same = scores_of(score_sums(np.full(4, 2.0), np.zeros(4, bool), 2.0))
    assert same.alarms == 0 and same.auroc is None and same.found is None, "only above it, and of one kind no area"
    without = scores_of(score_sums(errors, abnormal, None))
    assert without.alarms is without.found is without.auroc is without.threshold is None and without.error > 0


def test_the_explained_share_is_of_variance_about_the_channels_means():
    x = np.random.default_rng(0).normal(5, 2, (30, 3, 16))
    mean = np.broadcast_to(x.mean(2, keepdims=True), x.shape)
    normal, variance = np.zeros(30, bool), {"variance": window_variances(x).sum()}
    assert scores_of(score_sums(window_errors(x, mean), normal, 1.0) | variance).explained == pytest.approx(0)
    assert scores_of(score_sums(window_errors(x, x), normal, 1.0) | variance).explained == 1
    still = np.ones((3, 1, 4))
    assert scores_of(score_sums(window_errors(still, still), normal[:3], 1.0) | {"variance": 0.0}).explained is None


def test_a_model_that_has_diverged_is_an_alarm_everywhere():
    errors = np.array([np.inf, np.nan, 1.0, np.inf])
    found = scores_of(score_sums(errors, np.array([False, True, False, True]), 2.0))
    assert found.auroc is not None and found.alarms == 0.5 and found.found == 1
