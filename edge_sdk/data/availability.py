"""Availability of a device over days, from a CSV file beside its trace: NAME.availability.csv.

    time,offline,charging,battery,celsius,metered
    0,0,1,0.95,31,0              seconds since midnight of the first day, or an ISO time
    25200,0,0,1.0,33,0           each line holds until the next one; the last one for ever

Every column but `time` may be missing; what it would say is then unknown, and a device without `offline` is online.
"""

from __future__ import annotations

import csv
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from math import isfinite
from pathlib import Path

from edge_sdk.errors import UsageError

SUFFIX = ".availability.csv"
LARGEST = 2**26
"""Bytes of a file."""
FLAGS = ("offline", "charging", "metered")
NUMBERS = {"battery": (0.0, 1.0), "celsius": (-100.0, 200.0)}
"""Column -> the smallest and the largest value."""


@dataclass(frozen=True)
class Moment:
    """What a line says; None: nothing."""

    offline: bool = False
    charging: bool | None = None
    battery: float | None = None
    celsius: float | None = None
    metered: bool | None = None


@dataclass(frozen=True)
class Availability:
    """Availability of one device.

    Attributes:
        times: seconds since midnight of the first day, ascending.
        moments: one for each of these times.
    """

    times: Sequence[float]
    moments: Sequence[Moment]

    def at(self, time: float) -> Moment:
        """What holds at a time; before the first line, what the first one says."""
        return self.moments[max(0, bisect_right(self.times, time) - 1)]


ALWAYS = Availability((0.0,), (Moment(),))
"""A device of which nothing is known: it is online."""


def find_availability(folder: Path, name: str) -> Availability:
    """The availability of a device of a folder of traces; ALWAYS where there is no file."""
    path = folder / f"{name}{SUFFIX}"
    return read_availability(path) if path.exists() else ALWAYS


def read_availability(path: Path) -> Availability:
    """Reads and checks one file.

    Raises:
        UsageError: with the file, the line (from 1, the header), the column and what would be right.
    """
    try:
        if (size := path.stat().st_size) > LARGEST:
            raise UsageError(f"{path}: {size} bytes, expected {LARGEST} at most: a line for each change")
        with open(path, newline="", encoding="utf-8-sig") as text:
            rows = list(csv.reader(text))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{path}: cannot be read ({error})") from error
    known = ("time", *FLAGS, *NUMBERS)
    header = rows[0] if rows else []
    if "time" not in header or len(set(header)) < len(header) or not set(header) <= set(known):
        raise UsageError(
            f"{path} line 1: {', '.join(header) or 'nothing'}; expected time and any of {', '.join(known[1:])}"
        )
    if len(rows) < 2:
        raise UsageError(f"{path}: a header and no lines")
    found = [read_row(path, line, header, row) for line, row in enumerate(rows[1:], 2)]
    zero = midnight_before(path, rows[1][header.index("time")])
    times = [read_time(path, line, row[header.index("time")], zero) for line, row in enumerate(rows[1:], 2)]
    if late := next((i for i in range(1, len(times)) if times[i] <= times[i - 1]), None):
        raise UsageError(f"{path} line {late + 2}: its time is not later than that of the line before")
    return Availability(tuple(times), tuple(found))


def read_row(path: Path, line: int, header: Sequence[str], row: Sequence[str]) -> Moment:
    """One line but for its time."""
    if len(row) != len(header):
        raise UsageError(f"{path} line {line}: {len(row)} cells, the header has {len(header)}")
    cells = dict(zip(header, row, strict=True))
    flags = {name: read_flag(path, line, name, cells[name]) for name in FLAGS if name in cells}
    numbers = {name: read_number(path, line, name, cells[name]) for name in NUMBERS if name in cells}
    return Moment(
        offline=bool(flags.get("offline")),
        charging=flags.get("charging"),
        metered=flags.get("metered"),
        battery=numbers.get("battery"),
        celsius=numbers.get("celsius"),
    )


def read_flag(path: Path, line: int, name: str, cell: str) -> bool | None:
    if cell not in ("0", "1", ""):
        raise UsageError(f"{path} line {line}: {name} = {cell!r}, expected 0 or 1, or nothing")
    return None if cell == "" else cell == "1"


def read_number(path: Path, line: int, name: str, cell: str) -> float | None:
    least, most = NUMBERS[name]
    try:
        value = float(cell) if cell else None
    except ValueError:
        value = float("nan")
    if value is not None and not least <= value <= most:
        raise UsageError(
            f"{path} line {line}: {name} = {cell!r}, expected a number from {least:g} to {most:g}, or nothing"
        )
    return value


def midnight_before(path: Path, first: str) -> datetime | None:
    """Midnight of the first day of a file with ISO times; None where times are seconds."""
    try:
        float(first)
        return None
    except ValueError:
        pass
    try:
        return datetime.fromisoformat(first).replace(hour=0, minute=0, second=0, microsecond=0)
    except ValueError:
        raise UsageError(f"{path} line 2: time = {first!r}, expected seconds or an ISO time") from None


def read_time(path: Path, line: int, cell: str, zero: datetime | None) -> float:
    """Seconds since midnight of the first day."""
    try:
        found = float(cell) if zero is None else (datetime.fromisoformat(cell) - zero).total_seconds()
    except (ValueError, TypeError):
        found = float("nan")
    if not isfinite(found):
        raise UsageError(f"{path} line {line}: time = {cell!r}, expected one as in line 2")
    return found
