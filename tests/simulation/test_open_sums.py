"""Exact sums that stay open: many vectors at once come to the integers of one after the other."""

from __future__ import annotations

import numpy as np
import pytest

from edge_sdk.methods.shared.aggregation import exact
from edge_sdk.simulation.sums.open_sums import BLOCK, SMALL, TOGETHER, add_in_place, is_small


def awkward_numbers(size: int, largest: float, dtype: type, seed: int):
    """Numbers of every size up to a largest one, halves of the last places, and both zeros."""
    random = np.random.default_rng(seed)
    x = np.clip(random.standard_normal(size) * 2.0 ** random.integers(-80, 30, size), -largest, largest).astype(dtype)
    halves = (np.arange(-40, 40) + 0.5) * 2.0**-exact.HIGH
    least = (np.arange(-40, 40) + 0.5) * 2.0**-exact.LOW
    ends = np.array([0.0, -0.0, largest, -largest, 2.0**-140])
    x[: 2 * 80 + 80 + 5] = np.concatenate([halves, least, 1 + halves, ends]).astype(dtype)
    return x


def largest_small() -> float:
    return float(np.nextafter(np.float32(SMALL), np.float32(0)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("largest", [largest_small(), SMALL, exact.NEAR, exact.LARGEST])
def test_sums_of_many_are_those_of_split(dtype, largest):
    vectors = [awkward_numbers(BLOCK + 300, largest, dtype, seed) for seed in range(TOGETHER)]
    sums = np.random.default_rng(4).integers(-(2**61), 2**61, (2, BLOCK + 300))
    wanted = sums + np.sum([exact.split(x) for x in vectors], axis=0)
    add_in_place(vectors, *sums)
    assert np.array_equal(sums, wanted)


def test_vectors_of_different_sizes_of_numbers_are_added_together():
    vectors = [awkward_numbers(300, largest, np.float32, 3) for largest in (1.0, 2.0**20, exact.LARGEST, 2.0)]
    assert [is_small(x) for x in vectors] == [True, False, False, True]
    sums = np.zeros((2, 300), np.int64)
    add_in_place(vectors, *sums)
    assert np.array_equal(sums, np.sum([exact.split(x) for x in vectors], axis=0))


def test_what_is_no_number_is_not_small():
    assert not any(is_small(np.array([1.0, bad], np.float32)) for bad in (np.nan, np.inf, -np.inf, SMALL, -SMALL))
    assert is_small(np.zeros(0, np.float32)) and not is_small(np.zeros(3))
