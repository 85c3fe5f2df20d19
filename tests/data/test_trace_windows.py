from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_sdk.data.traces.read import Trace
from edge_sdk.data.traces.windows import cut_windows, find_recordings
from edge_sdk.errors import UsageError
from tests.data.trace_making import runs, trace_of

GAP = 0.5


def naive(trace: Trace, window: int, stride: int) -> list[tuple[int, int]]:
    """(first sample, recording) of every window, by walking through the samples."""
    found, recording, begin = [], 0, 0
    for i in range(len(trace.time)):
        if i and (trace.time[i] - trace.time[i - 1] > GAP or trace.codes[i] != trace.codes[i - 1]):
            recording, begin = recording + 1, i
        first = i - window + 1
        if first >= begin and (first - begin) % stride == 0:
            found.append((first, recording))
    return found


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    codes = draw(st.lists(st.sampled_from([0, 0, 0, 0, 1, 2]), min_size=2, max_size=60))
    n = len(codes) - 1
    steps = draw(st.lists(st.sampled_from([0.1, 0.1, 0.1, 0.1, 0.1, 0.9]), min_size=n, max_size=n))
    return trace_of(codes, steps)


@given(traces(), st.integers(1, 9), st.integers(1, 9))
def test_windows_are_those_of_a_naive_loop(trace: Trace, window: int, stride: int) -> None:
    got, want = cut_windows(trace, window, stride, GAP), naive(trace, window, stride)
    assert list(zip(got.first.tolist(), got.recording.tolist(), strict=True)) == want
    assert got.x.shape == (len(want), 2, window) and got.x.dtype == np.float32 and got.x.flags.c_contiguous
    for k, (first, _) in enumerate(want):
        inside = slice(first, first + window)
        assert np.array_equal(got.x[k], trace.values[inside].T)
        assert set(trace.codes[inside]) == {got.y[k]}
        assert got.end[k] == trace.time[first + window - 1]


@given(traces())
def test_recordings_are_all_samples_in_order(trace: Trace) -> None:
    bounds = find_recordings(trace, GAP)
    assert bounds[0, 0] == 0 and bounds[-1, 1] == len(trace.time)
    assert np.array_equal(bounds[1:, 0], bounds[:-1, 1]) and np.all(bounds[:, 1] > bounds[:, 0])


def test_a_gap_and_a_change_of_label_start_a_recording() -> None:
    trace = trace_of(runs((0, 4), (1, 3)), [0.25, 0.75, 0.5, 0.25, 0.25, 0.25])
    assert find_recordings(trace, 0.5).tolist() == [[0, 2], [2, 4], [4, 7]]
    assert find_recordings(trace, 1.0).tolist() == [[0, 4], [4, 7]]


def test_a_trace_of_short_recordings_has_no_windows() -> None:
    assert cut_windows(trace_of(runs((0, 3), (1, 3))), window=4, stride=1).x.shape == (0, 2, 4)
    assert len(cut_windows(trace_of([0, 0]), window=64)) == 0


def test_windows_own_their_memory() -> None:
    trace = trace_of(runs((0, 8)))
    got = cut_windows(trace, 4, 2)
    got.x[:] = -1
    assert trace.values.min() == 0


@pytest.mark.parametrize("wrong", [{"window": 0}, {"stride": 0}, {"gap": 0.0}, {"gap": float("nan")}])
def test_arguments_are_checked(wrong: dict[str, float]) -> None:
    with pytest.raises(UsageError, match=next(iter(wrong))):
        cut_windows(trace_of([0, 0]), **wrong)  # type: ignore[arg-type]
