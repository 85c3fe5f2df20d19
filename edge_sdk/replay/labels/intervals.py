"""Labels by intervals: from when to when each holds, as annotations and files beside recordings say it.

Such a file has a row for each interval: when it begins, when it ends or how long it lasts (neither: until the next
one), and its label.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt

from edge_sdk.data.ordered import find_median
from edge_sdk.data.traces.folder import name_of
from edge_sdk.data.traces.form import TRIED, UNITS, Stated, find_column, find_decimal, header_at, split_line, split_unit
from edge_sdk.data.traces.labels import LABEL_NAMES, is_missing
from edge_sdk.data.traces.read import SINCE_1970
from edge_sdk.data.traces.repairs import Repairs
from edge_sdk.data.traces.rows import Rows
from edge_sdk.data.traces.text import look_encoding, open_lines
from edge_sdk.data.traces.times import find_dates, find_unit, find_zone, from_local, has_zone
from edge_sdk.errors import UsageError
from edge_sdk.label_names import NONE, clean_label, label_key, write_set

BEGINS = ("start", "begin", "began", "begins", "onset", "from", "start_time", "time", "timestamp")
ENDS = ("end", "ended", "ends", "stop", "offset", "to", "until", "end_time")
LASTS = ("duration", "length", "lasts")
NAMES = (*LABEL_NAMES, "stage", "description", "note", "name")
"""Names of columns, the likely ones first; a unit may follow."""
OTHER_UNITS = (
    "sec",
    "secs",
    "second",
    "seconds",
    "msec",
    "min",
    "mins",
    "minute",
    "minutes",
    "h",
    "hr",
    "hour",
    "hours",
)
"""Units that people write and that are not read: without a word, such a column would be none of when labels end."""
SIGNS = ("\t", ";", "|", ",")
LIMIT = 64 * 2**20
"""Characters of a file."""
MOST_AT_ONCE = 64
"""Labels of one set."""
BLOCK = 1 << 18
"""Rows that are labelled at once."""

Span = tuple[float, float, str]
"""Seconds at which a label begins, and ends (which is not in it), and the label."""


def set_apart(source: Path, found: list[tuple[str, Path]], said: Stated) -> tuple[list[tuple[str, Path]], IntervalsOf]:
    """The recordings among files, each with the name of its device, and what files of intervals say of them.

    Raises:
        UsageError: no file has such a name, or all have; one cannot be read, or has no recording beside it.
    """
    if not said.intervals:
        return found, {}
    files = [path for _, path in found if fnmatchcase(path.name, said.intervals)]
    others = [one for one in found if one[1] not in files]
    if not files or not others:
        what = f"none of {len(found)} files is" if others else "every file is"
        raise UsageError(f"{source}: {what} named {said.intervals!r}; such files say labels of the recordings beside")
    read = {file: read_intervals(file, said) for file in files}
    matched = match_intervals([path for _, path in others], files)
    return others, {path: [read[file] for file in own] for path, own in matched.items()}


def match_intervals(recordings: Sequence[Path], files: Sequence[Path]) -> dict[Path, list[Path]]:
    """The files of intervals of each recording: those of its folder whose names begin with its own; a file whose name
    begins with none is of all recordings in the folder.

    Raises:
        UsageError: a file has no recording beside it.
    """
    found = dict[Path, list[Path]]()
    for file in files:
        near = [path for path in recordings if path.parent == file.parent]
        if not near:
            raise UsageError(f"{file}: no recording beside it, in {file.parent}, has the labels that it says")
        own = [path for path in near if begins_with(file.name, name_of(path))]
        for path in [max(own, key=lambda one: len(name_of(one)))] if own else near:
            found.setdefault(path, []).append(file)
    return found


def begins_with(text: str, start: str) -> bool:
    """Does a text begin with another one, after which its word or number ends?"""
    return text.startswith(start) and not text[len(start) :][:1].isalnum()


@dataclass
class Intervals:
    """What one file of intervals says.

    Attributes:
        file: that says it.
        spans: in the order of the file.
        dated: are its times seconds since 1970? Else they may be since the start of a recording.
        notes: what was guessed.
        used: its intervals that lie within some recording so far.
    """

    file: Path
    spans: tuple[Span, ...]
    dated: bool
    notes: tuple[str, ...] = ()
    used: int = 0

    def label(self, name: str, rows: Rows, dated: bool, repairs: Repairs, sets: bool) -> None:
        """Labels the rows of a recording. `dated`: are their times seconds since 1970?

        Raises:
            UsageError: the file has dates and the recording has none, or under `strict` several labels hold at once.
        """
        known = rows.time[np.isfinite(rows.time)]
        first, last = (float(known.min()), float(known.max())) if len(known) else (0.0, 0.0)
        if self.dated and not dated:
            raise UsageError(f"{self.file}: has dates, and the recording {name} has none")
        since = first if dated and not self.dated else 0.0
        spans = [(began + since, ended + since, text) for began, ended, text in self.spans]
        own = [span for span in spans if span[0] <= last and span[1] > first]
        self.used += len(own)
        for note in self.notes * bool(own):
            repairs.note(note)
        if since and own:
            repairs.note(f"times of {self.file.name} are taken as seconds since the recording's start")
        if own:
            repairs.note(f"labels are of intervals in a file beside ({len(own)} of {self.file.name})")
            label_rows(rows, own, repairs, sets)


IntervalsOf = dict[Path, list[Intervals]]
"""Of recordings, by their files."""


def read_intervals(file: Path, said: Stated) -> Intervals:
    """Reads a file of intervals.

    Raises:
        UsageError: it cannot be read, a column is missing, or a cell is no time; with the line.
    """
    header, rows, decimal = read_cells(file, said)
    begins, unit = named_column(header, BEGINS if said.time is None else (said.time.casefold(),))
    ends, end_unit = named_column(header, ENDS)
    lasts, lasts_unit = named_column(header, LASTS) if ends is None else (None, None)
    if ends is None and lasts is None:
        refuse_units(file, header)
    if begins is None:
        raise UsageError(f"{file}: no column of when each begins among {', '.join(header)}; expected start, end, label")
    labels = find_label_column(file, header, {begins, ends, lasts}, said)
    notes = list[str]()
    times, dated = read_times(file, rows, [begins] if ends is None else [begins, ends], decimal, said, unit or end_unit)
    began = times[:, 0]
    if ends is not None:
        ended = times[:, 1]
    elif lasts is not None:
        factor = UNITS[lasts_unit or "s"]
        ended = began + factor * np.array([number(file, line, row[lasts], decimal) for line, row in rows])
    else:
        usual = find_median(np.diff(began)) if len(began) > 1 else 0.0
        ended = np.append(began[1:], began[-1] + usual)
        notes.append(f"each interval of {file.name} lasts until the next one begins, the last one {usual:g} s")
    bad = np.flatnonzero(~(ended > began))
    if len(bad):
        raise UsageError(f"{file} line {rows[bad[0]][0]}: it ends before it begins; expected start, end, label")
    texts = [clean_label(row[labels]) for _, row in rows]
    return Intervals(file, tuple(zip(began.tolist(), ended.tolist(), texts, strict=True)), dated, tuple(notes))


Lines = list[tuple[int, list[str]]]
"""Numbers of lines, and their cells."""


def read_cells(file: Path, said: Stated) -> tuple[list[str], Lines, str]:
    """The header of a file, its rows, and the decimal sign. UsageError: it is no table."""
    repairs = Repairs(file, said.strict)
    try:
        with open_lines(file, look_encoding(file), LIMIT, repairs) as found:
            lines = list(found)
    except (OSError, UnicodeError) as error:
        raise UsageError(f"{file}: cannot be read as a table of intervals ({error})") from error
    head = list(islice(lines, TRIED)) if len(lines) > 2 else [*lines, *lines[1:2] * 2]
    signs = [said.delimiter] if said.delimiter else SIGNS
    sign, at = next(((sign, at) for sign in signs for at in header_at(head, sign)), (",", 0))
    header = [name.strip() for name in split_line(lines[at], sign)] if lines else []
    rows = [(n, split_line(line, sign)) for n, line in enumerate(lines[at + 1 :], at + 2) if line.strip("\0\r\n ")]
    if not rows:
        raise UsageError(f"{file}: a header and no intervals; expected start, end, label")
    if short := next((n for n, row in rows if len(row) < len(header)), None):
        raise UsageError(
            f"{file} line {short}: fewer cells than the header's {len(header)}; expected start, end, label"
        )
    return header, rows, said.decimal or find_decimal([row for _, row in rows], sign)


def named_column(header: Sequence[str], names: Sequence[str]) -> tuple[int | None, str | None]:
    """Number of the column with the likeliest of some names, and the unit in its name; None: there is none."""
    found = [split_unit(name) for name in header]
    at = next((n for name in names for n, (other, _) in enumerate(found) if other == name), None)
    return at, None if at is None else found[at][1]


def refuse_units(file: Path, header: Sequence[str]) -> None:
    """Raises UsageError for a column of when labels end, or how long they last, in one of OTHER_UNITS."""
    for name in header:
        start, _, unit = split_unit(name)[0].rpartition("_")
        if start in (*ENDS, *LASTS) and unit in OTHER_UNITS:
            raise UsageError(f"{file}: column {name!r} has a unit that is not read; expected one of {', '.join(UNITS)}")


def find_label_column(file: Path, header: Sequence[str], taken: set[int | None], said: Stated) -> int:
    """The column that was named, else that with a likely name, else the only one that is left."""
    if said.label:
        return find_column(file, header, said.label)
    at = named_column(header, NAMES)[0]
    left = [n for n in range(len(header)) if n not in taken]
    if at is None and len(left) != 1:
        raise UsageError(f"{file}: no column with labels among {', '.join(header)}; name it with --label")
    return left[0] if at is None else at


def number(file: Path, line: int, cell: str, decimal: str) -> float:
    """The number in a cell. UsageError: it is none."""
    try:
        return float(cell.strip().replace(decimal, "."))
    except ValueError:
        raise UsageError(f"{file} line {line}: {cell!r:.60} is no number") from None


def read_times(
    file: Path, rows: Lines, columns: Sequence[int], decimal: str, said: Stated, unit: str | None
) -> tuple[npt.NDArray[np.float64], bool]:
    """Seconds (n, columns), in the clock of the file, and whether they are since 1970."""
    cells = [row[column].strip() for _, row in rows for column in columns]
    factor, _ = find_unit(file, cells, decimal, said.unit or unit)
    if factor is not None:
        found = np.array([number(file, rows[n // len(columns)][0], cell, decimal) for n, cell in enumerate(cells)])
        found = found * factor
    else:
        found = find_dates(file, rows[0][0], cells, said)[0](cells)
        if len(bad := np.flatnonzero(~np.isfinite(found))):
            raise UsageError(f"{file} line {rows[bad[0] // len(columns)][0]}: {cells[bad[0]]!r:.60} is no time")
        if said.zone is not None and not any(map(has_zone, cells)) and "%z" not in (said.time_form or ""):
            found, _ = from_local(found, find_zone(said.zone))
    return found.reshape(-1, len(columns)), factor is None or bool(found[0] > SINCE_1970)


# Labels of rows ---------------------------------------------------------------------------------------------------
def label_rows(rows: Rows, spans: Sequence[Span], repairs: Repairs | None = None, sets: bool = False) -> None:
    """Labels the rows between two times (from the first on, before the second). Other rows keep what they have.

    Args:
        spans: where several hold, the later one counts.
        repairs: are told where several do.
        sets: where several hold, all count, as a set; NONE is the empty one.

    Raises:
        UsageError: several hold and nothing may be repaired, or a label cannot stand in a set.
    """
    edges = np.unique([at for began, ended, _ in spans for at in (began, ended)])
    there = held_between(edges, spans, sets)
    known = list(rows.words) or [""]
    words = {word: n for n, word in enumerate(known)}
    texts = [text for text, _ in there]
    for text in texts:
        if text not in words:
            words[text] = len(known)
            known.append(text)
    said = np.array([count > 0 for _, count in there] + [False], np.bool_)  # at -1, of what is before all of them, too
    several = np.array([count > 1 for _, count in there] + [False], np.bool_)
    table, rows.words = np.array([words[text] for text in texts] + [0], np.int32), known
    count = 0
    for at in range(0, len(rows.time) if len(edges) else 0, BLOCK):  # a day's rows need no memory of their own
        which = np.searchsorted(edges, rows.time[at : at + BLOCK], side="right") - 1
        rows.codes[at : at + BLOCK] = np.where(said[which], table[which], rows.codes[at : at + BLOCK])
        count += int(several[which].sum())
    if count and repairs is not None and not sets:
        repairs.doubt(f"{count} rows have several labels at once: the later one counts (--sets keeps all, as af+pvc)")


def held_between(edges: npt.NDArray[np.float64], spans: Sequence[Span], sets: bool) -> list[tuple[str, int]]:
    """What holds from each edge (n,) to the next one: its text, as of `label_rows`, and how many labels these are.

    Of spans that hold at an edge only labels are kept, each once: a file in which thousands of spans lie in each other
    is no larger here than another one.

    Raises:
        UsageError: more than MOST_AT_ONCE labels make one set, or one of them cannot stand in it.
    """
    begin: list[list[int]] = [[] for _ in edges]
    end: list[list[int]] = [[] for _ in edges]
    for n, (began, ended, _) in enumerate(spans):
        if began < ended:
            first, last = np.searchsorted(edges, [began, ended])
            begin[first].append(n)
            end[last].append(n)
    held, over, latest, found = Counter[str](), [False] * len(spans), list[int](), list[tuple[str, int]]()
    for begins, ends in zip(begin, end, strict=True):
        for n in ends:
            over[n] = True
            held[spans[n][2]] -= 1
            if not held[spans[n][2]]:
                del held[spans[n][2]]
        for n in begins:
            held[spans[n][2]] += 1
            heapq.heappush(latest, -n)
        while latest and over[-latest[0]]:
            heapq.heappop(latest)
        if sets and len(held) > MOST_AT_ONCE:
            raise UsageError(
                f"{len(held)} labels hold at once, {sorted(held)[0]!r:.40} is one; expected {MOST_AT_ONCE} at most"
            )
        found.append(("" if not held else join(held) if sets else spans[-latest[0]][2], len(held)))
    return found


def join(labels: Iterable[str]) -> str:
    """Labels that hold at once as the text of a set; "": nobody has said any."""
    known = [text for text in labels if not is_missing(text)]
    return write_set(text for text in known if label_key(text) != NONE) if known else ""
