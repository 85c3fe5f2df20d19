"""Times that an application gives its samples, and the word to say where no window ever comes of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from edge_sdk.data.live.resample import GAP
from edge_sdk.data.store.timeline import LATEST_TIME
from edge_sdk.errors import UsageError

WINDOWS = 10
"""Windows' worth of samples, without a window of them, after which it is said."""


def read_times(time: Any, count: int, source_hz: float) -> npt.NDArray[np.float64]:
    """Times (count,) of samples in seconds since 1970, given for each or for the first of them.

    Raises:
        UsageError: they are others, or none.
    """
    given = np.asarray(time)
    if given.dtype.kind not in "fiu":
        raise UsageError(f"observe: time = {time!r:.80}; expected a number of seconds since 1970, or {count} of them")
    when = given.astype(np.float64)
    if when.ndim == 0:
        when = when + np.arange(count) / source_hz
    if when.shape != (count,):
        raise UsageError(f"observe: times of shape {when.shape}, expected one or {count}, in seconds since 1970")
    if not np.isfinite(when).all():
        raise UsageError("observe: a time is not finite; expected seconds since 1970")
    if len(when) and (latest := float(np.abs(when).max())) >= LATEST_TIME:
        raise UsageError(f"observe: a time is {latest:.15g}; expected seconds since 1970, not milliseconds")
    return when


class BarrenMeter:
    """Samples that have come since the last window, and why none has come of them.

    Args:
        usual: samples of which a window comes, where they are of all channels.
        channels: so many; a window takes as many times more where they come one by one.
    """

    def __init__(self, usual: float, channels: int) -> None:
        self.most, self.channels = WINDOWS * usual, channels
        self.reset()

    def reset(self) -> None:
        """A window has come."""
        self.count = self.steps = self.gaps = self.empty = 0
        self.told = False

    def push(self, time: npt.NDArray[np.float64], block: npt.NDArray[np.float32]) -> str:
        """Takes samples (n,) or (n, c) with their times (n,); returns what is to be said, once; "": nothing."""
        steps = np.abs(np.diff(time, prepend=getattr(self, "last", time[:1])))
        if len(time):
            self.last = time[-1:]
        self.count, self.steps = self.count + len(time), self.steps + len(steps)
        self.gaps += int((steps > GAP).sum())
        self.empty += int((~np.isfinite(block)).reshape(len(block), -1).any(1).sum())
        if self.told or self.count <= self.most * (self.channels if block.ndim == 1 else 1):
            return ""
        self.told = True
        return f"no window has come of {self.count} samples: {self.why()}"

    def why(self) -> str:
        if 2 * self.gaps > self.steps:
            return (
                f"{self.gaps} of the steps between their times are longer than {GAP} s, and each of these ends a "
                "recording; times are seconds since 1970, not milliseconds"
            )
        if 2 * self.empty > self.count:
            return f"{self.empty} of them are not finite, and are left out"
        return "channels that come one by one must all come, with times that are the same and go on"
