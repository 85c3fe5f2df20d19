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
from edge_sdk.nodes.kernels.plain import standardises
from edge_sdk.nodes.kernels.split import hospital_kernels


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


def test_a_fleet_s_statistics_are_of_labelled_and_other_windows() -> None:
    x, loose = np.array([[1.0], [3.0]], np.float32), np.array([[8.0]], np.float32)

    def told(statistics: bool, unlabelled: Any) -> Any:
        run, model = SimpleNamespace(settle={"statistics": statistics}), SimpleNamespace(samples=lambda x: x)
        return standardises(cast(Any, SimpleNamespace(run=run, model=model, x=x, unlabelled=unlabelled)))

    assert told(False, None) == {}
    assert [float(v[0]) for v in told(True, None)["feature_means"]()] == [2.0, 5.0]
    assert [float(v[0]) for v in told(True, (loose, np.zeros(1, int)))["feature_means"]()] == [
        4.0,
        pytest.approx(74 / 3),
    ]


def test_a_hospital_embeds_a_device_s_validation_part_until_the_end_and_then_both() -> None:
    slot = SimpleNamespace(group="hospital", kind="weight", size=2, offset=0)
    towers = {"hospital": {"embedding": 1}}
    bundle = SimpleNamespace(manifest={"split": {"towers": towers}})
    model = SimpleNamespace(
        layout=SimpleNamespace(slots=[slot]), bundle=bundle, embed=lambda tower, theta, x: x[:, 0].tolist()
    )
    parts = [(np.array([[1.0], [2.0], [3.0]]), {"d0": np.array([2, 0])}), (np.array([[7.0]]), {"d0": np.array([0])})]
    h1 = hospital_kernels(cast(Any, model), np.zeros((1, 1)), np.zeros(1, int), {}, parts)["h1_judged"]
    assert h1(None, "d0", False) == [3.0, 1.0] and h1(None, "d0", True) == [3.0, 1.0, 7.0]
    assert h1(None, "d1", True) == []


@pytest.mark.parametrize(("companions", "wrong"), [({"north": 2}, 2), ({"nobody": 0}, 0), ({"north": -1}, -1)])
def test_companions_are_fewer_than_the_devices_of_their_hospital(companions: dict[str, int], wrong: int) -> None:
    parts = cast(AggregatorParts, SimpleNamespace(companions=companions, hospitals={"north": 2}, public=None))
    with pytest.raises(UsageError, match=f"companions.* = {wrong}: less than"):
        for_aggregator(parts)


def test_a_hospital_may_have_no_companions() -> None:
    parts = cast(AggregatorParts, SimpleNamespace(companions={"north": 0}, hospitals={"north": 2}, public=None))
    with pytest.raises(UsageError, match="name their file"):
        for_aggregator(parts)
