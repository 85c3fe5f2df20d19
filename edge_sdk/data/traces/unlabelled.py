"""Windows of a trace with and without labels: the few that an owner has labelled, and stretches of time of the rest."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from edge_sdk.data.ordered import list_distinct
from edge_sdk.data.traces.labels import UNLABELLED
from edge_sdk.data.traces.read import Trace
from edge_sdk.data.traces.windows import Windows, find_gaps, longest_step


def keep_labelled(windows: Windows, samples: int) -> Windows:
    """The windows that lie in the first so many samples of each class, recording after recording; 0: all windows.

    A window that reaches beyond the last labelled sample is left out, so a class has none where `samples` are fewer
    than a window. A gap in what is to be predicted, from which no windows are, is not counted.

    Args:
        windows: of one device, in time order; every recording is of one class.
        samples: labelled ones of each class.
    """
    if samples == 0:
        return windows
    keep, length, pieces = np.zeros(len(windows), np.bool_), windows.x.shape[2], find_pieces(windows)
    for code in list_distinct(windows.codes):
        left = samples
        for name in list_distinct(pieces[windows.codes == code]):
            own = np.flatnonzero(pieces == name)
            ends = windows.first[own] + length - windows.first[own[0]]
            keep[own[ends <= left]] = True
            left -= int(ends[-1])
            if left < length:
                break
    return windows.take(keep)


def find_pieces(windows: Windows) -> npt.NDArray[np.int64]:
    """The piece of a recording, from 0, of each window (N,): those of a piece follow each other at one distance."""
    if not len(windows):
        return np.zeros(0, np.int64)
    same, steps = np.diff(windows.recording) == 0, np.diff(windows.first)
    usual = steps[same].min(initial=np.iinfo(np.int64).max)
    return np.concatenate([[0], np.cumsum(~same | (steps > usual))]).astype(np.int64)


def unlabelled_rows(cuts: Windows, train: Windows, labelled: Windows) -> npt.NDArray[np.int64]:
    """Rows, ascending, of the windows that a device has without a label: those cut where the trace has none, and those
    to train on that are not among the labelled ones.

    Args:
        cuts: all windows of a trace. train: those to train on. labelled: those of them whose label is known.
    """
    rest = train.first[~np.isin(train.first, labelled.first, assume_unique=True)]  # no two windows begin as one
    unlabelled = (cuts.codes == UNLABELLED) | np.isin(cuts.first, rest, assume_unique=True)
    return np.flatnonzero(unlabelled).astype(np.int64)


def find_stretches(trace: Trace, cuts: Windows, rows: npt.NDArray[np.int64], gap: float) -> npt.NDArray[np.int64]:
    """The stretch of time, from 0, of each of these windows.

    A new one begins where the sensor was off, or where windows between have been taken for something else. A change of
    the activity begins none: a device would have to know labels to know of it.

    Args:
        cuts: all windows of the trace. rows: of some of them, ascending. gap: seconds, see `find_recordings`.
    """
    if not len(rows):
        return np.zeros(0, np.int64)
    off = np.concatenate([[0], np.cumsum(find_gaps(trace.time, longest_step(trace, gap)))])[cuts.first[rows]]
    new = (np.diff(off) != 0) | (np.diff(rows) > 1)
    return np.concatenate([[0], np.cumsum(new)]).astype(np.int64)
