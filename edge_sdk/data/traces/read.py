"""One CSV file is one trace: a column with the time, one column per channel, one column with the label of every sample.

A sample whose label is empty or `unlabelled` has none: nobody has said what was done. What loggers and spreadsheets
make of such files is read as it is meant, and told: `Trace.notes` has what was guessed, `Trace.repairs` what was put
right. Nothing behind this module has to check a cell again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from edge_sdk.data.ordered import find_median, list_distinct
from edge_sdk.data.traces.cells import EXACT, Block, read_blocks
from edge_sdk.data.traces.form import TRIED, Form, Stated, find_form, split_line
from edge_sdk.data.traces.labels import LABEL_NAMES
from edge_sdk.data.traces.repairs import Repair, Repairs
from edge_sdk.data.traces.rows import Rows, code_labels, mend
from edge_sdk.data.traces.text import completed, look_encoding, open_lines
from edge_sdk.data.traces.times import Convert, find_dates, find_unit, find_zone, from_local, has_zone
from edge_sdk.errors import UsageError
from edge_sdk.label_names import JOIN

LIMIT = 512 * 2**20
COLUMNS = ("time", "values", "codes", "line")
"""Of `Rows`."""
RATES = (1e-5, 1e6)
"""Samples per second, at least and at most."""
SINCE_1970 = 1e8
"""Seconds; times that are larger count from 1970."""
SLOW = 0.5
"""Samples per second; below it somebody should know that times are taken as seconds."""


@dataclass(frozen=True, eq=False)
class Trace:
    """A recorded stream of one person's sensor. The samples of all its recordings, in time order.

    Attributes:
        name: the file's name without its suffix; the device's id in a replay.
        time: float64 (n,), seconds since the first sample, strictly increasing.
        values: float32 (n, c), finite, in the file's unit; NaN in gaps of a column that is to be predicted.
        channels: c names.
        codes: int64 (n,), indices into `classes`; UNLABELLED where nobody has said what was done.
        classes: label names; sorted, may hold names that this trace does not use (see `load_folder`).
        rate_hz: samples per second inside a recording.
        start: the first time, as it is written in the file.
        began: the first time as a number: seconds since 1970 where the file has such times or dates.
        repairs: what was put right.
        notes: what was guessed.
    """

    name: str
    time: npt.NDArray[np.float64]
    values: npt.NDArray[np.float32]
    channels: tuple[str, ...]
    codes: npt.NDArray[np.int64]
    classes: tuple[str, ...]
    rate_hz: float
    start: str
    began: float = 0.0
    repairs: tuple[Repair, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def told(self) -> str:
        """One line on all that was guessed and put right; "": nothing was."""
        said = "; ".join([*self.notes, *map(str, self.repairs)])
        return f"{self.name}: {said}" if said else ""


def read_trace(
    path: str | Path,
    label: str | None = "activity",
    channels: Sequence[str] | None = None,
    *,
    limit: int = LIMIT,
    strict: bool = False,
    missing: Sequence[str] = (),
    classes: Sequence[str] = (),
    separator: str = JOIN,
) -> Trace:
    """Reads one CSV file.

    Args:
        path: of the file.
        label: name of the column with the labels; None: nobody wants any, so none is looked for.
        channels: names of the channel columns, in the order wanted; None: all columns of numbers but the time.
        limit: bytes; a larger file is refused before it is read.
        strict: refuse what would be put right.
        missing: further words that stand for no label.
        classes: names of classes, whose spelling labels take that differ from it in upper and lower case only.
        separator: between the labels of a set.

    Raises:
        UsageError: with the file, the line (from 1), the column, the value and what would be right.
    """
    return read_stated(Path(path), stated(label, channels, strict, missing, separator), limit, classes)


def stated(label: str | None, channels: Sequence[str] | None, strict: bool, missing: Sequence[str],
           separator: str, targets: Sequence[str] = (), labels: bool = True) -> Stated:  # fmt: skip
    """What is said of a file's columns. `label` None, or not `labels`: nobody wants any."""
    return Stated(
        label=label or "",
        channels=None if channels is None else tuple(channels),
        missing=tuple(missing),
        strict=strict,
        labels=labels and label is not None,
        separator=separator,
        targets=tuple(targets),
    )


def read_stated(file: Path, said: Stated, limit: int = LIMIT, classes: Sequence[str] = ()) -> Trace:
    """The trace of `read_trace`."""
    repairs = Repairs(file, said.strict)
    table = read_table(file, said, repairs, limit=limit)
    return make_trace(Path(file.name.removesuffix(".gz")).stem, table.devices[""], repairs, said, classes, table.start)


