"""Columns of a table as arrays and recordings of devices, of pandas, polars or a dictionary."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from edge_sdk.errors import UsageError

Columns = Mapping[str, npt.NDArray[Any]]


def columns_of(frame: Any) -> Columns:
    """Name -> values (N,), in the order of the table."""
    names = list(frame.keys()) if isinstance(frame, Mapping) else list(frame.columns)
    return {str(name): np.asarray(frame[name]) for name in names}


def check_columns(columns: Columns, *needed: str) -> None:
    """Raises UsageError for a column that is missing."""
    if missing := [name for name in needed if name not in columns]:
        raise UsageError(f"from_frame: no column {missing[0]!r}; there are {', '.join(columns)}")


def numbers_of(columns: Columns, *others: str) -> dict[str, npt.NDArray[Any]]:
    """The columns that are numbers: all but some.

    Raises:
        UsageError: one is not, or there is none.
    """
    found = {name: values for name, values in columns.items() if name not in others}
    for name, values in found.items():
        if values.dtype.kind not in "fiub":
            raise UsageError(f"from_frame: column {name!r} is {values.dtype}, expected numbers; drop it, or code it")
    if not found:
        raise UsageError(f"from_frame: beside {', '.join(others)} there is no column of numbers")
    return found


def sample_columns(columns: Columns, by: str, label: str) -> dict[str, tuple[npt.NDArray[Any], npt.NDArray[Any]]]:
    """Device -> features (N, F) and labels (N,), a sample for each row."""
    check_columns(columns, by, label)
    x = np.stack([v.astype(np.float32) for v in numbers_of(columns, by, label).values()], axis=1)
    return {str(one): (x[columns[by] == one], columns[label][columns[by] == one]) for one in np.unique(columns[by])}


def write_recordings(columns: Columns, by: str, label: str, time: str) -> tuple[str, Callable[[Path], None]]:
    """The hash of a table of readings, and what writes a trace of each device into a folder."""
    check_columns(columns, by, label, time)
    numbers = numbers_of(columns, by, label, time)
    found = hashlib.sha256(f"{by}\0{label}\0{time}".encode())
    for name, values in columns.items():
        found.update(f"{name}\0{values.dtype}\0".encode())
        found.update("\0".join(map(str, values.tolist())).encode())

    def write(folder: Path) -> None:
        for one in np.unique(columns[by]):
            rows = columns[by] == one
            kept = [columns[time][rows], *(v[rows] for v in numbers.values()), columns[label][rows]]
            with (folder / f"{one}.csv").open("w", newline="", encoding="utf-8") as file:
                writer = csv.writer(file)
                writer.writerow(["time", *numbers, "activity"])
                writer.writerows(zip(*(values.tolist() if values.dtype.kind != "M" else values.astype(str)
                                       for values in kept), strict=True))  # fmt: skip

    return found.hexdigest(), write
