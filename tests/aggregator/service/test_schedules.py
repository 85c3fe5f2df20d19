"""Schedules: what they queue, hold and take up at which moment, and what people have done meanwhile."""

from __future__ import annotations

import time
from typing import Any

import pytest

from aggregator.service import audit, runs
from aggregator.service.database import runs as table
from aggregator.service.runs import Wanted, change_run, find_run, list_runs
from aggregator.service.schedules import DailyWindow, add_schedule, list_schedules, look_at_schedules, remove_schedule
from edge_sdk.errors import UsageError
from tests.aggregator.service.conftest import CLASSES

NIGHT = DailyWindow("22:00", "06:00")


def at(day: int, clock: str) -> float:
    """A moment of November 2026, in local time; the 22nd is a Sunday."""
    return time.mktime(time.strptime(f"2026-11-{day} {clock}", "%Y-%m-%d %H:%M"))


@pytest.mark.parametrize(
    ("window", "day", "clock", "found"),
    [
        (NIGHT, 22, "21:59", ""),
        (NIGHT, 22, "22:00", "2026-11-22"),
        (NIGHT, 23, "05:59", "2026-11-22"),
        (NIGHT, 23, "06:00", ""),
        (DailyWindow("22:00", "06:00", ("sun",)), 23, "03:00", "2026-11-22"),
        (DailyWindow("22:00", "06:00", ("mon",)), 23, "03:00", ""),
        (DailyWindow("09:00", "17:00"), 22, "12:00", "2026-11-22"),
        (DailyWindow("09:00", "17:00"), 22, "17:00", ""),
    ],
)
def test_a_moment_is_in_the_window_that_began_on_a_day(window: DailyWindow, day: int, clock: str, found: str) -> None:
    assert window.find_day(at(day, clock)) == found


def test_a_run_begins_at_night_is_held_in_the_morning_and_goes_on_the_next_night(service: Any) -> None:
    database = service.database
    add_schedule(database, "nightly", Wanted(method="fedavg"), NIGHT, CLASSES, "ada")
    look_at_schedules(database, at(22, "21:00"))
    assert not list_runs(database)
    for clock in ("22:00", "22:01", "23:30"):
        look_at_schedules(database, at(22, clock))
    [run] = list_runs(database)
    assert (run["id"], run["by"], run["state"]) == ("nightly-2026-11-22", "schedule nightly", runs.QUEUED)
    put(database, run["id"], runs.RUNNING)
    for clock in ("06:00", "06:01"):
        look_at_schedules(database, at(23, clock))
    assert find_run(database, run["id"])["wish"] == "pause"
    put(database, run["id"], runs.PAUSED)
    for clock in ("22:00", "22:01"):
        look_at_schedules(database, at(23, clock))
    assert find_run(database, run["id"])["state"] == runs.QUEUED and len(list_runs(database)) == 1
    put(database, run["id"], runs.FINISHED)
    look_at_schedules(database, at(24, "05:00"))
    assert len(list_runs(database)) == 1  # one in a night
    look_at_schedules(database, at(24, "22:00"))
    assert [row["id"] for row in list_runs(database)] == ["nightly-2026-11-24", "nightly-2026-11-22"]
    assert audit.find_break(database)[0] is None


def put(database: Any, id: str, state: str) -> None:
    with database.transaction() as t:
        t.execute(table.update().where(table.c.id == id).values(state=state, wish=""))


def test_what_a_person_has_paused_or_stopped_stays_so(service: Any) -> None:
    add_schedule(service.database, "nightly", Wanted(), NIGHT, CLASSES, "ada")
    look_at_schedules(service.database, at(22, "22:00"))
    change_run(service.database, "nightly-2026-11-22", "pause", "ada")
    for day, clock in ((22, "23:00"), (23, "12:00"), (23, "22:00")):
        look_at_schedules(service.database, at(day, clock))
    [run] = list_runs(service.database)
    assert run["state"] == runs.PAUSED
    change_run(service.database, run["id"], "stop", "ada")
    look_at_schedules(service.database, at(24, "22:00"))
    assert {row["id"]: row["state"] for row in list_runs(service.database)} == {
        "nightly-2026-11-22": runs.STOPPED,
        "nightly-2026-11-24": runs.QUEUED,
    }


def test_schedules_are_added_changed_and_removed(service: Any) -> None:
    for rounds in (3, 4):
        add_schedule(service.database, "nightly", Wanted(rounds=rounds), NIGHT, CLASSES, "ada")
    [row] = list_schedules(service.database)
    assert row["wanted"]["rounds"] == 4
    remove_schedule(service.database, "nightly", "ada")
    assert not list_schedules(service.database)
    with pytest.raises(UsageError, match="there is none of that name"):
        remove_schedule(service.database, "nightly", "ada")


@pytest.mark.parametrize("words", [("25:00", "06:00"), ("22:00", "6"), ("22:00", "22:00"), ("22:00", "06:00", ("x",))])
def test_what_is_no_window_is_refused(words: tuple[Any, ...]) -> None:
    with pytest.raises(UsageError):
        DailyWindow(*words)
