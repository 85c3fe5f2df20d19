"""The split of a device's windows: those it trains on, those that choices are made on, and those it is judged by.

Neighbouring windows share samples, and windows of one recording share everything that makes a recording special.
A split at random would thus measure memory. Held out is the last part in time, and by whole recordings.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from edge_sdk.data.ordered import list_distinct
from edge_sdk.data.traces.labels import UNLABELLED
from edge_sdk.data.traces.windows import Windows
from edge_sdk.errors import UsageError

UNLIKE = 2.0
Mask = npt.NDArray[np.bool_]


def split(windows: Windows, held_out: float = 0.3) -> tuple[Windows, Windows]:
    """Splits the windows of one device into training and test. Nothing in it is random. Those with values in place of
    classes are split as if all were of one class.

    Of every class, the last recordings that together come closest to `held_out` of its windows are held out, at least
    one and never all. A class with a single recording stays in training.

    A device whose classes all have a single recording would have nothing to be judged by. Only there, the tail of each
    recording is held out, and the windows before it that share samples with it are in neither part. The two parts are
    then from one recording, which flatters the result: `note` of both says so. So it is with values where the last
    recordings are more than UNLIKE times as many windows as wanted, or as few: a pause of a sensor is no new occasion.

    Args:
        windows: of one trace. Those without a label are in neither part.
        held_out: share of the windows, between 0 and 1.

    Raises:
        UsageError: there are too few windows for two parts.
    """
    if not 0 < held_out < 1:
        raise UsageError(f"held_out = {held_out}; a share of the windows above 0 and below 1 is needed")
    known = windows.codes != UNLABELLED
    if len(windows) and not known.any():
        raise UsageError(
            f"{windows.name}: none of its {len(windows)} windows has a label, so nothing can be judged by it"
        )
    windows = windows.take(known)
    test = _hold_recordings(windows, held_out)
    if test.any() and _is_about(windows, test, held_out):
        return windows.take(~test), windows.take(test)
    train, test = _hold_tails(windows, held_out)
    if not test.any():
        raise UsageError(
            f"{windows.name}: {len(windows)} windows in {len(list_distinct(windows.recording))} recordings; "
            "too few for a training and a held-out part without a sample in common: record more or take shorter windows"
        )
    alone = "recordings of very unlike lengths" if _has_several(windows) else "one recording per class"
    note = f"{windows.name}: {alone}, so the tail of each is held out, not a recording of its own"
    return windows.take(train, note), windows.take(test, note)


def split_off_validation(train: Windows, share: float) -> tuple[Windows, Windows]:
    """Splits a validation part off the training windows, as `split` does it for the held-out part.

    Of every class that has several recordings left, the last of these are taken. Where no class has, the tail of each
    recording is; where that is too short as well, the validation part is empty.

    Args:
        train: training windows of one device, as `split` returns them.
        share: of these windows, between 0 and 1.
    """
    if not 0 < share < 1:
        raise UsageError(f"validation: a share of {share} of the training windows; above 0 and below 1 is needed")
    chosen = _hold_recordings(train, share)
    if chosen.any() and _is_about(train, chosen, share):
        return train.take(~chosen), train.take(chosen)
    kept, tails = _hold_tails(train, share)
    if not tails.any():
        return train, train.take(tails)
    alone = "recordings of very unlike lengths are left" if _has_several(train) else "one recording per class is left"
    note = f"{train.name}: {alone}, so validation is on the tail of each"
    return train.take(kept, train.note or note), train.take(tails, train.note or note)


def _is_about(windows: Windows, chosen: Mask, share: float) -> bool:
    """Are these about as many as wanted? Of classes, each of which has recordings of its own, any are."""
    return windows.y.dtype.kind != "f" or share / UNLIKE <= chosen.mean() <= share * UNLIKE


def _has_several(windows: Windows) -> bool:
    """Are values of several recordings?"""
    return windows.y.dtype.kind == "f" and len(list_distinct(windows.recording)) > 1


def _hold_recordings(windows: Windows, held_out: float) -> Mask:
    """The last whole recordings of each class that has several."""
    test = np.zeros(len(windows), np.bool_)
    for code in list_distinct(windows.codes):
        names, sizes = np.unique(windows.recording[windows.codes == code], return_counts=True)
        if len(names) > 1:
            held = np.cumsum(sizes[:0:-1])
            count = 1 + int(np.argmin(np.abs(held - held_out * sizes.sum())))
            test |= np.isin(windows.recording, names[-count:])
    return test


def _hold_tails(windows: Windows, held_out: float) -> tuple[Mask, Mask]:
    """The heads and the tails of all recordings; a recording too short for both is all head."""
    train, test = np.zeros((2, len(windows)), np.bool_)
    length = windows.x.shape[2]
    for name in list_distinct(windows.recording):
        own = np.flatnonzero(windows.recording == name)
        tail = own[-max(1, round(held_out * len(own))) :]
        head = own[windows.first[own] + length <= windows.first[tail[0]]]
        train[head if len(head) else own] = True
        test[tail] = len(head) > 0
    return train, test
