"""Errors of values, by their definition and as sums that add up."""

from __future__ import annotations

import numpy as np
import pytest

from edge_sdk.algebra.metrics.regression import Errors, error_sums, errors_of
from edge_sdk.errors import UsageError


def test_errors_by_their_definition() -> None:
    y, predicted = np.array([[1.0], [2.0], [4.0]]), np.array([[2.0], [2.0], [1.0]])
    sums = error_sums(y, predicted)
    assert sums == {"absolute:0": 4.0, "squared:0": 10.0, "error:0": -2.0}
    found = errors_of(sums, 3, half=70.0)
    d = 70 * (predicted - y)
    assert found.mae == pytest.approx(np.abs(d).mean()) and found.rmse == pytest.approx(np.sqrt((d**2).mean()))
    assert found.bias == pytest.approx(d.mean())
    assert (found.low, found.high) == pytest.approx((d.mean() - 1.96 * d.std(), d.mean() + 1.96 * d.std()))


def test_sums_of_parts_are_those_of_the_whole() -> None:
    random = np.random.default_rng(3)
    y, predicted = random.normal(size=(2, 50, 2))
    whole, parts = error_sums(y, predicted), [error_sums(y[at], predicted[at]) for at in (slice(0, 20), slice(20, 50))]
    assert whole == pytest.approx({name: parts[0][name] + parts[1][name] for name in whole})
    assert {name.partition(":")[2] for name in whole} == {"0", "1"}


def test_one_error_has_no_spread() -> None:
    assert errors_of(error_sums(np.zeros((1, 1)), np.ones((1, 1))), 1) == Errors(1.0, 1.0, 1.0, 1.0, 1.0)


def test_shapes_that_differ() -> None:
    with pytest.raises(UsageError, match="values of shape"):
        error_sums(np.zeros((3, 1)), np.zeros((3, 2)))