@dataclass(frozen=True, eq=False)
class FileRows:
    """The rows of a file.

    Attributes:
        devices: name of a device -> its rows as they were recorded; "" where no column tells devices apart.
        start: the first time, as it is written.
        dated: are its times seconds since 1970?
        zoned: has the file, or somebody, said in which zone they are?
    """

    devices: Mapping[str, Rows]
    start: str
    dated: bool
    zoned: bool


def read_table(path: str | Path, said: Stated, repairs: Repairs, *, limit: int = LIMIT) -> FileRows:
    """Reads the rows of a file, each device's in the order in which they are written; none is put right yet.

    Raises:
        UsageError: it cannot be read, or is no table of times and numbers.
    """
    file = Path(path)
    try:
        size = file.stat().st_size
        if size > limit:
            raise UsageError(f"{file}: {size} bytes, the limit for one trace is {limit}: cut it into shorter ones")
        encoding = look_encoding(file)
        try:
            return read_encoded(file, encoding, said, repairs, limit)
        except UnicodeDecodeError:
            if encoding != "utf-8":
                raise
            repairs.found.clear()
            repairs.notes.clear()
            repairs.doubt("the text is not in UTF-8 and is read as Latin-1")
            return read_encoded(file, "latin-1", said, repairs, limit)
    except OSError as error:
        raise UsageError(f"{file}: cannot be read ({error.strerror or error}); a trace is a CSV file") from error
    except UnicodeError as error:
        raise UsageError(f"{file}: not a CSV text in UTF-8 ({error})") from error


def read_encoded(file: Path, encoding: str, said: Stated, repairs: Repairs, limit: int) -> FileRows:
    with open_lines(file, encoding, limit, repairs) as found:
        lines = completed(found, said)
        head = list(islice(lines, TRIED))
        if any("\0" in line.rstrip("\0\r\n") for line in head[:1]):
            raise UsageError(f"{file}: not a CSV text: bytes of zeros in its first line")
        form = find_form(file, head, said)
        for note in form.notes:
            repairs.note(note)
        if form.label is None and said.labels and not said.targets:
            names = ", ".join(form.header)
            repairs.doubt(
                f"no column {said.label or LABEL_NAMES[0]!r} among {names} (--label NAME): no sample has a label"
            )
        body = head[form.first - 1 :]
        if said.header:  # a line of the file is no header
            form = replace(form, first=form.first - 1)
        rows = [split_line(line, form.delimiter) for line in body]
        cells = [form.time_of(row) for row in rows if len(row) >= len(form.header)]
        if not cells:
            raise UsageError(f"{file}: a header and no samples; one sample per line")
        factor, note = find_unit(file, cells, form.decimal, form.unit)
        convert: Convert | None = None
        if factor is None:
            convert, note = find_dates(file, form.first, cells, said)
        if note:
            repairs.note(note)
        gathered = Gathered(form, repairs)
        for block in read_blocks(chain(body, lines), form, convert, repairs):
            gathered.add(block)
    devices = gathered.finish(factor)
    local = factor is None and not any(map(has_zone, cells)) and "%z" not in (said.time_form or "")
    if local and said.zone is not None:
        place_in_zone(devices, said.zone, repairs)
    first = next(iter(devices.values())).time[:1] if devices else np.zeros(0)
    dated = factor is None or bool(len(first) and first[0] > SINCE_1970)
    return FileRows(devices, cells[0].strip(), dated, not local or said.zone is not None)


def place_in_zone(devices: Mapping[str, Rows], name: str, repairs: Repairs) -> None:
    """Makes local times seconds since 1970, in place."""
    zone = find_zone(name)
    for rows in devices.values():
        rows.time, twice = from_local(rows.time, zone)
        if twice:
            repairs.note(
                f"{twice} times are of an hour that {name} has twice; the second one begins where they go back"
            )


