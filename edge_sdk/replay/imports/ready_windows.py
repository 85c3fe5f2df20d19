"""A folder of windows that are ready, in the form of UCI HAR, made streams again.

    train/Inertial Signals/CHANNEL_train.txt    a window in each row; of test/ alike
    train/y_train.txt, train/subject_train.txt  the class and the person of each window
    activity_labels.txt                         a number and a name in each row

Windows that follow each other there share half of their samples: where they do, they are one recording. How much time
lies between recordings is not told; here it is BREAK.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from edge_sdk.data.traces.form import Stated
from edge_sdk.data.traces.repairs import Repairs
from edge_sdk.data.traces.rows import Rows
from edge_sdk.errors import UsageError
from edge_sdk.replay.imports.recording import Recorded

SIGNALS = "Inertial Signals"
PARTS = ("train", "test")
RATE = 50.0
"""Samples per second of that data set, which its files do not tell."""
BREAK = 10.0

Floats = npt.NDArray[np.floating]


def is_ready_windows(folder: Path) -> bool:
    """Is this a folder of that form?"""
    return any((folder / part / SIGNALS).is_dir() for part in PARTS)


def read_ready_windows(folder: Path, said: Stated) -> Iterator[Recorded]:
    """Reads a folder: what each person recorded.

    Raises:
        UsageError: a file is missing, or has another number of rows than its neighbours; it names the file.
    """
    names = read_names(folder / "activity_labels.txt")
    for part in (part for part in PARTS if (folder / part / SIGNALS).is_dir()):
        channels, x = read_signals(folder / part / SIGNALS, part)
        y, persons = (read_whole(folder / part / f"{kind}_{part}.txt", len(x)) for kind in ("y", "subject"))
        for person in np.unique(persons):
            own = persons == person
            repairs = Repairs(folder, said.strict)
            repairs.note(f"windows of {x.shape[2]} samples made streams again, at {RATE:g} Hz and {BREAK:g} s apart")
            rows = join_windows(x[own], y[own], channels, names)
            yield Recorded(f"subject-{person:02d}", folder, rows, repairs, "0", dated=False)


def read_names(file: Path) -> dict[int, str]:
    """Number of a class -> its name, in lower case as traces have them."""
    try:
        rows = [line.split(maxsplit=1) for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
        return {int(number): name.strip().lower() for number, name in rows}
    except (OSError, ValueError) as error:
        raise UsageError(f"{file}: {error}; expected a number and a name in each line") from error


def read_signals(folder: Path, part: str) -> tuple[tuple[str, ...], Floats]:
    """Names of the channels, and windows (N, c, samples)."""
    files = sorted(folder.glob(f"*_{part}.txt"))
    if not files:
        raise UsageError(f"{folder}: no file CHANNEL_{part}.txt")
    found = [read_numbers(file) for file in files]
    for file, numbers in zip(files, found, strict=True):
        if numbers.shape != found[0].shape:
            raise UsageError(f"{file}: {numbers.shape} numbers, {files[0].name} has {found[0].shape}")
    return tuple(file.stem.removesuffix(f"_{part}") for file in files), np.stack(found, 1)


def read_numbers(file: Path) -> Floats:
    try:
        return np.loadtxt(file, ndmin=2)
    except (OSError, ValueError, UnicodeDecodeError) as error:
        raise UsageError(f"{file}: {error}; expected rows of numbers") from error


def read_whole(file: Path, count: int) -> npt.NDArray[np.int64]:
    """A whole number for each window."""
    found = read_numbers(file).ravel()
    if len(found) != count or (found != np.round(found)).any():
        raise UsageError(f"{file}: {len(found)} numbers; expected a whole one for each of {count} windows")
    return found.astype(np.int64)


def join_windows(x: Floats, y: npt.NDArray[np.int64], channels: tuple[str, ...], names: dict[int, str]) -> Rows:
    """One person's windows (N, c, samples) as a stream."""
    half = x.shape[2] // 2
    pieces, times, labels, at = list[Floats](), list[Floats](), list[npt.NDArray[np.int64]](), 0.0
    for n in range(len(x)):
        follows = n > 0 and y[n] == y[n - 1] and np.array_equal(x[n, :, :half], x[n - 1, :, -half:])
        piece = x[n, :, half:] if follows else x[n]
        at += BREAK * (n > 0 and not follows)
        pieces.append(piece.T)
        times.append(at + np.arange(piece.shape[1]) / RATE)
        labels.append(np.full(piece.shape[1], y[n]))
        at = float(times[-1][-1]) + 1 / RATE
    numbers, codes = np.unique(np.concatenate(labels), return_inverse=True)
    words = [names.get(int(number), f"class {number}") for number in numbers]
    values, time = np.concatenate(pieces).astype(np.float32), np.round(np.concatenate(times), 6)
    line = np.arange(1, len(time) + 1, dtype=np.int32)
    return Rows(time, values, channels, codes.astype(np.int32), words, line)
