"""What each step of a round costs: steps do not count each other's time, and the functions that are watched exist."""

from __future__ import annotations

import importlib
import time

import pytest

from benchmarks.stages import STEPS, Meter


def burn(seconds: float) -> None:
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def test_a_step_is_counted_without_the_steps_within_it() -> None:
    meter = Meter()
    inner = meter.through("inner", lambda: burn(0.02))
    outer = meter.through("outer", lambda: (burn(0.01), inner(), inner(), burn(0.01)))
    outer()
    assert 0.04e9 <= meter.used["inner"] < 0.06e9
    assert 0.02e9 <= meter.used["outer"] < 0.04e9


def test_a_step_that_fails_is_counted_too() -> None:
    meter = Meter()

    def fail() -> None:
        burn(0.01)
        raise KeyError

    with pytest.raises(KeyError):
        meter.through("outer", lambda: meter.through("inner", fail)())()
    assert meter.used["inner"] >= 0.01e9
    assert not meter.open


def test_what_is_watched_is_there() -> None:
    for places in STEPS.values():
        for place in places:
            module, _, names = place.partition(":")
            home = importlib.import_module(f"edge_sdk.{module}")
            for name in names.split("."):
                home = getattr(home, name)
            assert callable(home)
