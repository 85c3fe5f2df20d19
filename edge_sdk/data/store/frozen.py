"""The samples of one run: what the store had when it began, in a file of its own that training reads by memory map.

A run's samples must not change while it lasts (a step that is repeated after a restart is to meet the same ones), and
the store's do. So they are copied once, as the model takes them; the copy goes when the run is over. Where windows are
encrypted at rest, the copy is in memory only, and made again after a restart of what the store has then.

    RUN.npy   float32 (N, channels, window), training samples first, among them last those for choices
    RUN.npz   their labels, times and numbers; written last, so without it there is no copy

Windows without a label are in files of their own, which only runs have that want them: frozen_unlabelled.py.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from edge_sdk.atomic import replace_file
from edge_sdk.data.npz import UNREADABLE
from edge_sdk.data.ordered import find_median
from edge_sdk.data.samples import Samples
from edge_sdk.data.store.index import overwrite
from edge_sdk.data.store.sample_store import SampleStore, StoredWindows
from edge_sdk.data.traces.split import split_off_validation
from edge_sdk.data.traces.windows import Windows

FOR_CHOICES = 0.25
"""Share of the training windows on which choices are made, in a run that makes some."""
MOST_JUDGED = 500
"""Windows on which two versions are compared beside a run: of one device a rollout counts fewer."""
Floats = npt.NDArray[np.float32]
Rows = npt.NDArray[np.intp]
Normalise = Callable[[Floats], Floats]
Choose = Callable[[SampleStore], StoredWindows]
T = TypeVar("T")

log = logging.getLogger("auscult.samples")


@dataclass(frozen=True, eq=False)
class FrozenSamples:
    """The samples of one run.

    Attributes:
        x: float32 (N, channels, window), training samples first; a memory map, or in memory.
        labels: N names.
        began, ended: float64 (N,), seconds since 1970.
        trained: number of the training samples.
        chosen: of these the last so many are for choices, in a run that makes some.
        recording: int64 (N,), the stretch of time of each; empty where no one asks.
    """

    x: Floats
    labels: tuple[str, ...]
    began: npt.NDArray[np.float64]
    ended: npt.NDArray[np.float64]
    trained: int
    chosen: int = 0
    recording: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))

    @property
    def train(self) -> Samples:
        """Samples to learn from, those for choices among them."""
        return self.part(0, self.trained)

    @property
    def apart(self) -> tuple[Samples, Samples]:
        """Samples to learn from, and those for choices: of a run that makes some."""
        end = self.trained - self.chosen
        return self.part(0, end), self.part(end, self.trained)

    def part(self, begin: int, end: int) -> Samples:
        return Samples(self.x[begin:end], self.labels[begin:end])

    @property
    def held_out(self) -> Samples:
        """Samples to be judged by."""
        return self.part(self.trained, len(self.x))

    def forget(self, began: float, ended: float) -> int:
        """Erase samples that have a moment in this stretch of time, also under a training that goes on: each becomes a
        copy of another of its class and part, with that one's times, or, where there is none, zeros. So the run keeps
        its numbers and labels.

        Returns:
            How many were erased.
        """
        gone = np.flatnonzero((self.ended >= began) & (self.began <= ended))
        alike: dict[tuple[str, int], list[int]] = {}
        for at in np.setdiff1d(np.arange(len(self.x)), gone).tolist():
            alike.setdefault((self.labels[at], self.part_of(at)), []).append(at)
        for at in gone.tolist():
            others = alike.get((self.labels[at], self.part_of(at)))
            like = others[at % len(others)] if others else None
            self.x[at] = 0 if like is None else self.x[like]
            times = (np.inf, -np.inf) if like is None else (self.began[like], self.ended[like])  # of nothing: no moment
            self.began[at], self.ended[at] = times
        if isinstance(self.x, np.memmap):
            save_times(self)
        return len(gone)

    def part_of(self, at: int) -> int:
        """0: to learn from, 1: for choices, 2: to be judged by."""
        return int(at >= self.trained - self.chosen) + int(at >= self.trained)


def freeze(
    store: SampleStore, directory: Path, run: str, normalise: Normalise, chosen: Choose = SampleStore.labelled
) -> FrozenSamples:
    """The samples of a run: those that were copied when it began, or else a copy that is made now.

    Args:
        normalise: windows (N, channels, window) -> as the model takes them.
        chosen: the store's windows that a run is to have; those with a label.
    """
    path = directory / f"{run}.npy"
    if store.cipher.name != "plain":
        return copy_windows_out(store, None, normalise, chosen)
    if (found := load_whole(path.with_suffix(".npz"), lambda: load_frozen(path))) is not None:
        return found
    drop_frozen(directory, "")
    made = copy_windows_out(store, path, normalise, chosen)
    save_note(path, made)
    return made


def copy_windows_out(store: SampleStore, path: Path | None, normalise: Normalise, chosen: Choose) -> FrozenSamples:
    """Copy the chosen windows, to a file or into memory. A window that is damaged or gone by now is left out."""
    while True:
        stored = chosen(store)
        parts = training_parts(stored, store.shape[1])
        order = np.concatenate([*parts, np.flatnonzero(stored.held)])
        windows = (store.read(id) for id in stored.ids[order].tolist())
        x = write_array(path, (len(order), *store.shape), (w if w is None else normalise(w[None])[0] for w in windows))
        if x is not None:
            return describe_copy(x, stored, order, len(parts[1]))


def training_parts(stored: StoredWindows, window: int) -> tuple[Rows, Rows]:
    """Rows to learn from, and rows for choices: of each class the last recordings, a fourth of its windows or so, else
    tails, as of a trace (data/traces/split.py). Of a recording, what has the same label counts as one by itself."""
    rows = np.flatnonzero(~stored.held)
    if not len(rows):
        return rows, rows
    names = sorted({stored.labels[at] for at in rows})
    codes = np.array([names.index(stored.labels[at]) for at in rows], np.int64)
    new = (np.diff(stored.recording[rows]) != 0) | (np.diff(codes) != 0)
    rate = window / max(1e-9, find_median(stored.ended[rows] - stored.began[rows]))
    parts = split_off_validation(
        Windows(
            name="observed",
            x=np.empty((len(rows), 0, window), np.float32),  # its length is all that is looked at
            y=codes,
            classes=tuple(names),
            recording=np.concatenate([[0], np.cumsum(new)]).astype(np.int64),
            first=np.rint((stored.began[rows] - stored.began[rows[0]]) * rate).astype(np.int64),
            end=rows.astype(np.float64),
        ),
        FOR_CHOICES,
    )
    chosen = np.isin(rows, parts[1].end)
    return rows[~chosen], rows[chosen]


def copy_held_out(store: SampleStore, normalise: Normalise, chosen: Choose = SampleStore.labelled) -> Samples:
    """The latest MOST_JUDGED chosen windows that are held out, in memory and as the model takes them."""
    stored = chosen(store)
    held = np.flatnonzero(stored.held)[-MOST_JUDGED:]
    found = [(store.read(int(stored.ids[at])), stored.labels[at]) for at in held]
    whole = [(normalise(window[None])[0], label) for window, label in found if window is not None]
    x = np.stack([window for window, _ in whole]) if whole else np.zeros((0, *store.shape), np.float32)
    return Samples(x, tuple(label for _, label in whole))


def write_array(path: Path | None, shape: tuple[int, ...], rows: Iterable[Floats | None]) -> Floats | None:
    """Rows as an array: a memory map of a new file, or in memory; None: a row was None.

    The file is written as any other: who writes through a memory map of it is killed where the disk is full.

    Raises:
        OSError: the disk does not take it; nothing is left of the file.
    """
    if path is None or not shape[0]:
        found = [*rows]
        return None if any(row is None for row in found) else np.array(found, np.float32).reshape(shape)
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    try:
        with path.open("wb") as file:
            about = {"descr": np.lib.format.dtype_to_descr(np.dtype(np.float32)), "fortran_order": False}
            np.lib.format.write_array_header_1_0(file, {**about, "shape": shape})
            for row in rows:
                if row is None:
                    return None
                file.write(row.astype(np.float32).tobytes())
    except OSError:
        path.unlink(missing_ok=True)
        raise
    return np.lib.format.open_memmap(path, "r+")


def describe_copy(x: Floats, stored: StoredWindows, order: Rows, chosen: int) -> FrozenSamples:
    labels = tuple(stored.labels[at] for at in order)
    return FrozenSamples(x, labels, stored.began[order], stored.ended[order], int((~stored.held).sum()), chosen)


def save_note(path: Path, made: FrozenSamples) -> None:
    if isinstance(made.x, np.memmap):
        made.x.flush()
    arrays: dict[str, Any] = {"labels": np.array(made.labels, str), "began": made.began, "ended": made.ended}
    arrays |= {"chosen": np.array(made.chosen), "recording": made.recording}
    with replace_file(path.with_suffix(".npz")) as file:
        np.savez(file, shape=np.array(made.x.shape), trained=np.array(made.trained), **arrays)


def save_times(changed: FrozenSamples) -> None:
    """Save the times of samples that were erased. Where a full disk has no room for that, the copy is one that was not
    finished, and is made again after a restart."""
    assert isinstance(changed.x, np.memmap) and changed.x.filename is not None
    path = Path(changed.x.filename)
    try:
        save_note(path, changed)
    except OSError:
        path.with_suffix(".npz").unlink(missing_ok=True)


def load_whole(note: Path, load: Callable[[], T]) -> T | None:
    """What a note is the last file of; None: there is none, or it is damaged, as after a power cut, which is told."""
    if not note.exists():
        return None
    try:
        return load()
    except UNREADABLE as error:
        log.error("the copy of samples %s is damaged (%s), and made again of what the store has now", note.stem, error)
        return None


def load_frozen(path: Path) -> FrozenSamples:
    """Raises one of UNREADABLE if a file is not as it was written."""
    with path.with_suffix(".npz").open("rb") as file, np.load(file, allow_pickle=False) as found:
        shape, labels = tuple(map(int, found["shape"])), tuple(map(str, found["labels"]))
        began, ended, trained = found["began"], found["ended"], int(found["trained"])
        chosen = int(found["chosen"]) if "chosen" in found else 0  # a copy that an earlier version has made
        recording = found["recording"] if "recording" in found else np.zeros(0, np.int64)
    x: Floats = np.zeros(shape, np.float32)
    if shape[0]:
        x = np.lib.format.open_memmap(path, "r+")
    if x.shape != shape:
        raise ValueError(f"samples of shape {x.shape}, the note says {shape}")
    return FrozenSamples(x, labels, began, ended, trained, chosen, recording)


def erase_copies(directory: Path, copies: Iterable[FrozenSamples | None], began: float, ended: float) -> None:
    """Erase samples in a stretch of time from these copies, and from all files: those of a run that this process has
    not gone on with yet, too. A copy that was never finished or is damaged goes, as nobody knows its times."""
    for copy in copies:
        if copy is not None:
            copy.forget(began, ended)
    for path in directory.glob("*.npy"):
        found = load_whole(path.with_suffix(".npz"), partial(load_frozen, path))
        if found is not None:
            found.forget(began, ended)
        else:
            overwrite(path)
            path.unlink()


def drop_frozen(directory: Path, but: str) -> None:
    """Delete the copies of all runs but one; "": of all."""
    for path in directory.glob("*.np[yz]"):
        if path.stem != but:
            path.unlink(missing_ok=True)
