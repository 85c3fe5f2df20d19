"""Lines of a file as arrays, a block at a time: that bounds the memory, and is converted at the speed of C.

Where a block cannot be converted at once, its cells are gone through one by one: what cannot be read is NaN, a row of
another length is left out, and both are counted with their lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from math import isfinite
from typing import Any

import numpy as np
import numpy.typing as npt

from edge_sdk.data.traces.form import NO_NUMBER, Form, is_number, split_line
from edge_sdk.data.traces.repairs import Repairs
from edge_sdk.data.traces.times import Convert
from edge_sdk.errors import UsageError

BLOCK = 4096
"""Lines that are converted at once."""
LONGEST_TEXT = 4096
"""Characters of a label or of a device's name: each row of a block takes as much memory as the longest."""
WIDTH = 64
"""Characters of a text that is converted at once."""
LEFT_OUT = "left out"
FLOAT32_MAX = float(np.finfo(np.float32).max)
EXACT = 2.0**24
"""Whole numbers above it are not all in float32."""

Texts = npt.NDArray[np.str_]


@dataclass(frozen=True, eq=False)
class Block:
    """Rows of a file.

    Attributes:
        time: float64 (n,), in the file's unit or seconds since 1970; NaN where there is none.
        values: float64 (n, c); NaN where there is no number.
        labels, by: texts (n,) as they are written; "" where the file has no such column.
        line: int64 (n,), numbers of their lines.
    """

    time: npt.NDArray[np.float64]
    values: npt.NDArray[np.float64]
    labels: Texts
    by: Texts
    line: npt.NDArray[np.int64]


def read_blocks(lines: Iterable[str], form: Form, convert: Convert | None, repairs: Repairs) -> Iterator[Block]:
    """Reads all rows.

    Args:
        lines: those after the header.
        convert: texts of the time column to seconds; None: they are numbers.
    """
    at, stream = form.first, iter(lines)
    before: str | None = None
    while block := list(islice(stream, BLOCK)):
        found = convert_block(block, at, form, convert)
        if found is None:
            found = convert_cells(block, at, form, convert, repairs, before)
        elif not block[-1].endswith("\n"):
            found = drop_cut_label(found, before, repairs)
        if len(found.labels):
            before = str(found.labels[-1])
        at += len(block)
        yield found


def convert_block(block: list[str], at: int, form: Form, convert: Convert | None) -> Block | None:
    """Converts lines at once; None: they are not all alike, or not all numbers. An empty cell of a channel is NaN."""
    if not block[0].strip():
        return None
    lines = [line.replace(",", ".") for line in block] if form.decimal == "," else block
    rows = load_rows(lines, form, convert)
    if rows is None and form.delimiter != " ":
        rows = load_rows(fill_cells(lines, form.delimiter), form, convert)
    if rows is None:
        return None
    labels, by = (np.ascontiguousarray(column_of(rows, n)) for n in (form.label, form.by))
    if len(rows) != len(block) or is_wide(labels) or is_wide(by):
        return None  # blank lines, cells over several lines, or texts that have been cut
    if form.decimal == "," and any(np.char.find(text, ".").max() >= 0 for text in (labels, by)):
        return None  # was it a comma?
    values = np.stack([rows[f"c{n}"] for n in form.channels], 1)
    time = rows[f"c{form.time}"]
    if convert is not None:
        texts = time.tolist()
        if form.date is not None:
            texts = [f"{day} {text}" for day, text in zip(rows[f"c{form.date}"].tolist(), texts, strict=True)]
        time = convert(texts)
    held = (np.abs(values) <= FLOAT32_MAX) | np.isnan(values)
    if not (np.isfinite(time).all() and held.all()):
        return None
    return Block(np.ascontiguousarray(time), values, labels, by, np.arange(at, at + len(rows)))


def fill_cells(lines: list[str], sign: str) -> list[str]:
    """Lines in which a cell without anything says `nan`; those with signs in quotes stay as they are."""
    pair, filled = sign * 2, f"{sign}nan{sign}"
    return [
        line.replace(pair, filled).replace(pair, filled)
        if pair in line and not ('"' in line and any(pair in quoted for quoted in line.split('"')[1::2]))
        else line
        for line in lines
    ]


def load_rows(lines: list[str], form: Form, convert: Convert | None) -> npt.NDArray[Any] | None:
    """Rows with a field c0, c1 ... for each column, numbers or texts; None: they are not all alike."""
    kinds: list[Any] = ["U1"] * len(form.header)
    for n in form.channels:
        kinds[n] = "f8"
    for column in (form.label, form.by, form.date):
        if column is not None:
            kinds[column] = f"U{WIDTH}"
    kinds[form.time] = "f8" if convert is None else f"U{WIDTH}"
    sign = None if form.delimiter == " " else form.delimiter
    try:
        return np.loadtxt(
            lines,
            [(f"c{n}", kind) for n, kind in enumerate(kinds)],
            comments=None,
            delimiter=sign,
            quotechar='"',
            ndmin=1,
        )
    except ValueError:
        return None


def column_of(rows: npt.NDArray[Any], number: int | None) -> Texts:
    return np.zeros(len(rows), "U1") if number is None else rows[f"c{number}"]


