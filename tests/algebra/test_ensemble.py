"""Predictions of two models together, over known classes, and over several windows."""

import numpy as np
import pytest

from edge_sdk.algebra.ensemble import Ensemble, log_probabilities, pooled, probabilities, smoothed
from edge_sdk.errors import UsageError

RNG = np.random.default_rng(0)
A, B = (RNG.normal(0, 3, (20, 5)).astype(np.float32) for _ in range(2))


def test_probabilities_are_those_of_their_logarithms():
    logits = np.random.default_rng(3).normal(0, 300, (5, 7))
    for rows in (logits, logits[:1], logits[:0]):
        np.testing.assert_allclose(probabilities(rows), np.exp(log_probabilities(rows)), rtol=1e-12, atol=1e-300)
    np.testing.assert_allclose(probabilities(logits, (2, 4)), np.exp(log_probabilities(logits, (2, 4))))


def test_log_probabilities_are_those_of_a_softmax_over_the_known_classes():
    p = np.exp(A.astype(np.float64))
    np.testing.assert_allclose(np.exp(log_probabilities(A)), p / p.sum(1, keepdims=True), rtol=1e-12)
    p[:, [0, 3]] = 0
    np.testing.assert_allclose(np.exp(log_probabilities(A, (1, 2, 4))), p / p.sum(1, keepdims=True), rtol=1e-12)


def test_large_logits_do_not_overflow():
    assert np.isfinite(log_probabilities(np.array([[5e4, 0.0]]))).all()


def test_a_pool_is_the_weighted_product_of_probabilities():
    p, q = np.exp(log_probabilities(A)), np.exp(log_probabilities(B))
    product = p**0.75 * q**0.25
    found = np.exp(log_probabilities(pooled(log_probabilities(A), log_probabilities(B), 0.25)))
    np.testing.assert_allclose(found, product / product.sum(1, keepdims=True), rtol=1e-12)


@pytest.mark.parametrize("weight, wanted", [(0.0, A), (1.0, B)])
def test_a_pool_of_one_model_is_that_model_also_where_classes_are_ruled_out(weight, wanted):
    a, b = (log_probabilities(z, (1, 2)) for z in (A, B))
    np.testing.assert_array_equal(pooled(a, b, weight), log_probabilities(wanted, (1, 2)))


def test_a_ruled_out_class_stays_so_in_a_pool():
    a, b = (log_probabilities(z, (1, 2)) for z in (A, B))
    assert np.isneginf(pooled(a, b, 0.5)[:, [0, 3, 4]]).all()


def literal_smoothing(p, last, recording):
    means = []
    for i in range(len(p)):
        rows = [j for j in range(max(0, i - last + 1), i + 1) if recording[j] == recording[i]]
        means.append(p[rows].mean(0))
    return np.array(means)


@pytest.mark.parametrize("last", [1, 2, 3, 7, 50])
def test_smoothing_is_the_mean_over_the_last_windows_of_a_recording(last):
    recording = np.repeat([0, 1, 2], [4, 1, 15])
    wanted = literal_smoothing(np.exp(log_probabilities(A)), last, recording)
    np.testing.assert_allclose(smoothed(A, last, recording), wanted, rtol=1e-12)


def test_smoothing_keeps_ruled_out_classes_out():
    found = smoothed(log_probabilities(A, (1, 2)), 4)
    assert (found[:, [0, 3, 4]] == 0).all() and np.allclose(found.sum(1), 1)


def test_smoothing_needs_a_window():
    with pytest.raises(UsageError, match="smoothing over 0 windows"):
        smoothed(A, 0)


@pytest.mark.parametrize("wrong", [dict(weight=1.5), dict(weight=float("nan")), dict(classes=(-1,))])
def test_an_ensemble_checks_itself(wrong):
    with pytest.raises(UsageError, match="ensemble"):
        Ensemble(**wrong)
