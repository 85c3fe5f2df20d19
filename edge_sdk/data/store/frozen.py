"""The samples of one run: what the store had when it began, in a file of its own that training reads by memory map.

A run's samples must not change while it lasts (a step that is repeated after a restart is to meet the same ones), and
the store's do. So they are copied once, as the model takes them; the copy goes when the run is over. Where windows are
encrypted at rest, the copy is in memory only, and made again after a restart of what the store has then.

    RUN.npy   float32 (N, channels, window), training samples first
    RUN.npz   their labels, times and number; written last, so without it there is no copy
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from edge_sdk.atomic import replace_file
from edge_sdk.data.samples import Samples
from edge_sdk.data.store.sample_store import SampleStore, StoredWindows

MOST_JUDGED = 500
"""Windows on which two versions are compared beside a run: of one device a rollout counts fewer."""
Floats = npt.NDArray[np.float32]
Normalise = Callable[[Floats], Floats]


@dataclass(frozen=True, eq=False)
class FrozenSamples:
    """The samples of one run.

    Attributes:
        x: float32 (N, channels, window), training samples first; a memory map, or in memory.
        labels: N names.
        began, ended: float64 (N,), seconds since 1970.
        trained: number of the training samples.
    """

    x: Floats
    labels: tuple[str, ...]
    began: npt.NDArray[np.float64]
    ended: npt.NDArray[np.float64]
    trained: int

    @property
    def train(self) -> Samples:
        """Samples to learn from."""
        return Samples(self.x[: self.trained], self.labels[: self.trained])

    @property
    def held_out(self) -> Samples:
        """Samples to be judged by."""
        return Samples(self.x[self.trained :], self.labels[self.trained :])

    def forget(self, began: float, ended: float) -> int:
        """Erase samples that have a moment in this stretch of time, also under a training that goes on: each becomes a
        copy of another of its class and part or, where there is none, zeros. So the run keeps its numbers and labels.

        Returns:
            How many were erased.
        """
        gone = np.flatnonzero((self.ended >= began) & (self.began <= ended))
        stay = np.setdiff1d(np.arange(len(self.x)), gone)
        for at in gone:
            alike = [i for i in stay if self.labels[i] == self.labels[at] and (i < self.trained) == (at < self.trained)]
            self.x[at] = self.x[alike[int(at) % len(alike)]] if alike else 0
        if isinstance(self.x, np.memmap):
            self.x.flush()
        self.began[gone], self.ended[gone] = np.inf, -np.inf  # no moment is in them any more
        return len(gone)


def freeze(store: SampleStore, directory: Path, run: str, normalise: Normalise) -> FrozenSamples:
    """The samples of a run: those that were copied when it began, or else a copy that is made now.

    Args:
        normalise: windows (N, channels, window) -> as the model takes them.
    """
    path = directory / f"{run}.npy"
    if store.cipher.name != "plain":
        return copy_windows_out(store, None, normalise)
    if path.with_suffix(".npz").exists():
        return load_frozen(path)
    drop_frozen(directory, "")
    made = copy_windows_out(store, path, normalise)
    save_note(path, made)
    return made


def copy_windows_out(store: SampleStore, path: Path | None, normalise: Normalise) -> FrozenSamples:
    """Copy all labelled windows, to a file or into memory. A window that is damaged or gone by now is left out."""
    while True:
        stored = store.labelled()
        order = np.concatenate([np.flatnonzero(~stored.held), np.flatnonzero(stored.held)])
        x = make_array(path, (len(order), *store.shape))
        for place, at in enumerate(order):
            window = store.read(int(stored.ids[at]))
            if window is None:
                break
            x[place] = normalise(window[None])[0]
        else:
            return describe_copy(x, stored, order)


def copy_held_out(store: SampleStore, normalise: Normalise) -> Samples:
    """The latest MOST_JUDGED labelled windows that are held out, in memory and as the model takes them."""
    stored = store.labelled()
    held = np.flatnonzero(stored.held)[-MOST_JUDGED:]
    found = [(store.read(int(stored.ids[at])), stored.labels[at]) for at in held]
    whole = [(normalise(window[None])[0], label) for window, label in found if window is not None]
    x = np.stack([window for window, _ in whole]) if whole else np.zeros((0, *store.shape), np.float32)
    return Samples(x, tuple(label for _, label in whole))


def make_array(path: Path | None, shape: tuple[int, ...]) -> Floats:
    if path is None or not shape[0]:
        return np.zeros(shape, np.float32)
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    return np.lib.format.open_memmap(path, "w+", np.float32, shape)


def describe_copy(x: Floats, stored: StoredWindows, order: npt.NDArray[np.int64]) -> FrozenSamples:
    labels = tuple(stored.labels[at] for at in order)
    return FrozenSamples(x, labels, stored.began[order], stored.ended[order], int((~stored.held).sum()))


def save_note(path: Path, made: FrozenSamples) -> None:
    if isinstance(made.x, np.memmap):
        made.x.flush()
    arrays: dict[str, Any] = {"labels": np.array(made.labels, str), "began": made.began, "ended": made.ended}
    with replace_file(path.with_suffix(".npz")) as file:
        np.savez(file, shape=np.array(made.x.shape), trained=np.array(made.trained), **arrays)


def load_frozen(path: Path) -> FrozenSamples:
    with np.load(path.with_suffix(".npz"), allow_pickle=False) as found:
        shape, labels = tuple(map(int, found["shape"])), tuple(map(str, found["labels"]))
        began, ended, trained = found["began"], found["ended"], int(found["trained"])
    x: Floats = np.zeros(shape, np.float32)
    if shape[0]:
        x = np.lib.format.open_memmap(path, "r+")
    return FrozenSamples(x, labels, began, ended, trained)


def drop_frozen(directory: Path, but: str) -> None:
    """Delete the copies of all runs but one; "": of all."""
    for path in directory.glob("*.np[yz]"):
        if path.stem != but:
            path.unlink(missing_ok=True)
