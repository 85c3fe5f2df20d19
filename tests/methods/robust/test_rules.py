"""Rules by their definitions and certificates."""

from __future__ import annotations

import numpy as np
import pytest

from edge_sdk.methods.robust import rules

RANDOM = np.random.default_rng(3)
ROWS = RANDOM.normal(size=(9, 40)).astype(np.float32)


def sum_of_distances(rows, at):
    return sum(np.linalg.norm(row.astype(np.float64) - at) for row in rows)


def test_the_median_and_the_trimmed_mean_of_each_coordinate() -> None:
    assert np.array_equal(rules.median(ROWS), np.median(ROWS.astype(np.float64), axis=0))
    literal = [np.mean(sorted(map(float, column))[2:-2]) for column in ROWS.T]
    assert np.allclose(rules.trimmed_mean(ROWS, 0.2), literal, rtol=1e-12)  # a share of 0.2 of nine is two of them
    assert np.allclose(rules.trimmed_mean(ROWS, 0.49), rules.median(ROWS), rtol=1e-12)


def test_blocks_leave_no_seam(monkeypatch) -> None:
    whole = rules.median(ROWS), rules.trimmed_mean(ROWS, 0.1)
    monkeypatch.setattr(rules, "BLOCK", 7)
    assert all(
        np.array_equal(a, b) for a, b in zip(whole, (rules.median(ROWS), rules.trimmed_mean(ROWS, 0.1)), strict=True)
    )


@pytest.mark.parametrize("count, share, cut", [(1, 0.2, 0), (2, 0.4, 0), (3, 0.1, 1), (10, 0.2, 2), (10, 0.49, 4)])
def test_so_many_are_left_out_at_each_end(count: int, share: float, cut: int) -> None:
    assert rules.cut_off(count, share) == cut


def test_the_geometric_median_has_the_least_sum_of_distances() -> None:
    found = rules.geometric_median(ROWS)
    least = sum_of_distances(ROWS, found)
    for scale in (1e-3, 1e-2, 0.3):
        for _ in range(300):
            assert sum_of_distances(ROWS, found + scale * RANDOM.normal(size=40)) >= least
    for other in (ROWS.mean(0), rules.median(ROWS)):
        assert sum_of_distances(ROWS, other) > least


