"""The way in which a file of rows is written: the sign between cells, the header, and what each column is. What nobody
has said is found by looking at the first lines, and told."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path

from edge_sdk.data.traces.labels import LABEL_NAMES
from edge_sdk.errors import UsageError
from edge_sdk.label_names import JOIN, check_separator

DELIMITERS = ("\t", ";", "|", ",", " ")
"""Signs between cells, in the order in which they are tried; the last one is any number of spaces."""
TIME_NAMES = ("time", "timestamp", "timestamps", "datetime", "date_time", "t", "ts", "epoch", "unixtime", "date")
"""Names of the time column, the likely ones first; a unit may follow, as in `time_ms` and `Timestamp [ms]`."""
UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
NUMBERING = re.compile(r"(unnamed: ?\d+|index|)", re.IGNORECASE)
"""Names of a column in which rows are numbered, as spreadsheets and libraries add it."""
NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")
NO_NUMBER = ("", "nan", "na", "n/a", "null", "none", "inf", "+inf", "-inf", "-")
"""What a cell of a channel says where a sensor gave nothing."""
TRIED = 40
"""Lines that are looked at."""


@dataclass(frozen=True)
class Stated:
    """What somebody has said about how files are written; None: it is found by looking.

    Attributes:
        label: name of the label column.
        channels: names of the channel columns, in the order wanted.
        time: name of the time column.
        delimiter: between cells; " " for any number of spaces.
        decimal: "." or ",".
        unit: of times that are numbers: s, ms, us or ns. time_form: of dates, as `datetime.strptime` has it.
        zone: IANA name of the zone of times that name none.
        by: name of the column that tells devices of one file apart. by_folder: a folder is one device's.
        header: names of the columns of files that have none. rows_hz: rows in a second, where no column has times.
        only: pattern of the names of files that are wanted, such as "*_watch.csv"; "": all are.
        missing: further words that stand for no label.
        strict: refuse what would be repaired. damaged: take what is whole of a damaged file of an actigraph.
        labels: look for a column with labels; False: there is none, or nobody wants it.
        separator: between the labels of a set.
        targets: names of columns that are to be predicted: where one has no number, the row is kept.
        intervals: pattern of the names of files with labels of the recordings beside them; "": there are none.
        sets: where several annotations or intervals hold, the label is a set; else the later one counts.
    """

    label: str | None = None
    channels: tuple[str, ...] | None = None
    time: str | None = None
    delimiter: str | None = None
    decimal: str | None = None
    unit: str | None = None
    time_form: str | None = None
    zone: str | None = None
    by: str | None = None
    by_folder: bool = False
    header: tuple[str, ...] = ()
    rows_hz: float = 0.0
    only: str = ""
    missing: tuple[str, ...] = ()
    strict: bool = False
    damaged: bool = False
    labels: bool = True
    separator: str = JOIN
    targets: tuple[str, ...] = ()
    intervals: str = ""
    sets: bool = False

    def __post_init__(self) -> None:
        check_separator(self.separator)
        for name, known in (("delimiter", DELIMITERS), ("decimal", (".", ",")), ("unit", tuple(UNITS))):
            if (value := getattr(self, name)) is not None and value not in known:
                raise UsageError(f"{name} = {value!r}; expected one of {', '.join(map(repr, known))}")
        if not 0 <= self.rows_hz < inf:
            raise UsageError(f"rows_hz = {self.rows_hz}; expected rows in a second, above 0")
        if self.by is not None and self.by_folder:
            raise UsageError(f"by = {self.by!r} and by_folder: devices are told apart by one of them")

    def may_lack(self, name: str) -> bool:
        """May a channel of this name have no number in a row that is kept?"""
        return name.casefold() in map(str.casefold, self.targets)

    def is_time(self, name: str) -> bool:
        """May a column of this name hold the time?"""
        clean = name.strip().strip('"').strip()
        return split_unit(clean)[0] in TIME_NAMES if self.time is None else clean.casefold() == self.time.casefold()


@dataclass(frozen=True)
class Form:
    """The way in which one file is written.

    Attributes:
        header: names of all columns.
        first: number of the line after the header, from 1.
        delimiter, decimal: as in `Stated`.
        time, date, label, by: numbers of these columns; None: there is none.
        channels: numbers of the channel columns, in their order.
        targets: those of them that are to be predicted.
        unit: of times that are numbers, if the header says so.
        notes: what was guessed.
        added: cells that were put before those of each line, as `Stated.rows_hz` has it.
    """

    header: tuple[str, ...]
    first: int
    delimiter: str
    decimal: str
    time: int
    date: int | None
    label: int | None
    by: int | None
    channels: tuple[int, ...]
    unit: str | None
    notes: tuple[str, ...] = ()
    added: int = 0
    targets: frozenset[int] = frozenset()

    def time_of(self, row: Sequence[str]) -> str:
        """The time of a row, with its date where that has a column of its own."""
        time = row[self.time].strip()
        return time if self.date is None else f"{row[self.date].strip()} {time}"


def find_form(file: Path, lines: Sequence[str], said: Stated) -> Form:
    """Finds how a file is written.

    Args:
        file: is named in errors.
        lines: the first ones, at least a header and a row.

    Raises:
        UsageError: there is no header, or a column that was named is not there, or no column can be the time.
    """
    delimiter, at = find_delimiter(file, lines, said)
    header = tuple(name.strip().strip('"').strip() for name in split_line(lines[at], delimiter))
    rows = [cells for line in lines[at + 1 :] if line.strip("\0\r\n ") and (cells := split_line(line, delimiter))]
    rows = [cells for cells in rows if len(cells) >= len(header)]
    decimal = said.decimal or find_decimal(rows, delimiter)
    if all(is_number(name, decimal) for name in header):
        wanted = "expected the names of columns (`traces import --header NAMES`)"
        raise UsageError(f"{file} line {at + 1}: numbers ({', '.join(header):.60}); {wanted}")
    notes = describe_form(delimiter, decimal, at, lines)
    time, unit = find_time(file, header, said)
    date = find_date(header, rows, time)
    label = find_label(file, header, said)
    if label == time:
        raise UsageError(f"{file}: label = {said.label!r}: that column holds the time; name the one with the labels")
    by = None if said.by is None else find_column(file, header, said.by)
    if header[time].casefold() != "time":
        notes.append(f"the time is in column {header[time]}")
    if label is not None and header[label] != (said.label or LABEL_NAMES[0]):
        notes.append(f"labels are in column {header[label]}")
    taken, unwanted = {time, date, label, by}, find_unwanted(header, said)
    if said.channels is not None:
        channels = tuple(find_column(file, header, name) for name in said.channels)
        check_channels(file, header, channels, taken)
    else:
        channels, left = choose_channels(header, rows, decimal, taken | {*unwanted})
        check_channels(file, header, channels, taken)
        if not channels:
            raise UsageError(f"{file} line {at + 1}: no column of numbers beside the time among {', '.join(header)}")
        notes += [f"column {header[n] or n + 1} left out, it has no numbers" for n in left]
        notes += [f"column {header[n]} left out: no labels are asked for" for n in unwanted if n not in taken]
    return Form(
        header=header,
        first=at + 2,
        delimiter=delimiter,
        decimal=decimal,
        time=time,
        date=date,
        label=label,
        by=by,
        channels=channels,
        unit=said.unit or unit,
        notes=tuple(notes),
        added=int(said.rows_hz > 0),
        targets=frozenset(n for n in channels if said.may_lack(header[n])),
    )


def split_line(line: str, delimiter: str) -> list[str]:
    """Cells of a line; signs in quotes are no delimiters where the csv module can read these."""
    text = line.strip("\0\r\n")
    try:
        return text.split() if delimiter == " " else next(csv.reader([text], delimiter=delimiter), [])
    except csv.Error:
        return text.split(delimiter)


def find_delimiter(file: Path, lines: Sequence[str], said: Stated) -> tuple[str, int]:
    """The sign between cells, and the number of the line, from 0, that has the header.

    The header is the first line whose cells are as many as those of most lines after it. Where several signs divide
    the lines so, one whose header has the time is right: a label such as "a;b" stands in all of them, too.
    """
    tried = [sign for sign in DELIMITERS if sign != said.separator]  # which stands within a cell
    found = [(sign, at) for sign in ([said.delimiter] if said.delimiter else tried) for at in header_at(lines, sign)]
    timed = [(sign, at) for sign, at in found if any(map(said.is_time, split_line(lines[at], sign)))]
    return next(iter([*timed, *found]), None) or read_alone(file, lines)


def header_at(lines: Sequence[str], delimiter: str) -> list[int]:
    """The number of the line, from 0, that is the header if this sign divides cells; none: none is."""
    counts = [len(split_line(line, delimiter)) if line.strip("\0\r\n ") else 0 for line in lines]
    for at, count in enumerate(counts[:-1]):
        rest = [other for other in counts[at + 1 :] if other]
        like = sum(other in (count, count + 1) for other in rest)
        if count > 1 and rest and 2 * like > len(rest) and not lines[at].lstrip().startswith(("#", "%", "//")):
            return [at]
    return []


def read_alone(file: Path, lines: Sequence[str]) -> tuple[str, int]:
    """Where no lines are alike: a header and rows that are all cut, or no table at all."""
    full = [n for n, line in enumerate(lines) if line.strip("\0\r\n ")]
    if not full:
        raise UsageError(f"{file}: empty; one sample per line")
    if len(full) == 1:
        raise UsageError(f"{file}: a header and no samples; one sample per line")
    at = full[0]
    found = max(DELIMITERS, key=lambda sign: len(split_line(lines[at], sign)))
    width, cells = len(split_line(lines[at], found)), len(split_line(lines[full[1]], found))
    raise UsageError(f"{file} line {full[1] + 1}: {cells} cells, the header in line {at + 1} has {width}; no table")


def find_decimal(rows: Sequence[Sequence[str]], delimiter: str) -> str:
    """The decimal sign: a comma where cells have one between digits, and no points."""
    if delimiter == ",":
        return "."
    cells = [cell.strip() for row in rows for cell in row]
    commas = sum(bool(re.fullmatch(r"[-+]?\d*,\d+([eE][-+]?\d+)?", cell)) for cell in cells)
    points = sum(bool(re.fullmatch(r"[-+]?\d*\.\d+([eE][-+]?\d+)?", cell)) for cell in cells)
    return "," if commas > points else "."


def describe_form(delimiter: str, decimal: str, at: int, lines: Sequence[str]) -> list[str]:
    """What a reader should know of a file that is not as traces are."""
    names = {"\t": "tabs", ";": "semicolons", "|": "bars", " ": "spaces"}
    notes = [f"cells are divided by {names[delimiter]}"] if delimiter in names else []
    notes += ["decimal commas"] if decimal == "," else []
    above = sum(bool(line.strip()) for line in lines[:at])
    return notes + ([f"{above} line{'s' * (above > 1)} above the header left out"] if above else [])


def find_column(file: Path, header: Sequence[str], name: str) -> int:
    """Number of a column that was named; upper and lower case may differ where that leaves one.

    Raises:
        UsageError: there is none, or more than one.
    """
    exact = [n for n, other in enumerate(header) if other == name]
    found = exact or [n for n, other in enumerate(header) if other.casefold() == name.casefold()]
    if len(found) != 1:
        how = f"{len(found)} columns" if found else "no column"
        raise UsageError(f"{file}: {how} {name!r} among {', '.join(header)}; exactly one is needed")
    return found[0]


def find_time(file: Path, header: Sequence[str], said: Stated) -> tuple[int, str | None]:
    """Number of the time column, and the unit that its name tells."""
    if said.time is not None:
        at = find_column(file, header, said.time)
        return at, split_unit(header[at])[1]
    names = [split_unit(name) for name in header]
    for known in TIME_NAMES:
        found = [n for n, (name, _) in enumerate(names) if name == known]
        if len(found) == 1:
            return found[0], names[found[0]][1]
        if found:
            raise UsageError(f"{file}: {len(found)} columns {known!r} among {', '.join(header)}; exactly one is needed")
    how = "`traces import`: --time NAME, --rows-hz HZ if none has, --header NAMES, --intervals PATTERN if it has labels"
    raise UsageError(f"{file}: no column 'time' among {', '.join(header)}; name the one that has it ({how})")


def find_date(header: Sequence[str], rows: Sequence[Sequence[str]], time: int) -> int | None:
    """Number of the column with the dates of times that have none; None: they need none."""
    found = [n for n, name in enumerate(header) if name.casefold() == "date" and n != time]
    clock = all(re.fullmatch(r"\d{1,2}:\d\d(:\d\d([.,]\d*)?)?", row[time].strip()) for row in rows)
    return found[0] if len(found) == 1 and rows and clock else None


def split_unit(name: str) -> tuple[str, str | None]:
    """The name of a column without its unit, in lower case, and the unit: of "Time (ms)" it is ("time", "ms")."""
    words = re.sub(r"[\[\]()/]", " ", name.casefold().replace("µ", "u").replace("μ", "u")).split()
    if len(words) == 1 and "_" in words[0]:
        start, _, end = words[0].rpartition("_")
        words = [start, end] if end in UNITS else words
    unit = words[-1] if len(words) > 1 and words[-1] in UNITS else None
    return "_".join(words[:-1] if unit else words), unit


def find_label(file: Path, header: Sequence[str], said: Stated) -> int | None:
    """Number of the label column; None: there is none, and nobody has named one, or nobody wants it."""
    if not said.labels:
        return None
    if said.label is not None and said.label not in (LABEL_NAMES[0], ""):
        return find_column(file, header, said.label)
    for known in LABEL_NAMES:
        found = [n for n, name in enumerate(header) if name.casefold() == known and not said.may_lack(name)]
        if len(found) > 1:
            raise UsageError(f"{file}: {len(found)} columns {known!r} among {', '.join(header)}; exactly one is needed")
        if found:
            return found[0]
    return None


def find_unwanted(header: Sequence[str], said: Stated) -> list[int]:
    """The column with labels, if nobody wants any. It is no channel, in which a network would see the answer."""
    names = () if said.labels else ((said.label or LABEL_NAMES[0]).casefold(), *LABEL_NAMES)
    ours = {name.casefold(): n for n, name in enumerate(header) if not said.may_lack(name)}
    return [ours[name] for name in names if name in ours][:1]


def check_channels(file: Path, header: Sequence[str], channels: Sequence[int], taken: set[int | None]) -> None:
    names = [header[n] for n in channels]
    if twice := [name for name in names if names.count(name) > 1]:
        columns = header.count(twice[0])
        how = f"{columns} columns {twice[0]!r} among {', '.join(header)}" if columns > 1 else f"channels {names}"
        raise UsageError(f"{file}: {how}; each once is needed")
    if taken & set(channels):
        raise UsageError(f"{file}: channels {names}: neither the time nor the label is a channel")


def choose_channels(
    header: Sequence[str], rows: Sequence[Sequence[str]], decimal: str, taken: set[int | None]
) -> tuple[tuple[int, ...], list[int]]:
    """Numbers of the columns that have numbers, and of those that have none."""
    rest = [n for n, name in enumerate(header) if n not in taken and not NUMBERING.fullmatch(name)]

    def has_numbers(n: int) -> bool:
        cells = [row[n] for row in rows if row[n].strip().casefold() not in NO_NUMBER]
        return not cells or any(is_number(cell, decimal) for cell in cells)

    return tuple(n for n in rest if has_numbers(n)), [n for n in rest if not has_numbers(n)]


def is_number(text: str, decimal: str = ".") -> bool:
    """Is it a finite number as people write it? `1_000`, which Python takes, is none."""
    return bool(NUMBER.fullmatch(text.strip().replace(decimal, ".")))
