"""Bytes between hospitals and their devices in each run, added up from what hospitals report of their devices.

A report has what each device has sent and received since its hospital began to count. What two reports of a hospital
differ by belongs to the run that it is in, and where several go on there, to that of the device. Where a count is
smaller than before, the hospital was killed: it goes on from what it has saved some seconds before, or counts anew.
Nobody can tell which, so nothing is added, and the next report goes on from there: what is missed came between two
reports, and nothing is counted twice. The sums are saved in the transaction in which the reports are, so that a service
that is killed goes on from both or from neither. Of hospitals that report no names nothing is known here.
"""

from __future__ import annotations

from collections import Counter
from typing import Protocol

import sqlalchemy as sql
from sqlalchemy.engine import Connection

from aggregator.service.database.database import Database, hops

UP, DOWN = "up", "down"


class ReportedDevice(Protocol):
    """What is needed of a device in a report."""

    @property
    def name(self) -> str: ...
    @property
    def run(self) -> str: ...
    @property
    def bytes_in(self) -> int: ...
    @property
    def bytes_out(self) -> int: ...


class ReportedHospital(Protocol):
    """What is needed of a hospital's report."""

    @property
    def name(self) -> str: ...
    @property
    def run(self) -> str: ...
    @property
    def devices(self) -> tuple[ReportedDevice, ...]: ...


class NewBytes:
    """Bytes that have been reported since the last saving.

    Attributes:
        counts: (run, hospital, UP or DOWN) -> bytes.
    """

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str, str]] = Counter()

    def note(self, before: ReportedHospital | None, now: ReportedHospital) -> None:
        """Add what a hospital's report has more than the one before. The first one that ever comes has no run to
        belong to: its bytes may be of runs before it. The same holds for each device: one that has left a hospital's
        list and comes back has all its bytes of before in the hospital's counters. A new one has none there yet."""
        if not now.run or before is None:
            return
        known = {device.name: device for device in before.devices}
        for device in now.devices:
            if (was := known.get(device.name)) is None:
                continue
            run = device.run or now.run
            self.counts[run, now.name, UP] += max(0, device.bytes_in - was.bytes_in)
            self.counts[run, now.name, DOWN] += max(0, device.bytes_out - was.bytes_out)

    def save(self, t: Connection) -> None:
        """Add these to what the database has."""
        for run, hospital in sorted({(run, hospital) for run, hospital, _ in self.counts}):
            up, down = self.counts[run, hospital, UP], self.counts[run, hospital, DOWN]
            if not up and not down:
                continue
            own = (hops.c.run == run) & (hops.c.hospital == hospital)
            more = {"up": hops.c.up + up, "down": hops.c.down + down}
            if not t.execute(hops.update().where(own).values(**more)).rowcount:
                t.execute(hops.insert().values(run=run, hospital=hospital, up=up, down=down))


def find_hops(database: Database, run: str) -> dict[str, dict[str, int]]:
    """Hospital -> bytes up from its devices and down to them in a run, of those that report them."""
    rows = database.read(sql.select(hops).where(hops.c.run == run).order_by(hops.c.hospital))
    return {row["hospital"]: {UP: row["up"], DOWN: row["down"]} for row in rows}