def test_the_geometric_median_may_be_one_of_the_rows() -> None:
    rows = np.array([[0.0, 0.0], [1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    assert np.allclose(rules.geometric_median(rows), 0, atol=1e-6)
    assert np.array_equal(rules.geometric_median(np.ones((3, 2))), [1.0, 1.0])


def test_clip_shortens_what_is_far_and_keeps_its_direction() -> None:
    rows = ROWS.copy()
    rows[4] *= 100
    centre = np.median(rows.astype(np.float64), axis=0)
    far = np.linalg.norm(rows - centre, axis=1)
    found = rules.clip(rows, 1.2)
    for row, d, new in zip(rows, far, found, strict=True):
        if d <= 1.2 * np.median(far):
            assert new is None
        else:
            assert np.isclose(np.linalg.norm(new - centre), 1.2 * np.median(far))
            assert np.isclose(np.dot(new - centre, row - centre), np.linalg.norm(new - centre) * d)
    assert found[4] is not None and sum(row is None for row in found) >= 5


def test_who_stands_at_the_centre_of_others_that_are_far_is_not_clipped() -> None:
    """Once by an infinite share, and with a warning."""
    *near, far = rules.clip(np.array([[0.0], [-10.0], [10.0], [-12.0], [90.0]]), 1.5)
    assert near == [None] * 4 and far is not None and far.tolist() == [15.0]


@pytest.mark.parametrize("rule", [rules.median, rules.geometric_median, lambda r: rules.trimmed_mean(r, 0.3)])
def test_a_minority_cannot_carry_a_rule_away(rule) -> None:
    """However far three of ten go, the result stays among the others; a mean would go with them."""
    honest = RANDOM.normal(size=(7, 30))
    radius = np.linalg.norm(honest - honest.mean(0), axis=1).max()
    for scale in (10.0, 1e4, 1e9):
        bad = scale * np.ones((3, 30))
        found = rule(np.concatenate([bad, honest]))
        assert np.linalg.norm(found - honest.mean(0)) < 2 * radius


def test_a_minority_moves_clipped_rows_by_no_more_than_the_usual_distance() -> None:
    honest = RANDOM.normal(size=(7, 30))
    rows = np.concatenate([1e9 * np.ones((3, 30)), honest])
    clipped = [row if new is None else new for row, new in zip(rows, rules.clip(rows, 1.0), strict=True)]
    radius = np.linalg.norm(honest - honest.mean(0), axis=1).max()
    assert np.linalg.norm(np.mean(clipped, 0) - honest.mean(0)) < 2 * radius


def test_means_of_neighbours_by_their_definition() -> None:
    found = rules.mix_neighbours(ROWS.astype(np.float64), 0.2)  # each without the two that are furthest from it
    for row, mean in zip(ROWS.astype(np.float64), found, strict=True):
        nearest = sorted(range(9), key=lambda j: np.linalg.norm(ROWS[j] - row))[:7]
        assert np.allclose(mean, ROWS[nearest].astype(np.float64).mean(0), rtol=1e-12)
    assert np.allclose(rules.mix_neighbours(ROWS[:2], 0.3), ROWS[:2].mean(0), atol=1e-6)


def test_neighbours_of_honest_rows_are_honest() -> None:
    """Three of ten that are far away are in no honest mean, and what a rule makes of the means is next to the mean."""
    honest = RANDOM.normal(size=(7, 30))
    mixed = rules.mix_neighbours(np.concatenate([1e6 * np.ones((3, 30)), honest]), 0.3)
    assert np.allclose(mixed[3:], honest.mean(0))
    for rule in (rules.median, rules.geometric_median, lambda rows: rules.trimmed_mean(rows, 0.3)):
        assert np.allclose(rule(mixed), honest.mean(0), atol=1e-5)


def test_the_mean_of_those_who_are_near_by_its_definition() -> None:
    weights, centre = RANDOM.uniform(1, 30, 9), rules.median(ROWS)
    far = [np.linalg.norm(row - centre) for row in ROWS.astype(np.float64)]
    near = [i for i in range(9) if far[i] <= 1.05 * np.median(far)]
    assert 5 <= len(near) < 9
    counted = np.minimum(weights, 3 * np.median(weights))[near]
    found = rules.mean_of_near(ROWS, weights, centre, 1.05)
    assert np.allclose(found, np.average(ROWS[near].astype(np.float64), axis=0, weights=counted), rtol=1e-12)


def test_where_everybody_is_alike_the_mean_of_those_who_are_near_is_the_mean() -> None:
    weights = np.arange(1.0, 10.0)
    found = rules.mean_of_near(ROWS, weights, rules.median(ROWS), 3.0)
    assert np.allclose(found, np.average(ROWS.astype(np.float64), axis=0, weights=weights), rtol=1e-12)


def test_who_is_as_far_as_may_be_counts_in_the_mean() -> None:
    one = np.ones(3)
    assert rules.mean_of_near(np.array([[0.0], [1.0], [4.0]]), one, np.array([1.0]), 1.0).tolist() == [0.5]
    assert rules.mean_of_near(np.full((3, 2), 5.0), one, np.full(2, 5.0), 1.5).tolist() == [5.0, 5.0]


def test_a_heavy_row_that_is_far_moves_nothing_and_one_that_is_near_no_more_than_three() -> None:
    honest = RANDOM.normal(size=(7, 30))
    rows = np.concatenate([honest, 1e6 * np.ones((3, 30))])
    centre = rules.median(rules.mix_neighbours(rows, 0.3))
    found = rules.mean_of_near(rows, np.array([1.0] * 7 + [1e9] * 3), centre, 1.5)
    assert np.allclose(found, rules.mean_of_near(honest, np.ones(7), centre, 1.5))
    heavy = rules.mean_of_near(honest, np.array([1e9] + [1.0] * 6), centre, 1e9)
    assert np.allclose(heavy, (3 * honest[0] + honest[1:].sum(0)) / 9)


def test_means_of_neighbours_do_not_depend_on_where_a_row_stands() -> None:
    order = RANDOM.permutation(9)
    straight, turned = rules.mix_neighbours(ROWS, 0.3), rules.mix_neighbours(ROWS[order], 0.3)
    assert np.allclose(turned, straight[order], atol=1e-6)
