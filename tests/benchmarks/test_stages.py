"""What each step of a round costs: steps do not count each other's time, and the functions that are watched exist."""

from __future__ import annotations

import importlib
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.stages import ROLE, STEPS, Meter
from benchmarks.wire import are_alive
from tests.conftest import missing

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "stages.py"


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


@pytest.mark.skipif(bool(missing("mosquitto")), reason=missing("mosquitto") or "")
def test_every_step_is_measured_at_the_parent_and_at_a_child() -> None:
    words = [sys.executable, str(PROGRAM), "--rounds", "20", "--children", "1", "--floats", "100"]
    printed = subprocess.run(words, capture_output=True, text=True, check=True, timeout=120).stdout
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in printed.splitlines()[2:]]
    assert [row[0] for row in rows] == [*STEPS, ROLE, "all"]
    assert all(int(cell) > 0 for row in rows for cell in row[1:]), rows


def test_a_child_that_has_ended_is_not_waited_for() -> None:
    fleet: list[Any] = [SimpleNamespace(exitcode=None), SimpleNamespace(exitcode=None)]
    assert are_alive(fleet)
    fleet[1].exitcode = 1
    with pytest.raises(SystemExit, match="exit code 1"):
        are_alive(fleet)
