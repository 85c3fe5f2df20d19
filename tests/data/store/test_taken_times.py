"""Windows of a time of which there are older ones: how they are divided into runs, and which are left out."""

from __future__ import annotations

from math import inf

import numpy as np

from edge_sdk.data.live.windower import LiveWindows
from edge_sdk.data.store.taken_times import TakenTimes


def windows(began: list[float], recording: list[int]) -> LiveWindows:
    at = np.array(began, np.float64)
    return LiveWindows(np.zeros((len(at), 1, 8), np.float32), at, at + 4.0, np.array(recording, np.int64))


def free(taken: TakenTimes, found: LiveWindows, next_id: int) -> list[bool]:
    told = []
    for run in taken.runs(found):
        taken.begin(found, run.start, next_id)
        told += [taken.are_free(found, at) for at in run]
    return told


def test_runs_end_with_a_recording_and_where_time_goes_back() -> None:
    taken = TakenTimes(lambda began, ended: [], -inf, 8)
    found = windows([0, 2, 4, 10, 12, 8, 10], [1, 1, 1, 2, 2, 2, 2])
    assert [*taken.runs(found)] == [range(3), range(3, 5), range(5, 7)]
    assert [*taken.runs(windows([3], [1]))] == [range(1)] and not [*taken.runs(windows([], []))]


def test_what_lies_in_a_time_that_is_taken_is_left_out_but_for_ones_own_recording() -> None:
    stored: list[tuple[int, float, float]] = [(1, 0.0, 20.0)]
    taken = TakenTimes(lambda began, ended: [i for i, a, b in stored if b >= began and a <= ended], 20.0, 8)
    assert free(taken, windows([10, 19.9, 22], [5, 5, 5]), 2) == [False, True, True]
    stored += [(2, 19.9, 23.9), (3, 22.0, 26.0)]
    assert free(taken, windows([24], [5]), 4) == [True], "it goes on, and overlaps its own windows only"
    assert free(taken, windows([24], [6]), 4) == [False], "another one"
