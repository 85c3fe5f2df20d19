"""Traces as CSV, written fast: numbers with as few decimals as say exactly what they are."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
import numpy.typing as npt

from edge_sdk.data.traces import Trace

BLOCK = 1 << 14
"""Rows that are written at once."""
DECIMALS = (0, 1, 2, 3, 4, 6)


def write_trace(path: Path, trace: Trace, began: float | None) -> None:
    """Writes a trace that `read_trace` reads as the same one.

    Args:
        path: of the file, which is made anew.
        began: seconds since 1970 of its first sample; None: nobody knows, and times count from there.
    """
    words = [quote(word) for word in [*trace.classes, ""]]  # code -1 is the last of them
    with open(path, "w", encoding="utf-8", newline="") as file:
        file.write(",".join(quote(name) for name in ("time", *trace.channels, "activity")) + "\n")
        for at in range(0, len(trace.time), BLOCK):
            own = slice(at, at + BLOCK)
            time = trace.time[own] if began is None else np.round(began + trace.time[own], 6)
            file.write(format_rows(time, trace.values[own], [words[code] for code in trace.codes[own].tolist()]))


def format_rows(time: npt.NDArray[np.float64], values: npt.NDArray[np.float32], words: list[str]) -> str:
    """Lines of a block."""
    columns = [time, *values.T]
    forms = [find_format(column) for column in columns]
    width = len(columns) + 1
    flat: list[object] = [None] * (width * len(words))
    for n, column in enumerate(columns):
        flat[n::width] = column.tolist()
    flat[width - 1 :: width] = words
    return (",".join([*forms, "%s"]) + "\n") * len(words) % tuple(flat)


def find_format(column: npt.NDArray[np.floating]) -> str:
    """The format with the fewest decimals that says all numbers of a column exactly."""
    for decimals in DECIMALS:
        if (np.round(column.astype(np.float64), decimals).astype(column.dtype) == column).all():
            return f"%.{decimals}f"
    return "%.9g" if column.dtype == np.float32 else "%.17g"


def quote(text: str) -> str:
    """A cell of CSV."""
    row = io.StringIO()
    csv.writer(row, lineterminator="").writerow([text, ""])
    return row.getvalue().removesuffix(",")
