"""The split of a device's windows: those it trains on, and those it is judged by.

Neighbouring windows share samples, and windows of one recording share everything that makes a recording special.
A split at random would thus measure memory. Held out is the last part in time, and by whole recordings.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from edge_sdk.data.traces.windows import Windows
from edge_sdk.errors import UsageError

Mask = npt.NDArray[np.bool_]


def split(windows: Windows, held_out: float = 0.3) -> tuple[Windows, Windows]:
    """Splits the windows of one device into training and test. Nothing in it is random.

    Of every class, the last recordings that together come closest to `held_out` of its windows are held out, at least
    one and never all. A class with a single recording stays in training.

    A device whose classes all have a single recording would have nothing to be judged by. Only there, the tail of each
    recording is held out, and the windows before it that share samples with it are in neither part. The two parts are
    then from one recording, which flatters the result: `note` of both says so.

    Args:
        windows: of one trace.
        held_out: share of the windows, between 0 and 1.

    Raises:
        UsageError: there are too few windows for two parts.
    """
    if not 0 < held_out < 1:
        raise UsageError(f"held_out = {held_out}; a share of the windows above 0 and below 1 is needed")
    test = _hold_recordings(windows, held_out)
    if test.any():
        return windows.take(~test), windows.take(test)
    train, test = _hold_tails(windows, held_out)
    if not test.any():
        raise UsageError(
            f"{windows.name}: {len(windows)} windows in {len(np.unique(windows.recording))} recordings; "
            "too few for a training and a held-out part without a sample in common: record more or take shorter windows"
        )
    note = f"{windows.name}: one recording per class, so the tail of each is held out, not a recording of its own"
    return windows.take(train, note), windows.take(test, note)


def _hold_recordings(windows: Windows, held_out: float) -> Mask:
    test = np.zeros(len(windows), np.bool_)
    for code in np.unique(windows.y):
        names, sizes = np.unique(windows.recording[windows.y == code], return_counts=True)
        if len(names) > 1:
            held = np.cumsum(sizes[:0:-1])
            count = 1 + int(np.argmin(np.abs(held - held_out * sizes.sum())))
            test |= np.isin(windows.recording, names[-count:])
    return test


def _hold_tails(windows: Windows, held_out: float) -> tuple[Mask, Mask]:
    train, test = np.zeros((2, len(windows)), np.bool_)
    length = windows.x.shape[2]
    for name in np.unique(windows.recording):
        own = np.flatnonzero(windows.recording == name)
        tail = own[-max(1, round(held_out * len(own))) :]
        head = own[windows.first[own] + length <= windows.first[tail[0]]]
        train[head if len(head) else own] = True
        test[tail] = len(head) > 0
    return train, test
