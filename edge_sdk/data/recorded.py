"""A trace of arrays, for recordings that a program has already read: put in order as those of files are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from edge_sdk.data.traces.cells import FLOAT32_MAX
from edge_sdk.data.traces.form import Stated
from edge_sdk.data.traces.read import Trace, make_trace
from edge_sdk.data.traces.repairs import Repairs
from edge_sdk.data.traces.rows import Rows
from edge_sdk.data.traces.times import find_unit
from edge_sdk.errors import UsageError


def trace_of_arrays(
    name: str,
    time: npt.ArrayLike,
    channels: Mapping[str, npt.ArrayLike],
    labels: Sequence[Any] | npt.NDArray[Any] | None = None,
    *,
    unit: str | None = None,
    missing: Sequence[str] = (),
    strict: bool = False,
) -> Trace:
    """A trace of arrays, such as the columns of a data frame.

    Args:
        name: of the device.
        time: (n,), numbers or datetime64 (as UTC).
        channels: name of a channel -> (n,) numbers; NaN where the sensor gave none.
        labels: n names; None, NaN or "" where nobody has said what was done. None: nowhere.
        unit: of times that are numbers: s, ms, us or ns; None: by their size.
        missing: further words that stand for no label.
        strict: refuse what would be put right.

    Returns:
        The trace; its `repairs` and `notes` say what was put right, by numbers of rows from 1.

    Raises:
        UsageError: arrays of other shapes or types, or too few rows; it names the array.
    """
    where, said = Path(name), Stated(unit=unit, missing=tuple(missing), strict=strict)
    repairs = Repairs(where, strict)
    seconds = seconds_of(where, np.asarray(time), unit, repairs)
    if not channels:
        raise UsageError(f"{name}: no channels; a name and an array for each are needed")
    columns = [column_of(name, channel, values, len(seconds)) for channel, values in channels.items()]
    texts = [""] * len(seconds) if labels is None else [text_of(label) for label in labels]
    if len(texts) != len(seconds):
        raise UsageError(f"{name}: {len(texts)} labels for {len(seconds)} times")
    words, codes = np.unique(np.array(texts, np.str_), return_inverse=True)
    line = np.arange(1, len(seconds) + 1, dtype=np.int32)
    rows = Rows(seconds, np.stack(columns, 1), tuple(channels), codes.astype(np.int32), words.tolist(), line)
    start = f"{seconds[0]:.6f}" if len(seconds) else ""
    return make_trace(name, rows, repairs, said, (), start)


def seconds_of(where: Path, time: npt.NDArray[Any], unit: str | None, repairs: Repairs) -> npt.NDArray[np.float64]:
    """Times as seconds, a copy; NaN where there is none."""
    if time.ndim != 1 or time.dtype.kind not in "iufM":
        raise UsageError(f"{where}: time is {time.dtype} {time.shape}; numbers or datetime64 (n,) are expected")
    if time.dtype.kind == "M":
        whole = time.astype("M8[us]")
        seconds = np.where(np.isnat(whole), np.nan, whole.astype(np.int64) / 1e6)
    else:
        factor, note = find_unit(where, [repr(float(value)) for value in time[:40]], ".", unit)
        repairs.notes += [note] if note else []
        seconds = time.astype(np.float64) * (factor or 1.0)
    repairs.add("no time", "left out", np.flatnonzero(~np.isfinite(seconds)) + 1)
    return seconds


def column_of(name: str, channel: str, values: npt.ArrayLike, count: int) -> npt.NDArray[np.float32]:
    """A channel as float32; NaN where that has no such number."""
    try:
        found = np.asarray(values).astype(np.float64)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{name}: channel {channel} is not of numbers: {error}") from error
    if found.shape != (count,):
        raise UsageError(f"{name}: channel {channel} is {found.shape}; ({count},) as the times are is expected")
    return np.where(np.abs(found) <= FLOAT32_MAX, found, np.nan).astype(np.float32)


def text_of(label: Any) -> str:
    """A label as text; "" where there is none."""
    return "" if label is None or label != label else str(label)
