"""Who is whose neighbour: the same for all who know the draw, for each as many, and in one piece."""

from itertools import pairwise
from math import comb

import pytest

from edge_sdk.algebra.secure_aggregation.neighbours import degree, is_in_one_piece, neighbours, threshold


def names(n):
    return tuple(f"d{i:05}" for i in range(n))


@pytest.mark.parametrize("n", [2, 3, 6, 47, 48, 49, 100, 500])
def test_all_have_as_many_neighbours_who_are_each_others(n):
    graph = neighbours(names(n), b"draw")
    assert tuple(graph) == names(n)
    assert {len(peers) for peers in graph.values()} == {degree(n)}
    for name, peers in graph.items():
        assert name not in peers and list(peers) == sorted(set(peers))
        assert all(name in graph[peer] for peer in peers)
    assert is_in_one_piece(graph, names(n))


def test_their_number_grows_with_the_logarithm():
    assert [degree(n) for n in (3, 6, 47, 48, 500, 1000, 16000)] == [2, 5, 46, 46, 72, 80, 112]
    assert all(degree(b) >= degree(a) for a, b in pairwise(range(2, 2000)))
    assert [threshold(n) for n in (2, 3, 4, 6, 10, 48, 500)] == [2, 2, 3, 4, 7, 32, 49]
    assert all(2 * threshold(n) > degree(n) + 1 for n in range(2, 2000))  # no two sets of holders without one in both


def test_another_draw_is_another_circle():
    graphs = [neighbours(names(200), bytes([i])) for i in range(3)]
    assert len({tuple(g["d00000"]) for g in graphs}) == 3


def test_a_circle_that_has_fallen_apart_is_found():
    graph = neighbours(names(100), b"draw")
    circle = ["d00000"]
    gone = {*graph["d00000"]}
    assert not is_in_one_piece(graph, [n for n in names(100) if n not in gone])
    assert is_in_one_piece(graph, circle) and is_in_one_piece(
        graph, [n for n in names(100) if n not in {*list(gone)[1:]}]
    )


def tail(n, bad, k, least):
    """Probability that among k of n - 1 others, drawn at random, are at least `least` of so many bad ones."""
    found = sum(comb(bad, i) * comb(n - 1 - bad, k - i) for i in range(least, min(bad, k) + 1))
    return found / comb(n - 1, k)


@pytest.mark.parametrize("n", [100, 500, 1000, 10000])
def test_one_in_ten_that_lies_or_is_missing_is_borne(n):
    """Over all devices of an exchange: docs/uploads.md says what follows from it."""
    k, t = degree(n), threshold(n)
    both_shares = 2 * t - (k + 1)  # holders who tell both shares, with whom two sets of survivors can be shown
    assert n * tail(n, n // 10, k, both_shares) < 1e-4
    assert n * tail(n, n // 10, k, k + 1 - t + 1) < 1e-4  # missing ones, without whom a secret cannot be made
    assert n * tail(n, n // 4, k, t) < 1e-9  # who puts together what they hold, each of them honest to the hospital
