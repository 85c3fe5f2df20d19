"""Traces as CSV, written fast: numbers with as few decimals as say exactly what they are."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
import numpy.typing as npt

from edge_sdk.data.traces.read import Trace

BLOCK = 1 << 14
"""Rows that are written at once."""
DECIMALS = (0, 1, 2, 3, 4, 6)


def write_trace(path: Path, trace: Trace, began: float | None, labels: bool = True) -> None:
    """Writes a trace that `read_trace` reads as the same one.

    Args:
        path: of the file, which is made anew.
        began: seconds since 1970 of its first sample; None: nobody knows, and times count from there.
        labels: write a column with them, also where no sample has one.
    """
    labels = labels or bool(trace.classes)
    words = [quote(word) for word in [*trace.classes, ""]]  # code -1 is the last of them
    with open(path, "w", encoding="utf-8", newline="") as file:
        file.write(",".join(quote(name) for name in ("time", *trace.channels, *["activity"] * labels)) + "\n")
        for at in range(0, len(trace.time), BLOCK):
            own = slice(at, at + BLOCK)
            time = trace.time[own] if began is None else np.round(began + trace.time[own], 6)
            named = [words[code] for code in trace.codes[own].tolist()] if labels else None
            file.write(format_rows(time, trace.values[own], named))


def format_rows(time: npt.NDArray[np.float64], values: npt.NDArray[np.float32], words: list[str] | None) -> str:
    """Lines of a block. `words`: labels; None: no column has any."""
    columns, labels = [time, *values.T], [] if words is None else [words]
    forms = [find_format(column) for column in columns]
    width = len(columns) + len(labels)
    flat: list[object] = [None] * (width * len(time))
    for n, column in enumerate([*(one.tolist() for one in columns), *labels]):
        flat[n::width] = column
    return (",".join([*forms, *["%s"] * len(labels)]) + "\n") * len(time) % tuple(flat)


def find_format(column: npt.NDArray[np.floating]) -> str:
    """The format with the fewest decimals that says all numbers of a column exactly; where it has none it says nan."""
    column = column[np.isfinite(column)] if column.dtype == np.float32 else column
    for decimals in DECIMALS:
        if (np.round(column.astype(np.float64), decimals).astype(column.dtype) == column).all():
            return f"%.{decimals}f"
    return "%.9g" if column.dtype == np.float32 else "%.17g"


def quote(text: str) -> str:
    """A cell of CSV."""
    row = io.StringIO()
    csv.writer(row, lineterminator="").writerow([text, ""])
    return row.getvalue().removesuffix(",")
