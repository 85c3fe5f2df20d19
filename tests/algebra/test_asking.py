"""Stretches whose label would help most: what they are, and which are chosen."""

from __future__ import annotations

import numpy as np

from edge_sdk.algebra.asking import HOUR, choose, margins, means_of, stretches

NOTHING = np.zeros((0, 1))


def test_a_stretch_ends_with_its_recording_its_class_a_hole_or_its_length() -> None:
    recording = np.array([0, 0, 0, 1, 1, 1, 1, 1])
    codes = np.array([2, 2, 1, 1, 1, 1, 1, 1])
    began = np.array([0.0, 1, 2, 10, 11, 20, 21, 22])
    found = stretches(recording, codes, began, began + 2, longest=3.5)
    assert found == [(0, 2), (2, 3), (3, 5), (5, 7), (7, 8)]
    assert stretches(recording[:0], codes[:0], began[:0], began[:0], 9.0) == []
    np.testing.assert_array_equal(means_of(began[:, None], found)[:, 0], [0.5, 2, 10.5, 20.5, 22])


def test_who_hesitates_between_two_is_unsure() -> None:
    p = np.array([[0.5, 0.5, 0.0], [0.9, 0.1, 0.0], [1 / 3] * 3])
    np.testing.assert_allclose(margins(p), [1.0, 0.2, 1.0])
    assert margins(np.ones((2, 1))).tolist() == [0, 0]


def test_the_most_unsure_of_equal_ones_is_asked_for() -> None:
    features, middle = np.arange(3.0)[:, None] * 0, np.zeros(3)
    assert choose(np.array([0.1, 0.9, 0.5]), features, NOTHING, middle, 1) == [1]


def test_what_looks_unlike_the_labelled_ones_goes_first() -> None:
    features = np.array([[0.0], [5.0], [1.0]])
    assert choose(np.full(3, 0.5), features, np.array([[0.0], [0.5]]), np.zeros(3), 1) == [1]


def test_two_alike_or_close_in_time_are_not_both_asked_for() -> None:
    features, far = np.array([[0.0], [0.01], [5.0]]), np.array([0.0, 50.0, 100.0]) * HOUR
    assert set(choose(np.array([0.9, 0.89, 0.5]), features, NOTHING, far, 2)) == {0, 2}
    same, close = np.array([[0.0], [1.0], [1.1]]), np.array([0.0, 10.0, 30 * HOUR])
    assert choose(np.array([0.9, 0.6, 0.5]), same, NOTHING, close, 2) == [0, 2]


def test_no_more_than_there_are_and_none_twice() -> None:
    assert sorted(choose(np.zeros(3), np.zeros((3, 2)), np.zeros((1, 2)), np.zeros(3), 9)) == [0, 1, 2]
