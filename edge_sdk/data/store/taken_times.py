"""Stretches of time of which a store has windows already: nothing is recorded twice.

Where a clock was set back, or a recording is handed over again, windows come of a time of which there are some. What
came first stays: that is what labels of this time were about. What came of a clock that was far ahead takes up its own
times only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from math import inf

import numpy as np

from edge_sdk.data.live.resample import GAP, INTERVALS
from edge_sdk.data.live.windower import LiveWindows

Find = Callable[[float, float], list[int]]


class TakenTimes:
    """Tells which windows are of a time of which older windows are stored.

    Windows of one recording follow each other and may overlap; so do samples by less than what ends a recording, whose
    times a sensor has rounded.

    Args:
        find: ids of the stored windows with a moment from one time to another.
        latest: time of the last stored sample, seconds since 1970; -inf: none is.
        samples: of a window.
    """

    def __init__(self, find: Find, latest: float, samples: int) -> None:
        self.find, self.samples = find, samples
        self.latest = self.before = latest
        self.recording, self.began, self.first = 0, inf, 0  # of the recording that goes on; its first window's id

    def runs(self, windows: LiveWindows) -> Iterator[range]:
        """Rows of windows that follow each other in a recording; `begin` is to be called before each run of them."""
        if not len(windows):
            return
        again = (np.diff(windows.recording) != 0) | (np.diff(windows.began) <= 0)
        for start, end in pairwise([0, *(np.flatnonzero(again) + 1).tolist(), len(windows)]):
            yield range(start, end)

    def begin(self, windows: LiveWindows, at: int, next_id: int) -> None:
        """Look at a run of windows whose first is in a row, and will have this id if it is stored."""
        if int(windows.recording[at]) != self.recording or windows.began[at] <= self.began:
            self.first, self.before = next_id, self.latest
        self.recording = int(windows.recording[at])

    def are_free(self, windows: LiveWindows, at: int) -> bool:
        """Is there no older window of the time of the one in this row?"""
        began, ended = float(windows.began[at]), float(windows.ended[at])
        self.began, self.latest = began, max(self.latest, ended)
        between = (ended - began) / max(1, self.samples - 1)
        spare = min(max(GAP, INTERVALS * between), (ended - began) / 2)
        return began > self.before - spare or all(id >= self.first for id in self.find(began + spare, ended - spare))
