"""Schedules: runs that begin by themselves in a window of the day, and are held outside of it, or after an event
(new_samples.py).

    within the window   a run that was held goes on; else a new one is queued, once in a window, if none is under way
    outside             its runs that wait or train are paused, and held

What a person pauses or stops is the person's: a schedule takes up again only what it has held itself. Each look decides
by what is on the disk and by the clock, and changes both tables in one transaction, so a kill in between costs nothing.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Any

import sqlalchemy as sql
from sqlalchemy.engine import Connection

from aggregator.service.database import audit
from aggregator.service.database.database import Database, Row, runs, schedules
from aggregator.service.runs.new_samples import NewSamples, begin_run, count_new, read_event
from aggregator.service.runs.runs import (
    ACTIVE,
    PAUSE,
    PAUSED,
    PROPOSED,
    QUEUED,
    RUNNING,
    SCHEDULE,
    NotFoundError,
    NotPossibleError,
    Wanted,
    change_in,
    queue_in,
    wanted_of,
)
from edge_sdk.contract.run import checked_name
from edge_sdk.errors import UsageError

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
CLOCK = re.compile(r"([01]\d|2[0-3]):([0-5]\d)")
LONGEST_NAME = 40  # characters; runs have it in theirs
DAY_MINUTES = 24 * 60


@dataclass(frozen=True)
class DailyWindow:
    """A part of the day, in the service's time zone.

    Attributes:
        begin, end: as "22:00"; an end that is not after the beginning is on the next day.
        days: on which it begins, of DAYS; empty: on all.
    """

    begin: str
    end: str
    days: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for text in (self.begin, self.end):
            if CLOCK.fullmatch(text) is None:
                raise UsageError(f"window {text!r}: expected a time such as 22:00")
        if wrong := [day for day in self.days if day not in DAYS]:
            raise UsageError(f"days {wrong[0]!r}: expected some of {', '.join(DAYS)}")
        if self.begin == self.end:
            raise UsageError(f"window {self.begin} to {self.end}: it has no length")

    def as_columns(self) -> dict[str, Any]:
        """The columns of a schedule that say when."""
        return {"begin": self.begin, "end": self.end, "days": ",".join(self.days), "samples": 0, "counted": {}}

    def find_day(self, at: float) -> str:
        """The day on which the window began that a moment is in, as "2026-11-22"; "": it is in none.

        Args:
            at: Unix time.
        """
        begin, end = (int(text[:2]) * 60 + int(text[3:]) for text in (self.begin, self.end))
        for back in (0, 1):
            day = time.localtime(at - back * 86400)
            now = time.localtime(at)
            minutes = now.tm_hour * 60 + now.tm_min + back * DAY_MINUTES
            until = end if end > begin else end + DAY_MINUTES
            if begin <= minutes < until and (not self.days or DAYS[day.tm_wday] in self.days):
                return time.strftime("%Y-%m-%d", day)
        return ""


@dataclass(frozen=True)
class Asked:
    """What somebody asks for. `run`: as `runs.Wanted`; `when`: an event in place of a window, see new_samples.py."""

    name: str
    begin: str = ""
    end: str = ""
    days: tuple[str, ...] = ()
    when: str = ""
    run: dict[str, Any] = field(default_factory=dict)


def read_occasion(asked: Asked, told: Mapping[str, int]) -> DailyWindow | NewSamples:
    """When somebody wants runs to begin. `told`: hospital -> its sum of labels now. Raises UsageError for neither."""
    if not asked.when:
        return DailyWindow(asked.begin, asked.end, asked.days)
    if asked.begin or asked.end or asked.days:
        raise UsageError("when: an event or a window of the day begins a run, not both")
    return read_event(asked.when, told)


def add_schedule(
    database: Database,
    name: str,
    wanted: Wanted,
    when: DailyWindow | NewSamples,
    classes: tuple[str, ...],
    who: str,
) -> None:
    """Adds a schedule, or changes it: it is then of who has changed it, and made at that moment, so that nobody
    approves what they have asked for by way of a schedule (runs.find_asker).

    Raises:
        UsageError: no run can be made of what is wanted, or it cannot be called so.
        NotPossibleError: a run of it awaits approval, or is held and would never go on.
    """
    checked_name(name, "name")
    if len(name) > LONGEST_NAME:
        raise UsageError(f"name = {name!r}: at most {LONGEST_NAME} characters")
    wanted.check(classes)
    values = {"wanted": asdict(wanted), **when.as_columns()}
    with database.transaction() as t:
        before = t.execute(sql.select(schedules).where(schedules.c.name == name)).mappings().first()
        made = {**values, "created": time.time(), "by": who}
        if before is None:
            t.execute(schedules.insert().values(name=name, latest="", held="", **made))
        else:
            check_change(t, dict(before), when)
            held = "" if isinstance(when, NewSamples) else before["held"]
            t.execute(schedules.update().where(schedules.c.name == name).values(held=held, **made))
        audit.note(t, who, "schedule.add", name, **{key: value for key, value in values.items() if value})


def check_change(t: Connection, row: Mapping[str, Any], when: DailyWindow | NewSamples) -> None:
    """Raises NotPossibleError if a schedule cannot be changed as its runs stand."""
    name = row["name"]
    if (proposed := t.execute(find_active(name, PROPOSED)).mappings().first()) is not None:
        raise NotPossibleError(f"schedule {name!r}: its run {proposed['id']} awaits approval; approve or stop it first")
    held = t.execute(find_active(name, PAUSED, RUNNING).where(runs.c.id == row["held"])).mappings().first()
    is_held = held is not None and (held["state"] == PAUSED or held["wish"] == PAUSE)
    if is_held and isinstance(when, NewSamples):
        raise NotPossibleError(
            f"schedule {name!r}: its run {row['held']} is held until the next window, and an event begins no run "
            "meanwhile; resume that run or stop it first"
        )


def remove_schedule(database: Database, name: str, who: str) -> None:
    """Removes a schedule; its runs stay as they are. Raises NotFoundError if there is none of that name."""
    with database.transaction() as t:
        if not t.execute(schedules.delete().where(schedules.c.name == name)).rowcount:
            raise NotFoundError(f"schedule {name!r}: there is none of that name")
        audit.note(t, who, "schedule.remove", name)


def list_schedules(database: Database) -> list[Row]:
    return database.read(sql.select(schedules).order_by(schedules.c.name))


def days_of(row: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(day for day in row["days"].split(",") if day)


def window_of(row: Mapping[str, Any]) -> DailyWindow:
    return DailyWindow(row["begin"], row["end"], days_of(row))


def look_at_schedules(
    database: Database,
    now: float,
    awaits: int = 0,
    told: Mapping[str, int] = MappingProxyType({}),
    bundle: str = "",
) -> None:
    """Queues, takes up and holds what is due at a moment.

    Args:
        awaits: approvals that a run of a schedule needs.
        told: hospital -> its sum of labels.
        bundle: hash of the one that runs train whose schedule names none.
    """
    for row in list_schedules(database):
        if row["samples"]:
            look_at_samples(database, row, awaits, told, bundle)
            continue
        day = window_of(row).find_day(now)
        if is_due(database, row, day):
            with database.transaction() as t:
                act(t, find_schedule(t, row["name"], bundle), day, awaits)


def find_schedule(t: Connection, name: str, bundle: str) -> Row | None:
    """The row of a schedule as it is now; `bundle`: hash of the one that is wanted where the schedule names none."""
    found = t.execute(sql.select(schedules).where(schedules.c.name == name)).mappings().first()
    if found is None:
        return None
    return {**found, "wanted": {**found["wanted"], "bundle": found["wanted"].get("bundle") or bundle}}


def look_at_samples(database: Database, row: Row, awaits: int, told: Mapping[str, int], bundle: str) -> None:
    """Queues the run of a schedule whose samples have come, unless one is under way."""
    name = row["name"]
    if count_new(row, told) < row["samples"] or database.read(find_active(name, *ACTIVE)):
        return
    with database.transaction() as t:
        found = find_schedule(t, name, bundle)
        row = found or {"samples": 0}
        if not row["samples"] or count_new(row, told) < row["samples"]:
            return  # somebody was faster
        if t.execute(find_active(name, *ACTIVE)).first() is None:
            id = make_run_id(t, f"{name}-{time.strftime('%Y-%m-%d')}")
            begin_run(t, row, author(name), id, told, awaits)


def is_due(database: Database, row: Row, day: str) -> bool:
    """There is something to do for a schedule. Without the lock for changes; `act` looks again."""
    if day:
        return bool(row["held"]) or row["latest"] != day
    return bool(database.read(find_active(row["name"], QUEUED, RUNNING).where(runs.c.wish == "")))


def find_active(name: str, *states: str) -> sql.Select[Any]:
    """Runs of a schedule that stand there."""
    return sql.select(runs).where(runs.c.by == author(name), runs.c.state.in_(states))


def author(name: str) -> str:
    """Who a schedule's runs are by, in the table of runs and in the audit log."""
    return SCHEDULE + name


