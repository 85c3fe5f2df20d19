"""Samples of the devices in AugFL's table: two classes each, nobody shares one, and too few are said in words."""

from collections import Counter

import numpy as np
import pytest

from benchmarks import pairs
from edge_sdk.errors import UsageError
from edge_sdk.replay.datasets.table import Table


def table(each):
    """Ten classes of so many samples; a sample is its number."""
    y = np.repeat(np.arange(10), each)
    x = np.arange(len(y), dtype=np.float32).reshape(-1, 1)
    return Table("numbers", x, y, tuple("0123456789"), np.arange(len(y)))


def dealt(each, least, seed):
    t = table(each)
    return pairs.dealt(t, np.arange(len(t)), np.zeros(0, np.int64), (1,), least, seed)


@pytest.mark.parametrize("seed", range(20))
def test_every_device_has_two_classes_halves_of_them_and_samples_of_its_own(seed):
    """Also where a class would run out if pairs were drawn among all: 50 devices take 1500 of 2500 samples."""
    data = dealt(250, 20, seed)
    taken = np.concatenate(list(data.x.values())).ravel()
    assert len(data.x) == pairs.DEVICES and len(np.unique(taken)) == len(taken)
    for y in data.y.values():
        counts = Counter(y.tolist())
        assert 20 <= len(y) <= 40 and len(counts) == 2
        assert max(counts.values()) - min(counts.values()) == len(y) % 2


def test_a_pair_is_of_all_classes_that_have_enough_and_of_no_other():
    """Where all have, draws are those of the whole set, so figures of a data set with plenty stay as they are."""
    plenty, short = dict.fromkeys(range(10), 15), {**dict.fromkeys(range(10), 15), 4: 14}
    for seed in range(50):
        random, again = np.random.default_rng(seed), np.random.default_rng(seed)
        assert np.array_equal(pairs.two_classes(random, plenty, 29, 0), again.choice(10, 2, replace=False))
        assert 4 not in pairs.two_classes(random, short, 29, 0)
        assert 4 not in pairs.two_classes(random, short, 30, 0)


def test_too_few_samples_are_said():
    with pytest.raises(UsageError, match=r"device \d+ of 50 takes \d+ samples of each of two classes.*--samples"):
        dealt(100, 20, 0)
