"""Tables of Parquet and Arrow (Feather) as rows; pyarrow reads them, on a workstation.

Columns are read one after the other, and block by block: those of a day are never held twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from edge_sdk.data.traces.cells import EXACT, FLOAT32_MAX
from edge_sdk.data.traces.form import NUMBERING, Stated, find_column, find_label, find_time
from edge_sdk.data.traces.read import SINCE_1970
from edge_sdk.data.traces.repairs import Repairs
from edge_sdk.data.traces.rows import Rows
from edge_sdk.data.traces.times import find_dates, find_unit, find_zone, from_local, has_zone
from edge_sdk.errors import UsageError
from edge_sdk.label_names import JOIN, NONE
from edge_sdk.replay.imports.recording import Recorded, check_numbers

LOOK = 40
"""Rows that are looked at to know how times are written."""
BLOCK, BUFFER = 1 << 18, 1 << 20
"""Rows that are converted at once, and bytes that are read at once."""


def read_columns_file(path: Path, name: str, said: Stated) -> Iterator[Recorded]:
    """Reads a file of Parquet (`.parquet`) or Arrow (`.feather`, `.arrow`); a device for each value of the column `by`.

    Raises:
        UsageError: pyarrow is not installed, the file cannot be read, or has no columns of times and numbers.
    """
    table = open_table(path)
    check_numbers(path, table.rows, len(table.header))
    repairs = Repairs(path, said.strict)
    header = table.header
    time_at, unit = find_time(path, header, said)
    label_at, by_at = find_label(path, header, said), None if said.by is None else find_column(path, header, said.by)
    time, start, dated, zoned = read_time(table, time_at, said, unit, repairs)
    nothing = np.zeros(len(time), np.int32), [""]
    labels, texts = nothing if label_at is None else texts_of(table, label_at, said.separator)
    if label_at is None and said.labels and not said.targets:
        repairs.doubt(f"no label column among {', '.join(header)}: no sample has a label")
    of_device, devices = nothing if by_at is None else texts_of(table, by_at)
    names, values = read_channels(table, said, {time_at, label_at, by_at}, repairs)
    rows = Rows(time, values, names, labels, texts, np.arange(1, len(time) + 1, dtype=np.int32))
    del time, values, labels  # whoever has the rows puts them right in place
    places = sorted(np.flatnonzero(np.bincount(of_device, minlength=len(devices))).tolist(), key=devices.__getitem__)
    for place in places:
        one = Repairs(path, said.strict)
        one.notes, one.found = list(repairs.notes), dict(repairs.found)
        device = str(devices[place]) or name
        yield Recorded(device, path, rows_of(rows, of_device, place, len(places)), one, start, dated, zoned)


def rows_of(rows: Rows, of_device: npt.NDArray[np.int32], place: int, devices: int) -> Rows:
    """The rows of a device, with the words that it has; all there are where there is one device."""
    own = rows
    if devices > 1:
        chosen = of_device == place
        own = Rows(
            rows.time[chosen], rows.values[chosen], rows.channels, rows.codes[chosen], rows.words, rows.line[chosen]
        )
    used = np.flatnonzero(np.bincount(own.codes, minlength=len(rows.words)))
    if len(used) < len(rows.words):
        number = np.zeros(len(rows.words), np.int32)
        number[used] = np.arange(len(used))
        own.codes, own.words = number[own.codes], [rows.words[n] for n in used]
    return own


@dataclass(frozen=True)
class ColumnsFile:
    """A file of columns that is open.

    Attributes:
        path: of the file.
        rows: that it has.
        schema: of pyarrow: names and types.
        batches: parts of rows of the columns of a name, each an array of pyarrow.
    """

    path: Path
    rows: int
    schema: Any
    batches: Callable[[str], Iterator[Any]]

    @property
    def header(self) -> list[str]:
        """Names of the columns."""
        return [str(name) for name in self.schema.names]

    def parts(self, place: int) -> Iterator[Any]:
        """A column, in arrays of some rows each."""
        import pyarrow

        name = self.schema.names[place]
        try:
            for batch in self.batches(name):
                same = [n for n, other in enumerate(batch.schema.names) if other == name]
                yield batch.column(same[self.schema.names[:place].count(name)])
        except (pyarrow.ArrowException, OSError) as error:
            raise UsageError(f"{self.path}: cannot be read as {self.path.suffix.lstrip('.')}: {error}") from error
        pyarrow.default_memory_pool().release_unused()


def open_table(path: Path) -> ColumnsFile:
    """The columns of a file."""
    try:
        import pyarrow.feather
        import pyarrow.parquet
    except ModuleNotFoundError as error:
        raise UsageError(f"{path}: reading it needs pyarrow: pip install 'auscult[files]'") from error
    try:
        if path.suffix == ".parquet":
            file = pyarrow.parquet.ParquetFile(path, pre_buffer=False, buffer_size=BUFFER)
            of_name = lambda name: file.iter_batches(BLOCK, columns=[name], use_threads=False)  # noqa: E731
            return ColumnsFile(path, file.metadata.num_rows, file.schema_arrow, of_name)
        table = pyarrow.feather.read_table(path)
        return ColumnsFile(path, table.num_rows, table.schema, lambda _: iter(table.to_batches(BLOCK)))
    except (pyarrow.ArrowException, OSError) as error:
        raise UsageError(f"{path}: cannot be read as {path.suffix.lstrip('.')}: {error}") from error


def texts_of(table: ColumnsFile, place: int, separator: str = JOIN) -> tuple[npt.NDArray[np.int32], list[str]]:
    """Texts of a column: their numbers (n,), and each text once; "" where there is nothing. Lists are sets of labels,
    with this sign between them."""
    import pyarrow

    words = dict[str, int]()
    codes, at = np.empty(table.rows, np.int32), 0
    for chunk in table.parts(place):
        if not (pyarrow.types.is_nested(chunk.type) or pyarrow.types.is_dictionary(chunk.type)):
            chunk = chunk.dictionary_encode()
        if pyarrow.types.is_dictionary(chunk.type):
            own = [words.setdefault(text_of(v, separator), len(words)) for v in [*chunk.dictionary.to_pylist(), None]]
            numbers = chunk.indices.fill_null(len(own) - 1).to_numpy(zero_copy_only=False)
            codes[at : at + len(chunk)] = np.array(own, np.int32)[numbers]
        else:
            values = (text_of(v, separator) for v in chunk.to_pylist())
            codes[at : at + len(chunk)] = [words.setdefault(text, len(words)) for text in values]
        at += len(chunk)
    return codes, list(words)


def text_of(value: Any, separator: str) -> str:
    """The text of a cell."""
    if isinstance(value, list):
        return separator.join(map(str, value)) or NONE
    return "" if value is None else str(value)


def read_time(
    table: ColumnsFile, place: int, said: Stated, unit: str | None, repairs: Repairs
) -> tuple[npt.NDArray[np.float64], str, bool, bool]:
    """Seconds, NaN where there are none; the first one as text; are they since 1970, and of a known zone?"""
    import pyarrow

    kind, looked = table.schema.field(place).type, list[Any]()
    for part in table.parts(place):
        looked += part.slice(0, LOOK - len(looked)).to_pylist()
        if len(looked) >= LOOK:
            break
    first = str(next((v for v in looked if v is not None), ""))
    if pyarrow.types.is_integer(kind) or pyarrow.types.is_floating(kind):
        time = gather(table, place, numbers_of)
        factor, note = find_unit(table.path, [str(v) for v in time[:LOOK]], ".", said.unit or unit)
        repairs.notes += [note] if note else []
        time *= factor or 1.0
        return time, first, bool(len(time) and time[0] > SINCE_1970), True
    if pyarrow.types.is_timestamp(kind):
        time, local = gather(table, place, seconds_of), kind.tz is None
    else:
        convert, note = find_dates(table.path, 1, [str(value or "") for value in looked], said)
        repairs.notes += [note] if note else []
        time = gather(table, place, lambda part: convert([str(value or "") for value in part.to_pylist()]))
        local = not has_zone(first)
    lost = np.flatnonzero(~np.isfinite(time)) + 1
    repairs.add("no time", "left out", lost)
    if local and said.zone is not None:
        time, _ = from_local(time, find_zone(said.zone))
    return time, first, True, not local or said.zone is not None


def gather(
    table: ColumnsFile, place: int, convert: Callable[[Any], npt.NDArray[np.float64]]
) -> npt.NDArray[np.float64]:
    """Numbers (n,) of a column, converted part by part."""
    found, at = np.empty(table.rows, np.float64), 0
    for part in table.parts(place):
        found[at : at + len(part)] = convert(part)
        at += len(part)
    return found


def numbers_of(part: Any) -> npt.NDArray[np.float64]:
    """Numbers of a part of a column; NaN where there is none."""
    import pyarrow

    return np.asarray(part.cast(pyarrow.float64(), safe=False).to_numpy(zero_copy_only=False), np.float64)


def seconds_of(part: Any) -> npt.NDArray[np.float64]:
    """Seconds of timestamps since 1970; NaN where there is none."""
    import pyarrow

    stamps = part.cast(pyarrow.timestamp("us", part.type.tz), safe=False).to_numpy(zero_copy_only=False)
    whole = stamps.astype("M8[us]")
    return np.where(np.isnat(whole), np.nan, whole.astype(np.int64) / 1e6)


def read_channels(
    table: ColumnsFile, said: Stated, taken: set[int | None], repairs: Repairs
) -> tuple[tuple[str, ...], npt.NDArray[np.float32]]:
    """Names of the channels, and their values (n, c); NaN where there is nothing."""
    header = table.header
    if said.channels is not None:
        places = [find_column(table.path, header, name) for name in said.channels]
    else:
        places = [n for n, name in enumerate(header) if n not in taken and not NUMBERING.fullmatch(name)]
    kinds = {n: table.schema.field(n).type for n in places}
    for n in [n for n in places if not has_numbers(kinds[n])]:
        repairs.note(f"column {header[n]} left out, it has no numbers ({kinds[n]})")
        places.remove(n)
    if not places:
        raise UsageError(f"{table.path}: no column of numbers beside the time among {', '.join(header)}")
    found = np.empty((table.rows, len(places)), np.float32)
    for place, n in enumerate(places):
        at, inexact = 0, False
        for part in table.parts(n):
            wide = numbers_of(part)
            wide = np.where(np.abs(wide) <= FLOAT32_MAX, wide, np.nan)
            own = found[at : at + len(wide), place]
            own[:] = wide
            inexact |= bool(((np.abs(wide) > EXACT) & (own != wide)).any())
            at += len(wide)
        if inexact:
            repairs.doubt(f"channel {header[n]}: numbers above 2^24 lose their last digits in float32")
    return tuple(header[n] for n in places), found


def has_numbers(kind: Any) -> bool:
    """Are these what a channel may have?"""
    import pyarrow

    return bool(pyarrow.types.is_integer(kind) or pyarrow.types.is_floating(kind) or pyarrow.types.is_boolean(kind))