def act(t: Connection, row: Any, day: str, awaits: int) -> None:
    """Does what is due for a schedule.

    Args:
        row: None: it was removed meanwhile.
        day: as DailyWindow.find_day.
    """
    if row is None:
        return
    name, changes = row["name"], {}
    if not day:
        for run in t.execute(find_active(name, QUEUED, RUNNING).where(runs.c.wish == "")).mappings().all():
            change_in(t, run["id"], PAUSE, author(name))
            changes["held"] = run["id"]
    elif row["held"]:
        held = t.execute(sql.select(runs).where(runs.c.id == row["held"])).mappings().first()
        if held is not None and held["state"] == RUNNING and held["wish"] == PAUSE:
            return  # it ends in good order just now; it goes on at a later look
        if held is not None and held["state"] == PAUSED:
            change_in(t, held["id"], "resume", author(name))
        is_over = held is None or held["state"] not in ACTIVE  # then the next look queues another one
        changes |= {"held": ""} if is_over else {"held": "", "latest": day}
    elif row["latest"] != day:
        changes["latest"] = day
        if t.execute(find_active(name, *ACTIVE)).first() is None:
            queue_in(t, wanted_of(row), author(name), make_run_id(t, f"{name}-{day}"), awaits=awaits)
    t.execute(schedules.update().where(schedules.c.name == name).values(**changes))


def make_run_id(t: Connection, wished: str) -> str:
    """A name of a run that is not taken."""
    taken, number, id = set(t.execute(sql.select(runs.c.id)).scalars()), 2, wished
    while id in taken:
        id, number = f"{wished}-{number}", number + 1
    return id