@dataclass
class Gathered:
    """Blocks of rows on their way to the rows of each device."""

    form: Form
    repairs: Repairs
    parts: dict[str, dict[str, GrowingColumn]] = field(default_factory=dict)
    words: dict[str, dict[str, int]] = field(default_factory=dict)
    names: tuple[str, ...] = ()

    def add(self, block: Block) -> None:
        if not len(block.time):
            return
        self.names = tuple(self.form.header[n] for n in self.form.channels)
        exact = self.tell_inexact(block)
        for name in list_distinct(block.by):
            own = slice(None) if self.form.by is None else block.by == name
            words = self.words.setdefault(str(name).strip(), {})
            codes = code_runs(block.labels[own], words)
            line = block.line[own].astype(np.int32)
            parts = self.parts.setdefault(str(name).strip(), {key: GrowingColumn() for key in COLUMNS})
            columns: tuple[npt.NDArray[Any], ...] = (block.time[own], exact[own], codes, line)
            for key, values in zip(COLUMNS, columns, strict=True):
                parts[key].append(values)

    def tell_inexact(self, block: Block) -> npt.NDArray[np.float32]:
        """The values as float32, which holds no whole numbers above 2^24 to their last digit."""
        found = block.values.astype(np.float32)
        large = np.abs(block.values) > EXACT
        if large.any():
            large &= np.isfinite(block.values) & (found != block.values)
        for place in np.flatnonzero(large.any(0)):
            self.repairs.doubt(f"channel {self.names[place]}: numbers above 2^24 lose their last digits in float32")
        return found

    def finish(self, factor: float | None) -> dict[str, Rows]:
        """The rows of each device. `factor`: seconds of one unit of time; None: of seconds."""
        found = {}
        for name in sorted(self.parts):
            parts = self.parts.pop(name)
            time, values, codes, line = (parts[key].whole() for key in COLUMNS)
            time *= factor or 1.0
            found[name] = Rows(time, values, self.names, codes, list(self.words[name]), line)
        if not found:
            raise UsageError(f"{self.repairs.file}: a header and no samples; one sample per line")
        return found


class GrowingColumn:
    """An array that grows at its end, in place: a day's rows are never held twice."""

    def __init__(self) -> None:
        self.data: npt.NDArray[Any] | None = None
        self.length = 0

    def append(self, values: npt.NDArray[Any]) -> None:
        """Adds values (n,) or (n, c), all of one type and c."""
        if self.data is None:
            self.data = np.array(values)
        elif len(self.data) < self.length + len(values):
            room = self.length + max(len(values), self.length // 8)
            self.data.resize((room, *self.data.shape[1:]), refcheck=False)
        self.data[self.length : self.length + len(values)] = values
        self.length += len(values)

    def whole(self) -> npt.NDArray[Any]:
        """All that was added."""
        assert self.data is not None, "a device has rows"
        self.data.resize((self.length, *self.data.shape[1:]), refcheck=False)
        return self.data


def code_runs(labels: npt.NDArray[np.str_], words: dict[str, int]) -> npt.NDArray[np.int32]:
    """Numbers of labels. `words` grows by those that are new. Equal ones lie side by side, so few are looked at."""
    starts = np.flatnonzero(np.concatenate([[True], labels[1:] != labels[:-1]]))
    codes = [words.setdefault(str(labels[at]), len(words)) for at in starts]
    return np.repeat(np.array(codes, np.int32), np.diff(np.append(starts, len(labels))))


def make_trace(
    name: str, rows: Rows, repairs: Repairs, said: Stated, classes: Sequence[str] = (), start: str = ""
) -> Trace:
    """Puts rows in order, and makes a trace of them, which takes what they hold.

    Args:
        classes: see `read_trace`.

    Raises:
        UsageError: too few rows are left, or their rate cannot be one; or something had to be put right under `strict`.
    """
    mend(rows, repairs, said)
    codes, found = code_labels(rows, said, classes, repairs)
    began = float(rows.time[0])
    time, values, channels = rows.time, rows.values, rows.channels
    rows.take(np.zeros(0, np.int64))  # they may be a day's, and are not held twice
    time -= began
    if began > SINCE_1970:
        np.round(time, 6, out=time)  # of so large numbers no more is exact
    rate = measure_rate(time)
    if not RATES[0] <= rate <= RATES[1]:
        raise UsageError(
            f"{repairs.file}: {rate:.3g} samples per second; are the times seconds? say unit = ms, us or ns"
        )
    if rate < SLOW:
        repairs.note(f"{rate:.3g} samples per second (times are taken as seconds)")
    return Trace(
        name=name,
        time=time,
        values=values,
        channels=channels,
        codes=codes,
        classes=found,
        rate_hz=rate,
        start=start,
        began=began,
        repairs=tuple(repairs.found.values()),
        notes=tuple(repairs.notes),
    )


def measure_rate(time: npt.NDArray[np.float64]) -> float:
    """Samples per second: the median over spans of up to 32 samples, as time stamps are rounded to milliseconds."""
    span = min(32, len(time) - 1)
    with suppress(ZeroDivisionError):
        return span / find_median(time[span:] - time[:-span], overwrite=True)
    return float("inf")
