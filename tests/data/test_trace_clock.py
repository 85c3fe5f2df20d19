from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_sdk.data.traces import ReplayClock, cut_windows, select_arrived
from edge_sdk.errors import UsageError
from tests.data.trace_making import runs, trace_of


def test_recorded_time_runs_at_the_given_speed_from_the_start_for_the_duration() -> None:
    clock = ReplayClock(began=100, speed=10, start=60, duration=50)
    assert [clock.due(now) for now in (0, 100, 102, 105, 900)] == [60, 60, 80, 110, 110]
    assert clock.wait_for(80, 100) == 2 and clock.wait_for(80, 103) == 0
    assert clock.wait_for(10, 100) == 0 and clock.wait_for(110.5, 900) == inf
    assert clock.wait_for(60.1, 90) == pytest.approx(10.01)


def test_as_fast_as_possible_is_all_at_once() -> None:
    clock = ReplayClock(began=5, speed=inf, start=2)
    assert [clock.due(now) for now in (4, 5, 6)] == [2, inf, inf]
    assert clock.wait_for(1e9, 4) == 1 and clock.wait_for(1e9, 5) == 0
    assert ReplayClock(speed=inf, duration=30).due(0) == 30


def test_a_loop_begins_again() -> None:
    clock = ReplayClock(speed=2, start=10, duration=20, loop=True)
    assert [(clock.due(now), clock.lap(now)) for now in (0, 5, 10, 25)] == [(10, 0), (20, 0), (10, 1), (20, 2)]
    assert clock.wait_for(15, 8) == 0 and clock.wait_for(15, 11) == 1.5
    assert clock.wait_for(30, 8) == inf, "the last instant of a lap is the first of the next"


@given(st.floats(0.1, 100), st.floats(0, 50), st.floats(1, 100), st.booleans(), st.floats(0, 50), st.floats(0, 0.999))
def test_after_the_wait_it_is_due(
    speed: float, start: float, duration: float, loop: bool, now: float, at: float
) -> None:
    clock = ReplayClock(began=3, speed=speed, start=start, duration=duration, loop=loop)
    recorded = start + at * duration
    wait = clock.wait_for(recorded, now)
    assert 0 <= wait < inf
    assert clock.due(now + wait) >= recorded - 1e-6 * (1 + duration)


@pytest.mark.parametrize(
    "wrong",
    [{"speed": 0}, {"speed": float("nan")}, {"duration": 0}, {"start": -1}, {"start": inf}, {"loop": True}],
)
def test_settings_are_checked(wrong: dict[str, float]) -> None:
    with pytest.raises(UsageError, match=next(iter(wrong))):
        ReplayClock(**wrong)  # type: ignore[arg-type]


def test_windows_arrive_with_their_last_sample() -> None:
    whole = cut_windows(trace_of(runs((0, 10))), 4, 2)
    assert whole.end.tolist() == pytest.approx([0.3, 0.5, 0.7, 0.9])
    assert select_arrived(whole, 0.29).first.tolist() == []
    assert select_arrived(whole, whole.end[1]).first.tolist() == [0, 2]
    assert select_arrived(whole, 0.8, since=whole.end[0]).first.tolist() == [2, 4]
    assert len(select_arrived(whole, inf)) == len(whole)
