"""The windows without a label of one run: what the store had when it began, for runs in which devices label them.

They are the latest OF_LATEST that are not held out, evenly thinned to MOST at most. A run remembers by their numbers
which of them it has labelled, so they stay the same for as long as it lasts, whatever is labelled or erased meanwhile.

    RUN.unlabelled.npy   float32 (M, channels, window), in order of time; not where windows are encrypted at rest
    RUN.unlabelled.npz   their numbers in the store, times and recordings; written last

Where windows are encrypted, the copy is in memory only. After a restart it is made again of the same windows; one that
has been deleted since is the one before it then.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from edge_sdk.atomic import replace_file
from edge_sdk.data.store.frozen import Floats, FrozenSamples, Normalise, load_frozen, load_whole, save_note, write_array
from edge_sdk.data.store.sample_store import SampleStore, StoredWindows

MOST, OF_LATEST = 4096, 16384
"""Windows that a run has at most, and the latest ones of which these are taken."""


def freeze_unlabelled(store: SampleStore, directory: Path, run: str, normalise: Normalise) -> FrozenSamples:
    """The windows without a label of a run, after its labelled ones are frozen; their labels are "".

    Args:
        normalise: windows (N, channels, window) -> as the model takes them.
    """
    path, plain = directory / f"{run}.unlabelled.npy", store.cipher.name == "plain"
    note = path.with_suffix(".npz")
    if plain and (found := load_whole(note, lambda: load_frozen(path))) is not None:
        return found
    known = None if plain else load_whole(note, lambda: load_stored(note))
    stored = store.unlabelled(MOST, OF_LATEST) if known is None else known
    x = write_array(path if plain else None, (len(stored.ids), *store.shape), read_each(store, stored, normalise))
    assert x is not None  # each row is some window
    labels = ("",) * len(x)
    made = FrozenSamples(x, labels, stored.began, stored.ended, len(x), recording=stored.recording)
    if plain:
        save_note(path, made)
    elif known is None:
        save_stored(note, stored)
    return made


def read_each(store: SampleStore, stored: StoredWindows, normalise: Normalise) -> Iterator[Floats]:
    """Each window (channels, window) as the model takes it; of one that is gone by now the one before it, with that
    one's times."""
    row, times = np.zeros(store.shape, np.float32), (np.inf, -np.inf)
    for at, id in enumerate(stored.ids.tolist()):
        window = store.read(id, float(stored.began[at]))
        if window is None:
            stored.began[at], stored.ended[at] = times
        else:
            row, times = normalise(window[None])[0], (stored.began[at], stored.ended[at])
        yield row


def save_stored(note: Path, stored: StoredWindows) -> None:
    with replace_file(note) as file:
        np.savez(file, ids=stored.ids, began=stored.began, ended=stored.ended, recording=stored.recording)


def load_stored(note: Path) -> StoredWindows:
    with note.open("rb") as file, np.load(file, allow_pickle=False) as found:
        ids: npt.NDArray[np.int64] = found["ids"]
        times = found["began"], found["ended"], found["recording"]
    return StoredWindows(ids, *times, ("",) * len(ids), np.zeros(len(ids), np.bool_))
