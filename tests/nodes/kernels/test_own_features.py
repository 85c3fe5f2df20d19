"""What a device tells of its own features, and sets of labels as classes, by their definitions."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from edge_sdk.errors import UsageError
from edge_sdk.nodes.kernels.companions import for_aggregator
from edge_sdk.nodes.kernels.family import AggregatorParts
from edge_sdk.nodes.kernels.own_windows import STEP, KnownSets, feature_means


def test_means_are_of_all_samples_whose_features_are_numbers() -> None:
    x = np.random.default_rng(0).normal(size=(2 * STEP + 3, 4)).astype(np.float32)
    more = x[:3] * 2
    lost = np.full((1, 4), np.nan, np.float32)
    mean, square = feature_means([x, x[:0], np.concatenate([lost, more])])
    rows = np.concatenate([x, more]).astype(np.float64)
    assert mean == pytest.approx(rows.mean(0)) and square == pytest.approx((rows**2).mean(0))
    assert [part.shape for part in feature_means([lost, x[:0]])] == [(0,), (0,)]


def test_a_set_that_the_training_samples_have_not_is_no_class() -> None:
    def known(y: Any) -> KnownSets:
        return KnownSets(cast(Any, SimpleNamespace(y=np.array(y, np.float32).reshape(-1, 3))))

    asked = np.array([[0, 0, 0], [1, 0, 1], [0, 1, 0]], np.float32)
    assert known([[1, 0, 1], [0, 0, 0], [1, 0, 1]]).codes(asked).tolist() == [0, 1, -1]
    assert known([]).codes(asked).tolist() == [-1, -1, -1]


@pytest.mark.parametrize(("companions", "wrong"), [({"north": 2}, 2), ({"nobody": 0}, 0), ({"north": -1}, -1)])
def test_companions_are_fewer_than_the_devices_of_their_hospital(companions: dict[str, int], wrong: int) -> None:
    parts = cast(AggregatorParts, SimpleNamespace(companions=companions, hospitals={"north": 2}, public=None))
    with pytest.raises(UsageError, match=f"companions.* = {wrong}: less than"):
        for_aggregator(parts)
