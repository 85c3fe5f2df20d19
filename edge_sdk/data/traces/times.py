"""Cells of a time column as seconds: numbers in some unit, or dates and times, in a zone or in none."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from edge_sdk.data.ordered import find_median
from edge_sdk.data.traces.form import UNITS, Stated, is_number
from edge_sdk.errors import UsageError

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

EPOCHS = ((1e17, "ns"), (1e14, "us"), (1e11, "ms"))
"""From which size on times that are numbers are nanoseconds, microseconds or milliseconds since 1970."""
FORMS = ("%H:%M:%S", "%d.%m.%Y %H:%M:%S", "%Y/%m/%d %H:%M:%S", "%d/%m/%Y %H:%M:%S", "%m/%d/%Y %H:%M:%S")
"""Ways to write times, and dates, beside ISO. Which of the last two it is shows where a day is above 12."""
TIME_FORM = "ISO time, e.g. 2011-03-23T10:39:18.031, or seconds as a number"
ZONED = re.compile(r"(Z|[+-]\d\d:?\d\d)$")
SLOT = 900
"""Seconds; no zone changes its offset within a quarter of an hour."""
HOUR = 3600.0

Times = npt.NDArray[np.float64]
Convert = Callable[[Sequence[str]], Times]


def find_unit(file: Path, cells: Sequence[str], decimal: str, told: str | None) -> tuple[float | None, str]:
    """Seconds of one unit of times that are numbers, and what was guessed; None: they are dates and times.

    Args:
        cells: the first ones.
        told: unit that somebody, or the header, has said.
    """
    numbers = [float(cell.strip().replace(decimal, ".")) for cell in cells if is_number(cell, decimal)]
    if 2 * len(numbers) <= len(cells):
        return None, ""
    if told is not None:
        return UNITS[told], f"times are in {told}" * (told != "s")
    size = abs(find_median(numbers))
    unit = next((name for least, name in EPOCHS if size >= least), "s")
    note = f"times of this size ({size:.0f}) are taken as {unit} since 1970" if unit != "s" else ""
    return UNITS[unit], note


def find_dates(file: Path, line: int, cells: Sequence[str], said: Stated) -> tuple[Convert, str]:
    """The conversion of dates and times to seconds since 1970 (without a zone: as if of UTC), and what was guessed.

    Raises:
        UsageError: the first cell is in no form that is known, or day and month cannot be told apart.
    """
    if said.time_form is not None:
        return by_form(said.time_form), ""
    first = next((cell.strip() for cell in cells if cell.strip()), "")
    if not np.isnan(read_iso(first)):
        zoned = has_zone(first)
        return lambda cells: convert_iso(cells, zoned), ""
    fits = [form for form in FORMS if not np.isnan(by_form(form)(cells)).any()]
    if len(fits) == 1:
        return by_form(fits[0]), f"times are read as {fits[0]}"
    if fits:
        raise UsageError(f"{file} line {line}: {first!r:.60}: day or month first? say time_form, such as {fits[0]!r}")
    raise UsageError(f"{file} line {line}, column time: {first!r:.60}; expected {TIME_FORM}")


def by_form(form: str) -> Convert:
    """Converts cells in a form of `strptime`; a fraction of a second may follow. NaN where one is not in it."""

    def read(cell: str) -> float:
        for tail in ("", ".%f"):
            try:
                found = datetime.strptime(cell.strip().replace(",", "."), form + tail)
            except ValueError:
                continue
            return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
        return np.nan

    return lambda cells: np.fromiter(map(read, cells), np.float64, len(cells))


def convert_iso(cells: Sequence[str], zoned: bool) -> Times:
    """ISO times as seconds since 1970; NaN where a cell is none. All at once where they are alike.

    Args:
        zoned: they name their offset from UTC; of one that does not, nobody knows when it was, and the other way round.
    """
    texts = np.asarray(cells, np.str_)
    offset = 0.0
    if zoned and len(texts) and (found := ZONED.search(texts[0])):
        offset = read_offset(found[0])
        alike = np.char.endswith(texts, found[0])
        texts = np.char.replace(texts, found[0], "") if alike.all() else texts
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # of an offset that is still there
            whole = texts.astype("M8[us]")
    except (ValueError, Warning):
        return np.fromiter((read_iso(cell, zoned) for cell in cells), np.float64, len(cells))
    return np.where(np.isnat(whole), np.nan, whole.astype(np.int64) / 1e6 - offset)


def read_offset(text: str) -> float:
    """Seconds of "+01:00", of "Z" none."""
    if text == "Z":
        return 0.0
    hours, minutes = int(text[1:3]), int(text[-2:])
    return (-1 if text[0] == "-" else 1) * (hours * HOUR + minutes * 60)


def read_iso(cell: str, zoned: bool | None = None) -> float:
    """Seconds since 1970 of one ISO time; NaN if it is none, or names an offset or none other than it should."""
    try:
        found = datetime.fromisoformat(cell.strip())
    except ValueError:
        return float("nan")
    if zoned is not None and zoned != (found.tzinfo is not None):
        return float("nan")
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def has_zone(cell: str) -> bool:
    """Does a time name its offset from UTC?"""
    return ":" in cell and ZONED.search(cell.strip()) is not None


def find_zone(name: str) -> ZoneInfo:
    """A zone by its IANA name.

    Raises:
        UsageError: there is none of that name.
    """
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError  # which few traces name

    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise UsageError(f"zone = {name!r}; expected an IANA name such as Europe/Berlin") from error


def from_local(times: Times, zone: ZoneInfo) -> tuple[Times, int]:
    """Local times of a zone as seconds since 1970, and how many of them the zone has twice.

    In the hour that an autumn night has twice, times are of the first one until the clock has gone back, and of the
    second one then. Where it never goes back, only one of the two was recorded: the one that joins what came after
    it, or else the first.

    Args:
        times: float64 (n,), in the order of the file, as if they were UTC; NaN where there is none.
    """
    known = np.flatnonzero(~np.isnan(times))
    slots, place = np.unique(times[known] // SLOT, return_inverse=True)
    early, late = (np.array([offset_of(slot * SLOT, zone, fold) for slot in slots]) for fold in (0, 1))
    second = np.zeros(len(known), np.bool_)
    twice = (early > late)[place]  # after a jump forward it is the other way round, and such times never were
    for begin, end in list_runs(twice):
        own = times[known[begin:end]]
        back = np.flatnonzero(np.diff(own) < -SLOT)
        if len(back):
            second[begin + back[0] + 1 : end] = True
        elif end < len(known):
            after = times[known[end]] - own[-1]
            before = own[0] - times[known[begin - 1]] if begin else np.inf
            second[begin:end] = after < SLOT < before
    found = times.copy()
    found[known] -= np.where(second, late[place], early[place])
    return found, int(twice.sum())


def offset_of(local: float, zone: ZoneInfo, fold: int) -> float:
    """Seconds that a zone is ahead of UTC at a local time."""
    moment = (datetime(1970, 1, 1) + timedelta(seconds=float(local))).replace(tzinfo=zone, fold=fold)
    offset = moment.utcoffset()
    return offset.total_seconds() if offset is not None else 0.0


def list_runs(mask: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
    """First places and ends of the stretches in which a mask is true."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], mask, [False]]).astype(np.int8)))
    return [(int(a), int(b)) for a, b in zip(edges[::2], edges[1::2], strict=True)]
