"""One CSV file is one trace: a column `time`, one column per channel, one column with the label of every sample.

A sample whose label is empty or `unlabelled` has none: nobody has said what was done.

Every cell is checked here, once, so that nothing behind this module has to. Rows are taken in blocks: that bounds the
memory (a list of all cells of a long file would not fit on a device), and the columns of a block are converted at the
speed of C. When a block fails, its cells are gone through one by one, to name the first bad one.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain, islice
from math import isfinite
from pathlib import Path

import numpy as np
import numpy.typing as npt

from edge_sdk.errors import UsageError

BLOCK = 8192
LIMIT = 512 * 2**20
FLOAT32_MAX = float(np.finfo(np.float32).max)
UNLABELLED, NO_LABEL = -1, ("", "unlabelled")
"""Code of a sample without a label, and what its cell says: nothing, or the word that `auscult record` writes."""
TIME_FORM = "ISO local time, e.g. 2011-03-23T10:39:18.031, or seconds as a number"


@dataclass(frozen=True, eq=False)
class Trace:
    """A recorded stream of one person's sensor. The samples of all its recordings, in time order.

    Attributes:
        name: the file's name without its suffix; the device's id in a replay.
        time: float64 (n,), seconds since the first sample, strictly increasing.
        values: float32 (n, c), finite, in the file's unit.
        channels: c names.
        codes: int64 (n,), indices into `classes`; UNLABELLED where nobody has said what was done.
        classes: label names; sorted, may hold names that this trace does not use (see `load_folder`).
        rate_hz: samples per second inside a recording.
        start: the first time, as it is written in the file.
    """

    name: str
    time: npt.NDArray[np.float64]
    values: npt.NDArray[np.float32]
    channels: tuple[str, ...]
    codes: npt.NDArray[np.int64]
    classes: tuple[str, ...]
    rate_hz: float
    start: str


def read_trace(
    path: str | Path, label: str = "activity", channels: Sequence[str] | None = None, *, limit: int = LIMIT
) -> Trace:
    """Reads and checks one CSV file (UTF-8, comma separated, names in the first line).

    Args:
        path: of the file.
        label: name of the column with the labels.
        channels: names of the channel columns, in the order wanted; None: all columns but `time` and `label`.
        limit: bytes; a larger file is refused before it is read.

    Raises:
        UsageError: with the file, the line (from 1, the header), the column, the value and what would be right.
    """
    file = Path(path)
    try:
        size = file.stat().st_size
        if size > limit:
            raise UsageError(f"{file}: {size} bytes, the limit for one trace is {limit}: cut it into shorter ones")
        with open(file, newline="", encoding="utf-8-sig") as text:
            return _read_trace(file, csv.reader(text), label, channels)
    except OSError as error:
        raise UsageError(f"{file}: cannot be read ({error.strerror}); a trace is a CSV file") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{file}: not a CSV text in UTF-8 ({error})") from error


def _read_trace(file: Path, reader: Iterator[list[str]], label: str, channels: Sequence[str] | None) -> Trace:
    header, first = next(reader, None), next(reader, None)
    if header is None or first is None:
        raise UsageError(f"{file}: {'empty' if header is None else 'a header and no samples'}; one sample per line")
    table = _read_header(file, header, first, label, channels)
    vocabulary: dict[str, int] = {}
    blocks = list(_read_blocks(table, chain([first], reader), vocabulary))
    time = np.concatenate([block.time for block in blocks])
    if len(time) < 2:
        raise UsageError(f"{file}: one sample; two or more make a trace")
    classes = tuple(sorted(vocabulary))
    rank = np.array([*map(classes.index, vocabulary), UNLABELLED], np.int64)  # its last entry, -1, is that of code -1
    return Trace(
        name=file.stem,
        time=time,
        values=np.concatenate([block.values for block in blocks]),
        channels=tuple(header[i] for i in table.channels),
        codes=rank[np.concatenate([block.codes for block in blocks])],
        classes=classes,
        rate_hz=_measure_rate(time),
        start=first[table.time],
    )


def _measure_rate(time: npt.NDArray[np.float64]) -> float:
    """Samples per second: the median over spans of up to 32 samples, as time stamps are rounded to milliseconds."""
    span = min(32, len(time) - 1)
    return float(span / np.median(time[span:] - time[:-span]))


@dataclass(frozen=True)
class _Table:
    """The header of a file: which column is what, and how a time is read."""

    file: Path
    header: list[str]
    time: int
    label: int
    channels: list[int]
    seconds: Callable[[str], float]


def _read_header(file: Path, header: list[str], first: list[str], label: str, channels: Sequence[str] | None) -> _Table:
    if label == "time":
        raise UsageError(f"{file}: label = 'time'; the column time holds the time, name the one with the activity")
    wanted = [name for name in header if name not in ("time", label)] if channels is None else list(channels)
    for name in ("time", *wanted, label):
        if header.count(name) != 1:
            how = "no column" if name not in header else f"{header.count(name)} columns"
            raise UsageError(f"{file} line 1: {how} {name!r} among {', '.join(header)}; exactly one is needed")
    if not wanted or len(set(wanted)) < len(wanted) or {"time", label} & set(wanted):
        raise UsageError(f"{file} line 1: channels {wanted}: one or more names, each once, not time, not {label}")
    places = [header.index(name) for name in wanted]
    table = _Table(file, header, header.index("time"), header.index(label), places, float)
    if len(first) != len(header):
        raise _ragged_error(table, first, 2)
    return _Table(file, header, table.time, table.label, places, _choose_clock(table, first[table.time]))


def _choose_clock(table: _Table, first: str) -> Callable[[str], float]:
    """Chooses how a cell becomes seconds since the first sample. The first cell decides which form the file uses."""
    try:
        zero = float(first)
    except ValueError:
        try:
            start = datetime.fromisoformat(first)
        except ValueError:
            raise _cell_error(table, 2, "time", first, TIME_FORM) from None
        return lambda cell: (datetime.fromisoformat(cell) - start).total_seconds()
    if not isfinite(zero):
        raise _cell_error(table, 2, "time", first, TIME_FORM)
    return lambda cell: float(cell) - zero


@dataclass(frozen=True)
class _Block:
    time: npt.NDArray[np.float64]
    values: npt.NDArray[np.float32]
    codes: npt.NDArray[np.int64]


def _read_blocks(table: _Table, reader: Iterator[list[str]], vocabulary: dict[str, int]) -> Iterator[_Block]:
    """Reads all rows, a block at a time. `vocabulary` grows by the labels that are new."""
    last, line = -1.0, 2
    while rows := list(islice(reader, BLOCK)):
        yield (block := _convert_block(table, rows, line, last, vocabulary))
        last, line = float(block.time[-1]), line + len(rows)


def _convert_block(table: _Table, rows: list[list[str]], line: int, last: float, vocabulary: dict[str, int]) -> _Block:
    """Converts the columns of a block at once. `last` is the time before this block, which begins in `line`."""
    try:
        columns = list(zip(*rows, strict=True))
        if len(columns) != len(table.header):
            raise ValueError
        time = np.fromiter(map(table.seconds, columns[table.time]), np.float64, len(rows))
        values = np.array([np.fromiter(map(float, columns[i]), np.float64, len(rows)) for i in table.channels]).T
        labels = columns[table.label]
        rises = bool(np.all(np.diff(time, prepend=last) > 0) and isfinite(time[-1]))
        if not (rises and np.all(np.abs(values) <= FLOAT32_MAX)):
            raise ValueError
    except (ValueError, TypeError, OverflowError):
        raise _find_bad_cell(table, rows, line, last) from None
    for name in dict.fromkeys(labels):
        if name.strip() not in NO_LABEL:
            vocabulary.setdefault(name, len(vocabulary))
    codes = np.fromiter((vocabulary.get(name, UNLABELLED) for name in labels), np.int64, len(rows))
    return _Block(time, values.astype(np.float32), codes)


def _find_bad_cell(table: _Table, rows: list[list[str]], line: int, last: float) -> UsageError:
    """Finds the first cell of a block that is wrong, cell by cell, after `_convert_block` has failed."""
    for at, row in enumerate(rows, line):
        if len(row) != len(table.header):
            return _ragged_error(table, row, at)
        time = _convert_or_nan(table.seconds, row[table.time])
        if not isfinite(time):
            return _cell_error(table, at, "time", row[table.time], f"{TIME_FORM}, the same in all lines")
        if not time > last:
            return _cell_error(table, at, "time", row[table.time], f"later than the line before ({time - last:+.3f} s)")
        last = time
        for i in table.channels:
            if not abs(_convert_or_nan(float, row[i])) <= FLOAT32_MAX:
                return _cell_error(table, at, table.header[i], row[i], "a finite number, decimal point, no unit")
    raise AssertionError(f"{table.file}: block at line {line} refused, and every cell of it is right")


def _convert_or_nan(convert: Callable[[str], float], cell: str) -> float:
    try:
        return convert(cell)
    except (ValueError, TypeError, OverflowError):
        return float("nan")


def _ragged_error(table: _Table, row: list[str], line: int) -> UsageError:
    cells = f"{len(row)} cells ({','.join(row)!r:.60})"
    return UsageError(f"{table.file} line {line}: {cells}; expected {len(table.header)}: {','.join(table.header)}")


def _cell_error(table: _Table, line: int, column: str, value: str, right: str) -> UsageError:
    return UsageError(f"{table.file} line {line}, column {column}: {value!r:.60}; expected {right}")
