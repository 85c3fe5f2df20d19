"""Tables of Parquet and Arrow (Feather) as rows; pyarrow reads them, on a workstation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
from edge_sdk.replay.imports.recording import Recorded

LOOK = 40
"""Rows that are looked at to know how times are written."""


def read_columns_file(path: Path, name: str, said: Stated) -> Iterator[Recorded]:
    """Reads a file of Parquet (`.parquet`) or Arrow (`.feather`, `.arrow`); a device for each value of the column `by`.

    Raises:
        UsageError: pyarrow is not installed, the file cannot be read, or has no columns of times and numbers.
    """
    table = open_table(path)
    repairs = Repairs(path, said.strict)
    header = [str(column) for column in table.column_names]
    time_at, unit = find_time(path, header, said)
    label_at, by_at = find_label(path, header, said), None if said.by is None else find_column(path, header, said.by)
    time, start, dated, zoned = read_time(path, table.column(time_at), said, unit, repairs)
    names, values = read_channels(path, table, header, said, {time_at, label_at, by_at}, repairs)
    labels = (
        texts_of(table.column(label_at), said.separator) if label_at is not None else np.full(len(time), "", object)
    )
    if label_at is None:
        repairs.doubt(f"no label column among {', '.join(header)}: no sample has a label")
    devices = texts_of(table.column(by_at)) if by_at is not None else np.full(len(time), "", object)
    line = np.arange(1, len(time) + 1, dtype=np.int32)
    for device in np.unique(devices):
        own = devices == device
        words, codes = np.unique(labels[own], return_inverse=True)
        rows = Rows(time[own], values[own], names, codes.astype(np.int32), [str(word) for word in words], line[own])
        one = Repairs(path, said.strict)
        one.notes, one.found = list(repairs.notes), dict(repairs.found)
        yield Recorded(str(device) or name, path, rows, one, start, dated, zoned)


def open_table(path: Path) -> Any:
    """The table of a file."""
    try:
        import pyarrow.feather
        import pyarrow.parquet
    except ModuleNotFoundError as error:
        raise UsageError(f"{path}: reading it needs pyarrow: pip install 'auscult[files]'") from error
    try:
        if path.suffix == ".parquet":
            return pyarrow.parquet.read_table(path)
        return pyarrow.feather.read_table(path)
    except (pyarrow.ArrowException, OSError) as error:
        raise UsageError(f"{path}: cannot be read as {path.suffix.lstrip('.')}: {error}") from error


def texts_of(column: Any, separator: str = JOIN) -> npt.NDArray[np.object_]:
    """Texts of a column; "" where there is nothing. Lists are sets of labels, with this sign between them."""
    values: list[Any] = column.to_pylist()
    texts = [
        separator.join(map(str, v)) or NONE if isinstance(v, list) else "" if v is None else str(v) for v in values
    ]
    return np.array(texts, object)


def read_time(
    path: Path, column: Any, said: Stated, unit: str | None, repairs: Repairs
) -> tuple[npt.NDArray[np.float64], str, bool, bool]:
    """Seconds, NaN where there are none; the first one as text; are they since 1970, and of a known zone?"""
    import pyarrow

    kind, first = column.type, str(next((v for v in column.slice(0, LOOK).to_pylist() if v is not None), ""))
    if pyarrow.types.is_timestamp(kind):
        whole = column.cast(pyarrow.timestamp("us", kind.tz), safe=False).to_numpy().astype("M8[us]")
        time = np.where(np.isnat(whole), np.nan, whole.astype(np.int64) / 1e6)
        local = kind.tz is None
    elif pyarrow.types.is_integer(kind) or pyarrow.types.is_floating(kind):
        numbers = column.cast(pyarrow.float64(), safe=False).to_numpy()
        factor, note = find_unit(path, [str(v) for v in numbers[:LOOK]], ".", said.unit or unit)
        repairs.notes += [note] if note else []
        time, local = numbers * (factor or 1.0), False
        return time, first, bool(len(time) and time[0] > SINCE_1970), True
    else:
        cells = [str(value or "") for value in column.to_pylist()]
        convert, note = find_dates(path, 1, cells[:LOOK], said)
        repairs.notes += [note] if note else []
        time, local = convert(cells), not has_zone(first)
    lost = np.flatnonzero(~np.isfinite(time)) + 1
    repairs.add("no time", "left out", lost)
    if local and said.zone is not None:
        time, _ = from_local(time, find_zone(said.zone))
    return time, first, True, not local or said.zone is not None


def read_channels(
    path: Path, table: Any, header: Sequence[str], said: Stated, taken: set[int | None], repairs: Repairs
) -> tuple[tuple[str, ...], npt.NDArray[np.float32]]:
    """Names of the channels, and their values (n, c); NaN where there is nothing."""
    import pyarrow

    if said.channels is not None:
        places = [find_column(path, header, name) for name in said.channels]
    else:
        places = [n for n, name in enumerate(header) if n not in taken and not NUMBERING.fullmatch(name)]
    found, names = list[npt.NDArray[np.float32]](), list[str]()
    for n in places:
        kind = table.schema.field(n).type
        if not (pyarrow.types.is_integer(kind) or pyarrow.types.is_floating(kind) or pyarrow.types.is_boolean(kind)):
            repairs.note(f"column {header[n]} left out, it has no numbers ({kind})")
            continue
        wide = table.column(n).cast(pyarrow.float64(), safe=False).to_numpy()
        wide = np.where(np.abs(wide) <= FLOAT32_MAX, wide, np.nan)
        narrow = wide.astype(np.float32)
        if ((np.abs(wide) > EXACT) & (narrow != wide)).any():
            repairs.doubt(f"channel {header[n]}: numbers above 2^24 lose their last digits in float32")
        found.append(narrow)
        names.append(header[n])
    if not found:
        raise UsageError(f"{path}: no column of numbers beside the time among {', '.join(header)}")
    return tuple(names), np.stack(found, 1)
