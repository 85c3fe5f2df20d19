"""Discrete Gaussian noise against its definition, and the accounting of it against the package dp-accounting."""

import hashlib
from math import exp, inf

import numpy as np
import pytest

from aggregator.accountant import epsilon_of_sums
from edge_sdk.algebra.secure_aggregation.discrete import LARGEST_VARIANCE, cumulative, draw_gaussian, find_distances
from edge_sdk.algebra.secure_aggregation.privacy import epsilon_of, multiplier_of, rho_of_sum, total_epsilon


class Stream:
    """Bytes that are the same each time."""

    def __init__(self, seed):
        self.seed, self.drawn = seed, 0

    def __call__(self, count):
        self.drawn += 1
        return hashlib.shake_128(f"{self.seed}/{self.drawn}".encode()).digest(count)


@pytest.mark.parametrize("variance", [1, 4, 30])
def test_numbers_are_as_frequent_as_the_definition_says(variance):
    """Chi-square over all values that are expected at least ten times; its 99.9 % quantile is below d + 4 sqrt(2 d)."""
    count, values = 200_000, np.arange(-40, 41)
    drawn = draw_gaussian(variance, count, Stream(variance))
    weights = np.exp(-(values**2) / (2 * variance))
    expected = count * weights / weights.sum()
    found = np.array([(drawn == v).sum() for v in values])
    usual = expected >= 10
    chi = ((found - expected)[usual] ** 2 / expected[usual]).sum()
    assert chi < usual.sum() + 4 * np.sqrt(2 * usual.sum())
    assert drawn.size == count and np.abs(drawn).max() <= 40


def test_the_largest_variance_fits_64_bits():
    drawn = draw_gaussian(LARGEST_VARIANCE, 40_000, Stream("large")) / LARGEST_VARIANCE**0.5
    assert abs(drawn.mean()) < 0.02 and abs(drawn.std() - 1) < 0.02 and np.abs(drawn).max() < 6


@pytest.mark.parametrize("variance", [0, -1, LARGEST_VARIANCE + 1])
def test_another_variance_is_refused(variance):
    with pytest.raises(ValueError, match="a whole number from 1"):
        draw_gaussian(variance, 1, Stream(0))


@pytest.mark.parametrize("variance", [1, 4, 10_000, LARGEST_VARIANCE])
def test_the_first_bits_of_a_word_decide_what_a_search_for_all_of_it_finds(variance):
    table = cumulative(variance)
    words = np.random.default_rng(variance).integers(0, 2**64, 20_000, dtype=np.uint64)
    near = table.words[:: max(1, len(table.words) // 2000)]  # where a search can go wrong by one
    ends = np.array([0, 2**64 - 1], np.uint64)
    words = np.concatenate([words, near, near - np.uint64(1), near + np.uint64(1), ends])
    assert (find_distances(table, words) == np.searchsorted(table.words, words, side="right")).all()


@pytest.mark.parametrize("variance", [1, 30, 10_000, LARGEST_VARIANCE])
def test_two_bytes_of_a_word_say_only_what_all_eight_would_say(variance):
    """Each word's first 16 bits, then 48 more where these leave it open: the number of all 64 bits together."""
    table, random = cumulative(variance), np.random.default_rng(variance)
    words = random.integers(0, 2**64, 5000, dtype=np.uint64)
    words[:40] = table.words[:40][np.arange(40) % len(table.words[:40])] + np.uint64(1)
    octets = words.astype("<u8").view(np.uint8).reshape(-1, 8)
    opened = table.guide[words >> np.uint64(48)] < 0
    given = [octets[:, 6:].tobytes(), octets[opened, :6].tobytes(), bytes(-(-words.size // 8))]
    drawn = draw_gaussian(variance, words.size, lambda count: given.pop(0))
    assert (drawn == np.searchsorted(table.words, words, side="right")).all() and not given


def test_a_word_that_falls_on_a_probability_is_decided_by_more_bits():
    """The same first word, and more bits from either side of the border: the number on that side."""
    table = cumulative(9)
    for z in (0, 3, 20):
        border = table.fine[z] & (2**64 - 1)
        for low, expected in ((border - 1, z), (border, z + 1)):
            word = int(table.words[z]).to_bytes(8, "little")
            given = [word[6:], word[:6], low.to_bytes(8, "little"), b"\0"]
            assert draw_gaussian(9, 1, lambda count, given=given: given.pop(0))[0] == expected


def test_probabilities_are_those_of_the_definition():
    for variance in (1, 7, 10_000):
        z = np.arange(-500, 501)
        weights = np.exp(-(z**2) / (2 * variance))
        expected = weights / weights.sum() if variance < 100 else None
        found = np.array([number / 2**128 for number in cumulative(variance).fine])
        assert found[-1] == 1.0 and (np.diff(found) >= 0).all()
        if expected is not None:
            assert found[0] == pytest.approx(expected[500], rel=1e-12)
            assert found[1] - found[0] == pytest.approx(2 * expected[501], rel=1e-12)


@pytest.mark.parametrize("spent", [{0.5: 1}, {0.001: 300}, {0.01: 20, 0.03: 5}, {4.0: 2}])
def test_epsilon_is_that_of_dp_accounting(spent):
    pytest.importorskip("dp_accounting", reason="the extra `privacy` is not installed")
    for delta in (1e-5, 1e-7):
        assert total_epsilon(spent, delta) == pytest.approx(epsilon_of_sums(spent, delta), rel=1e-9)


def test_a_run_keeps_the_epsilon_that_its_noise_was_made_for():
    for epsilon in (0.5, 2.0, 8.0):
        z = multiplier_of(epsilon, 1e-5, 60)
        assert 0.98 * epsilon < epsilon_of(60 / (2 * z * z), 1e-5) <= epsilon


def test_a_sum_of_discrete_gaussians_counts_as_its_own_noise_and_no_less():
    assert rho_of_sum(3.0, 100, 4, 10_000) == pytest.approx(9 / 800, rel=1e-9)
    coarse = rho_of_sum(0.1, 1, 4, 10_000)
    assert coarse > 0.5 * 0.01 / 4 + 10 * exp(-10), "with a variance of 1 a sum is visibly no discrete Gaussian"
    assert rho_of_sum(1.0, 0, 4, 10) == inf and epsilon_of(inf, 1e-5) == inf and epsilon_of(0.0, 1e-5) == 0
