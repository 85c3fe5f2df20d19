"""Schedules: what they queue, hold and take up at which moment, and what people have done meanwhile."""

from __future__ import annotations

import time
from typing import Any

import pytest

from aggregator.service.database import audit
from aggregator.service.database.database import runs as table
from aggregator.service.runs import runs
from aggregator.service.runs.new_samples import NewSamples
from aggregator.service.runs.runs import NotPossibleError, Wanted, change_run, find_run, list_runs
from aggregator.service.runs.schedules import (
    Asked,
    DailyWindow,
    add_schedule,
    list_schedules,
    look_at_schedules,
    read_occasion,
    remove_schedule,
)
from edge_sdk.errors import UsageError
from tests.aggregator.service.conftest import CLASSES, secret_in

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


@pytest.mark.parametrize("state", [runs.FINISHED, runs.STOPPED, runs.FAILED])
def test_a_run_that_ended_while_it_was_to_be_held_costs_no_night(service: Any, state: str) -> None:
    """Its last round was over before its process heard that it was to pause: nothing was trained in the next window."""
    add_schedule(service.database, "nightly", Wanted(method="fedavg"), NIGHT, CLASSES, "ada")
    look_at_schedules(service.database, at(22, "22:00"))
    put(service.database, "nightly-2026-11-22", runs.RUNNING)
    look_at_schedules(service.database, at(23, "06:00"))
    put(service.database, "nightly-2026-11-22", state)
    for clock in ("22:00", "22:01", "22:02"):
        look_at_schedules(service.database, at(23, clock))
    assert [row["id"] for row in list_runs(service.database)] == ["nightly-2026-11-23", "nightly-2026-11-22"]


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


def test_a_schedule_that_holds_a_run_is_given_no_event(service: Any) -> None:
    """Only a window takes up again what a window has held, and an event waits for a run that is paused."""
    database, event = service.database, NewSamples(100, {"north": 0})
    add_schedule(database, "nightly", Wanted(), NIGHT, CLASSES, "ada")
    for day, clock in ((22, "22:00"), (23, "12:00")):
        look_at_schedules(database, at(day, clock))
    [run] = list_runs(database)
    assert run["state"] == runs.PAUSED
    add_schedule(database, "nightly", Wanted(rounds=4), NIGHT, CLASSES, "ada")  # another window does take it up
    with pytest.raises(NotPossibleError, match=f"{run['id']} is held"):
        add_schedule(database, "nightly", Wanted(), event, CLASSES, "ada")
    change_run(database, run["id"], "stop", "ada")
    add_schedule(database, "nightly", Wanted(), event, CLASSES, "ada")
    look_at_schedules(database, at(23, "12:00"), 0, {"north": 100})
    assert len(list_runs(database)) == 2 and not list_schedules(database)[0]["held"]


@pytest.mark.parametrize("words", [("25:00", "06:00"), ("22:00", "6"), ("22:00", "22:00"), ("22:00", "06:00", ("x",))])
def test_what_is_no_window_is_refused(words: tuple[Any, ...]) -> None:
    with pytest.raises(UsageError):
        DailyWindow(*words)


# Enough new samples --------------------------------------------------------------------------------------------------


def look(service: Any, **told: int) -> list[str]:
    """States of the runs, the newest first, after a look with these sums of labels."""
    look_at_schedules(service.database, time.time(), told=told)
    return [row["state"] for row in list_runs(service.database)]


def test_a_run_begins_once_when_there_are_enough_new_samples(make_service: Any) -> None:
    service = make_service()
    event = read_occasion(Asked("fresh", when="1000 new samples"), {"north": 5000})
    add_schedule(service.database, "fresh", Wanted(method="fedavg"), event, CLASSES, "ada")
    assert not look(service, north=5900) and not look(service)  # and nothing of a hospital that is not heard now
    assert look(service, north=5900, south=100) == [runs.QUEUED]
    service = make_service()  # as after a kill
    [run] = list_runs(service.database)
    assert run["by"] == "schedule fresh" and look(service, north=5900, south=100) == [runs.QUEUED]
    assert look(service, north=8000, south=300) == [runs.QUEUED]  # one is under way
    put(service.database, run["id"], runs.FINISHED)
    assert look(service, north=5000, south=100) == [runs.FINISHED]  # north has lost its disk
    assert look(service, north=8000, south=300) == [runs.QUEUED, runs.FINISHED]
    said = [e["action"] for e in audit.list_latest(service.database, 20)]
    assert said.count("schedule.due") == 2 and audit.find_break(service.database)[0] is None


def test_only_samples_of_the_hospitals_of_a_run_begin_it(service: Any) -> None:
    event = read_occasion(Asked("fresh", when="100 new samples"), {})
    add_schedule(service.database, "fresh", Wanted(hospitals=("north",)), event, CLASSES, "ada")
    assert not look(service, south=500) and look(service, south=500, north=100) == [runs.QUEUED]


def test_a_kill_between_run_and_note_leaves_neither(service: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    event = read_occasion(Asked("fresh", when="100 new samples"), {})
    add_schedule(service.database, "fresh", Wanted(), event, CLASSES, "ada")

    def die(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("aggregator.service.runs.new_samples.audit.note", die)
        with pytest.raises(KeyboardInterrupt):
            look(service, north=100)
    assert not list_runs(service.database)
    assert look(service, north=100) == [runs.QUEUED]


@pytest.mark.parametrize("when", ["", "0 new samples", "1000 samples", "-5 new samples", "1e3 new samples"])
def test_what_is_no_event_is_refused(when: str) -> None:
    with pytest.raises(UsageError, match=r"when|window"):
        read_occasion(Asked("fresh", when=when), {})
    with pytest.raises(UsageError, match="not both"):
        read_occasion(Asked("fresh", begin="22:00", end="06:00", when="5 new samples"), {})


def test_events_are_set_and_shown_by_console_and_api(service: Any, browse: Any) -> None:
    page = browse("operator")
    csrf = secret_in(page.get("/runs/new").text)
    form = {"csrf": csrf, "id": "fresh", "method": "fedavg", "rounds": "5", "preset": "recommended", "samples": "700"}
    assert page.post("/runs", data=form, headers={"origin": "http://127.0.0.1"}).status_code == 303
    assert "after 700 new labelled samples, 0 so far" in page.get("/runs").text
    token = service.people.make_key("token", "operator", "operator", 1000.0, "test")
    heads = {"authorization": f"Bearer {token}"}
    table = {"name": "more", "when": "50 new samples", "run": {"method": "fedavg", "rounds": 3}}
    answer = page.post("/api/v1/schedules", json=table, headers=heads)
    assert answer.status_code == 201, answer.text
    assert {s["name"]: s["samples"] for s in answer.json()["schedules"]} == {"fresh": 700, "more": 50}
    assert page.post("/api/v1/schedules", json={**table, "begin": "22:00"}, headers=heads).status_code == 422
