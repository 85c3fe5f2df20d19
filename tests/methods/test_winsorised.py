"""Robust sums of features: one bad device does not move the fleet's scale, and honest ones count as they are."""

import numpy as np
import pytest

from edge_sdk.methods.shared.aggregation.exact import split
from edge_sdk.methods.standardising.equations import UNIT, are_moments, moments
from edge_sdk.methods.standardising.messages import FeatureSums
from edge_sdk.methods.standardising.winsorised import RATIO, REACH, winsorised

FEATURES = 5


def sums(mean, std, devices=1):
    square = np.square(mean) + np.square(std)
    return FeatureSums(*split(devices * np.concatenate([mean, UNIT * square])), devices)


def honest(count=7, seed=0, devices=1):
    """Devices whose means and standard deviations are spread evenly, in another order for each feature."""
    random = np.random.default_rng(seed)
    means, stds = (
        np.stack([random.permutation(np.linspace(*ends, count)) for _ in range(FEATURES)], 1)
        for ends in ((-1, 1), (1, 2))
    )
    return {f"d{i}": sums(means[i], stds[i], devices) for i in range(count)}


def told(found):
    return {name: moments(one.high, one.low, one.devices) for name, one in found.items()}


def of_all(found):
    return moments(sum(m.high for m in found.values()), sum(m.low for m in found.values()), len(found))


def test_honest_sums_stay_as_they_are_to_the_bit():
    before = honest()
    after = winsorised(before)
    for name, one in before.items():
        assert np.array_equal(after[name].high, one.high) and np.array_equal(after[name].low, one.low)


@pytest.mark.parametrize("mean, std", [(1e6, 1.0), (0.0, 1e6), (0.0, 1e-9), (-1e6, 1e3)])
def test_a_bad_device_moves_the_fleet_no_more_than_one_at_the_edge_of_the_others(mean, std):
    good = honest()
    bad = {**good, "z": sums(np.full(FEATURES, mean), np.full(FEATURES, std))}
    after = winsorised(bad)
    rows = np.stack([told(bad)[n] for n in sorted(bad)])
    means, stds = rows[:, 0], np.sqrt(rows[:, 1] - rows[:, 0] ** 2)
    centre, usual = np.median(means, 0), np.median(stds, 0)
    reach = REACH * np.median(abs(means - centre), 0)
    moved = told(after)["z"]
    assert (abs(moved[0] - centre) <= reach + 1e-5).all()
    spread = np.sqrt(moved[1] - moved[0] ** 2)
    assert (usual / RATIO - 1e-2 <= spread).all() and (spread <= usual * RATIO + 1e-2).all()
    assert (abs(of_all(after)[0] - of_all(good)[0]) < 1.0).all()  # of means between -1 and 1
    assert all(are_moments(m.high, m.low, m.devices) for m in after.values())


def test_only_the_features_that_are_far_away_are_moved():
    good = honest()
    mean = told(good)["d0"][0].copy()
    mean[2] = 500.0
    bad = {**good, "d0": sums(mean, np.full(FEATURES, 1.5))}
    before, after = bad["d0"], winsorised(bad)["d0"]
    same = np.array([True, True, False, True, True] * 2)
    assert np.array_equal(after.high[same], before.high[same]) and (after.high[~same] != before.high[~same]).all()


def test_the_order_of_arrival_does_not_matter_and_devices_are_counted_as_before():
    bad = {"a": sums(np.full(FEATURES, 1e5), np.ones(FEATURES), 3), **honest(devices=4)}
    one, other = winsorised(bad), winsorised(dict(reversed(bad.items())))
    assert one.keys() == other.keys() and {n: m.devices for n, m in one.items()} == {
        n: m.devices for n, m in bad.items()
    }
    assert all(np.array_equal(one[n].high, other[n].high) and np.array_equal(one[n].low, other[n].low) for n in one)


def test_two_have_no_majority():
    two = {"a": sums(np.zeros(FEATURES), np.ones(FEATURES)), "b": sums(np.full(FEATURES, 1e5), np.ones(FEATURES))}
    assert winsorised(two) == two
    assert winsorised({}) == {}
