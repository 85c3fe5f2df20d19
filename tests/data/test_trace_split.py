from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_sdk.data.traces.folder import load_folder
from edge_sdk.data.traces.split import split, split_off_validation
from edge_sdk.data.traces.windows import Windows, cut_windows
from edge_sdk.errors import UsageError
from tests.data.trace_making import runs, samples, trace_of

WINDOW, STRIDE = 4, 2


def cut(*lengths: tuple[int, int]) -> Windows:
    """Windows of recordings (code, samples), each apart from the one before."""
    codes = runs(*lengths)
    steps = np.full(len(codes) - 1, 0.1)
    steps[np.cumsum([length for _, length in lengths])[:-1] - 1] = 9.0
    return cut_windows(trace_of(codes, steps.tolist()), WINDOW, STRIDE)


def held(got: Windows) -> list[int]:
    return sorted(set(got.recording.tolist()))


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(4, 24)), min_size=1, max_size=12), st.floats(0.05, 0.95))
def test_no_recording_and_no_sample_is_in_both_parts(lengths: list[tuple[int, int]], share: float) -> None:
    whole = cut(*lengths)
    try:
        train, test = split(whole, share)
    except UsageError:
        codes = [code for code, _ in lengths]
        assert len(set(codes)) == len(codes), "only one recording per class may be too few"
        return
    assert len(train) and len(test)
    assert not samples(train.first, WINDOW) & samples(test.first, WINDOW)
    if not train.note:
        assert not set(held(train)) & set(held(test)) and len(train) + len(test) == len(whole)
    for code in np.unique(test.y):
        assert test.end[test.y == code].min() > train.end[train.y == code].max(), "the last part in time"
    assert set(train.y) == set(whole.y), "every class stays in training"


def test_the_last_recordings_of_each_class_are_held_out() -> None:
    whole = cut((0, 20), (1, 20), (0, 20), (1, 20), (0, 20), (1, 20), (0, 20), (2, 20))
    train, test = split(whole, 0.5)
    assert held(test) == [4, 5, 6] and held(train) == [0, 1, 2, 3, 7]
    assert held(split(whole, 0.01)[1]) == [5, 6], "at least one of each class that has two"
    assert held(split(whole, 0.99)[0]) == [0, 1, 7], "and never all"
    assert not test.note


def test_unequal_recordings_are_weighed_by_their_windows() -> None:
    whole = cut((0, 80), (0, 6), (0, 6), (0, 6))
    assert held(split(whole, 0.3)[1]) == [1, 2, 3]


def test_a_single_recording_is_cut_in_two_with_a_hole_between_and_says_so() -> None:
    train, test = split(cut((0, 40)), 0.3)
    assert test.first[0] - (train.first[-1] + WINDOW - 1) == 1 and len(test) == 6
    assert "one recording per class" in test.note == train.note


def test_one_recording_per_class_gives_the_tail_of_each() -> None:
    train, test = split(cut((0, 40), (1, 30), (2, 4)), 0.3)
    assert held(test) == [0, 1] and held(train) == [0, 1, 2]


@pytest.mark.parametrize("lengths", [((0, 4),), ((0, 6),), ((0, 4), (1, 4)), ((0, 2),)])
def test_too_little_is_an_error(lengths: tuple[tuple[int, int], ...]) -> None:
    with pytest.raises(UsageError, match=r"t: . windows in . recordings"):
        split(cut(*lengths))


@pytest.mark.parametrize("share", [0.0, 1.0, float("nan")])
def test_the_share_is_checked(share: float) -> None:
    with pytest.raises(UsageError, match="held_out"):
        split(cut((0, 40)), share)


def test_every_recorded_device_has_both_parts(wrist: Path) -> None:
    for trace in load_folder(wrist):
        whole = cut_windows(trace)
        train, test = split(whole)
        assert len(train) and 0.2 < len(test) / len(whole) < 0.5, trace.name
        assert not set(held(train)) & set(held(test)) and not test.note


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(4, 24)), min_size=2, max_size=14), st.floats(0.05, 0.6))
def test_three_parts_have_no_sample_in_common(lengths: list[tuple[int, int]], share: float) -> None:
    try:
        whole, test = split(cut(*lengths), 0.3)
    except UsageError:
        return
    train, chosen = split_off_validation(whole, share)
    parts = [samples(part.first, WINDOW) for part in (train, chosen, test)]
    assert parts[0] and not parts[0] & parts[1] and not parts[1] & parts[2]
    assert set(train.y) == set(whole.y), "every class stays in training"
    for code in np.unique(chosen.y):
        assert chosen.end[chosen.y == code].min() > train.end[train.y == code].max(), "after what is trained on"


def test_validation_takes_recordings_where_it_can_and_says_where_not() -> None:
    train, chosen = split_off_validation(cut((0, 20), (0, 20), (0, 20), (1, 20)), 0.25)
    assert held(chosen) == [2] and held(train) == [0, 1, 3] and not chosen.note
    train, chosen = split_off_validation(cut((0, 40), (1, 40)), 0.3)
    assert held(chosen) == held(train) == [0, 1] and "on the tail of each" in chosen.note == train.note
    train, chosen = split_off_validation(cut((0, 4), (1, 4)), 0.3)
    assert len(train) == 2 and len(chosen) == 0


def test_a_device_without_labels_is_named_as_that() -> None:
    with pytest.raises(UsageError, match="none of its 9 windows has a label"):
        split(cut_windows(trace_of([-1] * 20), 4, 2), 0.3)
