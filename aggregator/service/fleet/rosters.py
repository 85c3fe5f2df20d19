"""Rosters: lists of the devices that the service has enrolled for a hospital, sent down where a hospital asks for them.

A hospital whose settings say `enrolled = true` reports the number of the roster that it has. Where that is not the
present one's, the present one is sent, again with each report until the hospital has it. So a roster that is lost, a
hospital that was away and a service that was restarted are the same case, and nothing has to be remembered but numbers.
A number increases with each change; a hospital takes no lower one, which somebody may have recorded.

While a run goes on that keeps the devices of its start, its hospitals are sent no other list: they may not have heard
of the run yet, and would then count others than those for which it was begun.
"""

from __future__ import annotations

import json
import time
from typing import Any

import sqlalchemy as sql

from aggregator.service.database.database import Database, tables
from aggregator.service.fleet.enrolment import Enrolment
from aggregator.service.runs.queue import why_fixed_for_devices
from aggregator.service.runs.runs import RUNNING, list_runs
from edge_sdk.live.membership.roster import LARGEST, VERSION
from edge_sdk.wire.mqtt import Connection
from edge_sdk.wire.topics import ROSTERS, downward

LEAP = 1000
"""By how much a number may be raised at once because a hospital says that it knows a higher one: who lies could
otherwise have all numbers used up."""

rosters = sql.Table(
    "rosters",
    tables,
    sql.Column("hospital", sql.String(64), primary_key=True),
    sql.Column("number", sql.Integer, nullable=False),
    sql.Column("devices", sql.JSON, nullable=False),
    sql.Column("changed", sql.Float, nullable=False),
)


class Rosters:
    """The rosters of one fleet's hospitals."""

    def __init__(self, database: Database, enrolment: Enrolment):
        self.database, self.enrolment = database, enrolment

    def answer(self, connection: Connection, hospital: str, known: int | None) -> None:
        """Send a hospital its roster, if it has another one. `known`: number of that; None: it wants none."""
        if known is None:
            return
        number, devices = self.bring_up(hospital, known)
        if number != known and connection.up and connection.room > 0:
            content = {"version": VERSION, "hospital": hospital, "number": number, "devices": devices}
            connection.publish(downward(self.enrolment.fleet, hospital, ROSTERS), json.dumps(content).encode(), 1)

    def is_held(self, hospital: str) -> bool:
        """A run goes on at a hospital that keeps the devices of its start."""
        going = (run for run in list_runs(self.database, RUNNING) if hospital in run["hospitals"])
        return any(why_fixed_for_devices(run) for run in going)

    def knows_others(self, hospital: str, known: int | None) -> bool:
        """A hospital has not heard yet which devices belong to it now. `known`: number of the roster that it has; None:
        it wants none."""
        return known is not None and self.bring_up(hospital, known)[0] != known

    def bring_up(self, hospital: str, known: int) -> tuple[int, list[str]]:
        """Number and devices of a hospital's roster, with a new number where the devices have changed since the last.

        A hospital may know a higher number, if the database is an older one that was put back: then a higher one still
        is given, after some reports if it is far away.
        """
        devices = list(self.enrolment.list_devices(hospital))
        found = self.database.read(sql.select(rosters).where(rosters.c.hospital == hospital))
        number = found[0]["number"] if found else 0
        if (before := found[0]["devices"] if found else []) != devices and self.is_held(hospital):
            return number, before
        if found and found[0]["devices"] == devices and known <= number:
            return number, devices
        if not (found or devices or known):
            return 0, []
        higher = min(max(number, min(known, number + LEAP)) + 1, LARGEST)
        row: dict[str, Any] = {"number": higher, "devices": devices, "changed": time.time()}
        with self.database.transaction() as t:
            if not t.execute(rosters.update().where(rosters.c.hospital == hospital).values(**row)).rowcount:
                t.execute(rosters.insert().values(hospital=hospital, **row))
        return row["number"], devices
