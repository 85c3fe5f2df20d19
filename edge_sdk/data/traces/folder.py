"""Several traces that are to be learned from together: same channels, same rate, one numbering of the classes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from edge_sdk.data.availability import SUFFIX
from edge_sdk.data.traces.read import LIMIT, UNLABELLED, Trace, read_trace
from edge_sdk.errors import UsageError

RATE_TOLERANCE = 0.05


def load_folder(
    path: str | Path | Iterable[str | Path],
    label: str = "activity",
    channels: Sequence[str] | None = None,
    *,
    limit: int = LIMIT,
) -> tuple[Trace, ...]:
    """Reads every `*.csv` of a folder (but files of availability), or the files of a list, sorted by name.

    Args:
        path: a folder, or files.
        label: name of the column with the labels.
        channels: names of the channel columns; None: all but `time` and `label`, which must then agree between files.
        limit: bytes per file.

    Returns:
        One trace per file. All have the same `classes`: the union of the labels, sorted.

    Raises:
        UsageError: no file, two files of one name, or two files whose channels or rates differ.
    """
    files = _find_files(path)
    traces = [read_trace(file, label, channels, limit=limit) for file in files]
    for file, trace in zip(files[1:], traces[1:], strict=True):
        _check_alike(files[0], traces[0], file, trace)
    classes = tuple(sorted({name for trace in traces for name in trace.classes}))
    return tuple(_recode(trace, classes) for trace in traces)


def _find_files(path: str | Path | Iterable[str | Path]) -> list[Path]:
    if isinstance(path, (str, Path)):
        if not Path(path).is_dir():
            raise UsageError(f"{path}: not a folder; expected a folder of CSV files or a list of files")
        found = [file for file in Path(path).glob("*.csv") if not file.name.endswith(SUFFIX)]
    else:
        found = [Path(file) for file in path]
    if not found:
        raise UsageError(f"{path}: no trace; one file NAME.csv per device is needed")
    files = sorted(found, key=lambda file: (file.stem, str(file)))
    for one, other in pairwise(files):
        if one.stem == other.stem:
            raise UsageError(f"{one} and {other} are both {one.stem!r}; that names the device: rename one")
    return files


def _check_alike(first: Path, one: Trace, file: Path, other: Trace) -> None:
    if other.channels != one.channels:
        raise UsageError(
            f"{file} has channels {', '.join(other.channels)} but {first} has {', '.join(one.channels)}; "
            "the same in the same order are needed (channels=... names them)"
        )
    if abs(other.rate_hz / one.rate_hz - 1) > RATE_TOLERANCE:
        raise UsageError(
            f"{file} has {other.rate_hz:.2f} samples per second but {first} has {one.rate_hz:.2f}; "
            f"one rate (within {RATE_TOLERANCE:.0%}) is needed: resample one of them"
        )


def _recode(trace: Trace, classes: tuple[str, ...]) -> Trace:
    place = np.array([*map(classes.index, trace.classes), UNLABELLED], np.int64)  # its last entry is that of code -1
    return replace(trace, codes=place[trace.codes], classes=classes)
