"""Windows of a trace that nobody has labelled, and the stretch of time that each of them lies in."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from edge_sdk.data.traces.read import UNLABELLED, Trace
from edge_sdk.data.traces.windows import Windows, find_gaps, longest_step


def unlabelled_rows(cuts: Windows, train: Windows, labelled: Windows) -> npt.NDArray[np.int64]:
    """Rows, ascending, of the windows that a device has without a label: those cut where the trace has none, and those
    to train on that are not among the labelled ones.

    Args:
        cuts: all windows of a trace. train: those to train on. labelled: those of them whose label is known.
    """
    rest = np.setdiff1d(train.first, labelled.first)
    return np.flatnonzero((cuts.y == UNLABELLED) | np.isin(cuts.first, rest)).astype(np.int64)


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
