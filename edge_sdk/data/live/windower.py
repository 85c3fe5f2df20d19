"""Windows of a stream that has no end, cut by the code that cuts traces.

A recording ends where the sensor was off or its clock was set, as in a trace, and after LONGEST seconds: held out are
whole recordings, and a sensor that is never switched off must have more than one. No window crosses the end of one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from edge_sdk.data.live.resample import GAP, INTERVALS
from edge_sdk.data.traces.windows import copy_windows, find_gaps, list_starts

LONGEST = 300.0
"""Seconds of a recording."""

Times = npt.NDArray[np.float64]
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class LiveWindows:
    """N windows of a stream, in the order in which they came.

    Attributes:
        x: float32 (N, c, window).
        began, ended: float64 (N,), seconds since 1970 of each window's first and last sample.
        recording: int64 (N,), the recording that a window lies in: the millisecond since 1970 in which that began.
    """

    x: Floats
    began: Times
    ended: Times
    recording: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.x)


class Windower:
    """Cuts what comes into windows; keeps less than one window and one stride of it.

    Args:
        channels, window, stride: of the bundle's signal.
        rate_hz: of the samples, the bundle's.
    """

    def __init__(self, channels: int, rate_hz: float, window: int, stride: int) -> None:
        self.channels, self.window, self.stride = channels, window, stride
        self.gap = max(GAP, INTERVALS / rate_hz)
        self.longest = max(window, int(LONGEST * rate_hz))
        self.time: Times = np.empty(0)
        self.values: Floats = np.empty((0, channels), np.float32)
        self.last: Times = np.empty(0)  # time of the sample that came last, or nothing
        self.began = 0.0  # of the present recording
        self.samples = 0  # of the present recording, up to the end of what is kept
        self.skip = 0  # samples of what is kept that lie before the next window; the stride may exceed the window

    def push(self, time: Times, values: Floats) -> LiveWindows:
        """Takes n samples and returns the windows that they complete.

        Args:
            time: float64 (n,), seconds since 1970.
            values: float32 (n, c).
        """
        found = [windows for piece in self.pieces(time, values) if len(windows := self.extend(*piece))]
        return join_windows(found, self.channels, self.window)

    def pieces(self, time: Times, values: Floats) -> Iterator[tuple[Times, Floats]]:
        """Splits samples where a new recording begins, which is prepared for when the piece is asked for."""
        before = self.last if len(self.last) else time[:1]
        self.last = time[-1:].copy() if len(time) else self.last
        breaks = np.flatnonzero(find_gaps(np.concatenate([before, time]), self.gap))
        bounds = [0, *(int(at) for at in breaks), len(time)]
        for number, (start, end) in enumerate(pairwise(bounds)):
            if number:
                self.begin_recording()
            while start < end:
                if self.samples >= self.longest:
                    self.begin_recording()
                upto = min(end, start + self.longest - self.samples)
                yield time[start:upto], values[start:upto]
                start = upto

    def begin_recording(self) -> None:
        self.time, self.values = self.time[:0], self.values[:0]
        self.samples = self.skip = 0

    def extend(self, time: Times, values: Floats) -> LiveWindows:
        """Windows that samples of the present recording complete."""
        if not self.samples:
            self.began = float(time[0])
        self.samples += len(time)
        self.time, self.values = np.concatenate([self.time, time]), np.concatenate([self.values, values])
        first = list_starts(self.skip, len(self.time), self.window, self.stride)
        recording = np.full(len(first), round(self.began * 1000), np.int64)
        ended = self.time[first + self.window - 1]
        windows = LiveWindows(copy_windows(self.values, first, self.window), self.time[first], ended, recording)
        self.skip += len(first) * self.stride
        done = min(self.skip, len(self.time))
        self.time, self.values, self.skip = self.time[done:].copy(), self.values[done:].copy(), self.skip - done
        return windows


def join_windows(parts: list[LiveWindows], channels: int, window: int) -> LiveWindows:
    """All windows of several groups, in their order."""
    if not parts:
        none = np.empty(0)
        return LiveWindows(np.empty((0, channels, window), np.float32), none, none, np.empty(0, np.int64))
    joined = [np.concatenate([getattr(part, name) for part in parts]) for name in ("x", "began", "ended", "recording")]
    return LiveWindows(*joined)