def is_wide(texts: Texts) -> bool:
    """May a text have been cut?"""
    whole = np.ascontiguousarray(texts)
    return whole.dtype.itemsize == 4 * WIDTH and bool(whole.view(np.uint32).reshape(len(whole), -1)[:, -1].any())


def drop_cut_label(found: Block, before: str | None, repairs: Repairs) -> Block:
    """Leaves out a last row whose label is half of the one before: the file was cut there."""
    label = str(found.labels[-1])
    previous = str(found.labels[-2]) if len(found.labels) > 1 else before
    if not label or previous is None or label == previous or not previous.startswith(label):
        return found
    repairs.add("the file ends within this line", LEFT_OUT, found.line[-1:], label)
    return Block(*(getattr(found, name)[:-1] for name in ("time", "values", "labels", "by", "line")))


def convert_cells(
    block: list[str], at: int, form: Form, convert: Convert | None, repairs: Repairs, before: str | None
) -> Block:
    """Converts lines cell by cell."""
    rows, lines = list[list[str]](), list[int]()
    ragged: dict[int, list[tuple[int, str]]] = {}
    blank, cut, width = list[int](), list[tuple[int, str]](), len(form.header)
    for number, line in enumerate(block, at):
        text = line.strip("\0\r\n")
        cells = split_line(text, form.delimiter)
        if not text.strip("\0 ,;\t"):
            blank.append(number)
        elif "\0" in line and not line.strip("\r\n").endswith("\0"):
            ragged.setdefault(-1, []).append((number, text.replace("\0", "")))
        elif len(cells) == width or (len(cells) == width + 1 and not cells[-1].strip()):
            rows.append(cells)
            lines.append(number)
        elif (number == at + len(block) - 1 and not line.endswith("\n")) or "\0" in line:
            cut.append((number, text))
        else:
            own = text.split(form.delimiter, form.added)[-1]  # as it stands in the file
            ragged.setdefault(len(cells) - form.added, []).append((number, own))
    repairs.add("a line without anything", LEFT_OUT, blank)
    for count, found in sorted(ragged.items()):
        what = "bytes of zeros within the line" if count < 0 else f"{count} cells, expected {width - form.added}"
        repairs.add(what, LEFT_OUT, [number for number, _ in found], found[0][1])
    if cut:
        repairs.add("the file ends within this line", LEFT_OUT, [number for number, _ in cut], cut[0][1])
    made = read_columns(rows, np.array(lines, np.int64), form, convert, repairs)
    whole = block[-1].endswith("\n") or not lines or lines[-1] != at + len(block) - 1
    return made if whole else drop_cut_label(made, before, repairs)


def read_columns(
    rows: Sequence[Sequence[str]], lines: npt.NDArray[np.int64], form: Form, convert: Convert | None, repairs: Repairs
) -> Block:
    """Columns of rows that have all cells."""

    def texts(number: int | None) -> Texts:
        found = [""] * len(rows) if number is None else [row[number] for row in rows]
        long = next((n for n, text in enumerate(found) if len(text) > LONGEST_TEXT), None)
        if long is not None:
            raise UsageError(
                f"{repairs.file} line {lines[long]}: {found[long]!r:.40} has {len(found[long])} characters; "
                f"a label, or the name of a device, has {LONGEST_TEXT} at most"
            )
        return np.array(found, np.str_)

    times = [form.time_of(row) for row in rows]
    if convert is None:
        time = np.fromiter((read_number(cell, form.decimal) for cell in times), np.float64, len(rows))
    else:
        time = convert(times) if rows else np.zeros(0)
    tell_bad(times, ~np.isfinite(time), lines, "no time", repairs)
    values = np.empty((len(rows), len(form.channels)))
    for place, number in enumerate(form.channels):
        cells = [row[number] for row in rows]
        values[:, place] = np.fromiter((read_number(cell, form.decimal) for cell in cells), np.float64, len(rows))
        strange = np.array([cell.strip().casefold() not in NO_NUMBER for cell in cells], np.bool_)
        strange &= np.isnan(values[:, place])
        kept = number in form.targets
        what = f"column {form.header[number]} is no finite number"
        tell_bad(cells, strange, lines, what, repairs, "kept without one" if kept else LEFT_OUT)
        values[strange, place] = np.nan if kept else np.inf  # told already; `rows` leaves it out without a further word
    return Block(time, values, texts(form.label), texts(form.by), lines)


def read_number(cell: str, decimal: str) -> float:
    """A finite number that float32 can hold; NaN: it is none."""
    if not is_number(cell, decimal):
        return float("nan")
    found = float(cell.strip().replace(decimal, "."))
    return found if isfinite(found) and abs(found) <= FLOAT32_MAX else float("nan")


def tell_bad(
    cells: Sequence[str],
    bad: npt.NDArray[np.bool_],
    lines: npt.NDArray[np.int64],
    what: str,
    repairs: Repairs,
    done: str = LEFT_OUT,
) -> None:
    if bad.any():
        repairs.add(what, done, lines[bad], cells[int(np.argmax(bad))])
