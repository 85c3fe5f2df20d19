"""Who is drawn: uniform, the same for the same seed in whatever order children are named, and cheap among very many."""

from math import comb

import numpy as np
import pytest

from edge_sdk.contract.children import choice
from edge_sdk.contract.children.choice import in_order, pick, sample


def test_pick_is_uniform_and_reproducible():
    assert pick(["b", "a", "c"], 2, 1, 2) == pick(["c", "b", "a"], 2, 1, 2)
    assert pick(["a", "b"], 9, 1) == ("a", "b") and pick([], 3, 1) == ()
    counts = {n: sum(n in pick(list("abcd"), 1, 0, k) for k in range(400)) for n in "abcd"}
    assert sum(counts.values()) == 400 and min(counts.values()) > 60


def test_draws_among_so_many_as_are_shuffled_stay_what_they_were():
    names = [f"c{i:05}" for i in range(choice.SHUFFLED)]
    expected = np.random.default_rng([7, 3, 5]).permutation(len(names))[:20]
    assert pick(names, 20, 7, 3, 5) == tuple(names[i] for i in sorted(expected))


@pytest.mark.parametrize(("among", "count"), [(1, 1), (5, 0), (5, 2), (6, 3), (4, 4)])
def test_each_subset_is_drawn_equally_often(among, count):
    subsets, times = comb(among, count), 400
    random, found = np.random.default_rng(among), dict[frozenset[int], int]()
    for _ in range(times * subsets):
        drawn = frozenset(sample(random, among, count))
        found[drawn] = found.get(drawn, 0) + 1
    assert all(len(drawn) == count and drawn <= set(range(among)) for drawn in found)
    assert len(found) == subsets and max(abs(n - times) for n in found.values()) < 5 * times**0.5


def test_among_more_than_are_shuffled_a_draw_is_as_good():
    names = [f"c{i:05}" for i in range(choice.SHUFFLED + 1)]
    drawn = pick(names, 300, 1, 2)
    assert len(set(drawn)) == 300 and list(drawn) == sorted(drawn) and set(drawn) <= set(names)
    assert pick(names[::-1], 300, 1, 2) == drawn != pick(names, 300, 1, 3)
    assert pick(names, len(names) + 5, 1) == tuple(names) and pick(names, 0, 1) == ()
    halves = [np.mean([int(name[1:]) < len(names) // 2 for name in pick(names, 300, 9, k)]) for k in range(40)]
    assert abs(np.mean(halves) - 0.5) < 0.02


def test_names_in_their_order_are_not_sorted_again():
    names = in_order(["b", "c", "a"])
    assert names == ("a", "b", "c") and in_order(names) is names
