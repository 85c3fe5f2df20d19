"""From a sensor's rate to the bundle's, and channels that come one by one put side by side.

Samples lie on one grid for all channels, at whole multiples of 1 / rate since 1970. To a higher rate they are
interpolated linearly; to a lower one each is the mean, over one interval of the new rate, of the line through the
sensor's samples, so that what is faster than the new rate does not come back as something slow.
"""

from __future__ import annotations

from itertools import pairwise
from math import ceil

import numpy as np
import numpy.typing as npt

GAP, INTERVALS = 0.5, 4
"""Seconds without a sample, and sampling intervals, that both must have passed before a new recording begins."""
TOLERANCE = 0.05
"""Share by which two rates may differ and count as one, as among traces (data/traces/folder.py)."""
KEPT = 10.0
"""Seconds for which a channel waits for the others."""

Times = npt.NDArray[np.float64]
Ticks = npt.NDArray[np.int64]
Floats = npt.NDArray[np.floating]


def is_same_rate(one: float, other: float) -> bool:
    """Are these rates one, so that samples are used as they are?"""
    return abs(one / other - 1) <= TOLERANCE


class Resampler:
    """A stream on the grid of another rate.

    Args:
        source_hz: rate of what comes.
        rate_hz: rate of the grid.
        channels: columns.
    """

    def __init__(self, source_hz: float, rate_hz: float, channels: int) -> None:
        self.rate, self.half = rate_hz, 0.5 / rate_hz if source_hz > rate_hz else 0.0
        self.gap = max(GAP, INTERVALS / min(source_hz, rate_hz))
        self.time: Times = np.empty(0)
        self.values: Floats = np.empty((0, channels))
        self.next: int | None = None  # tick that comes next; None: the first samples of a recording are waited for

    def push(self, time: Times, values: Floats) -> tuple[Ticks, Floats]:
        """Takes samples (n,), (n, c), and returns the ticks k, int64 (m,), that they reach, with values (m, c) there.

        The time of a tick is k / rate. After a gap, or where the clock was set, the grid begins anew.
        """
        ticks, found = [np.empty(0, np.int64)], [self.values[:0]]
        before = self.time[-1:] if len(self.time) else time[:1]
        breaks = np.flatnonzero(np.abs(np.diff(np.concatenate([before, time]))) > self.gap)
        bounds = [0, *(int(at) for at in breaks), len(time)]
        for number, (start, end) in enumerate(pairwise(bounds)):
            if number:
                self.time, self.values, self.next = self.time[:0], self.values[:0], None
            made = self.extend(time[start:end], values[start:end])
            ticks.append(made[0])
            found.append(made[1])
        return np.concatenate(ticks), np.concatenate(found)

    def extend(self, time: Times, values: Floats) -> tuple[Ticks, Floats]:
        """Ticks that samples of the present recording reach."""
        # sensors that round their times give some twice, or a little out of order
        self.time = np.maximum.accumulate(np.concatenate([self.time, time]))
        self.values = np.concatenate([self.values, values])
        if len(self.time) < 2:
            return np.empty(0, np.int64), self.values[:0]
        if self.next is None:
            self.next = ceil(round((self.time[0] + self.half) * self.rate, 6))
        last = int((self.time[-1] - self.half) * self.rate + 1e-6)
        ticks = np.arange(self.next, max(self.next, last + 1), dtype=np.int64)
        made = self.evaluate(ticks / self.rate)
        self.next += len(ticks)
        done = max(0, int(np.searchsorted(self.time, self.next / self.rate - self.half, "right")) - 1)
        self.time, self.values = self.time[done:].copy(), self.values[done:].copy()
        return ticks, made

    def evaluate(self, at: Times) -> Floats:
        """Values (m, c) of the line through the kept samples: at these times or, to a lower rate, means around them."""
        if not self.half:
            columns = [np.interp(at, self.time, column) for column in self.values.T]
            return np.stack(columns, 1) if len(at) else self.values[:0]
        area = self.integrate(at + self.half) - self.integrate(at - self.half)
        return np.asarray(area / (2 * self.half))

    def integrate(self, at: Times) -> Floats:
        """Area (m, c) under the line through the kept samples, from the first of them to these times."""
        step = np.diff(self.time)[:, None]
        pieces = (self.values[1:] + self.values[:-1]) / 2 * step
        before = np.concatenate([np.zeros((1, self.values.shape[1])), np.cumsum(pieces, 0)])
        piece = np.clip(np.searchsorted(self.time, at, "right") - 1, 0, len(self.time) - 2)
        ahead = (at - self.time[piece])[:, None]
        slope = (self.values[piece + 1] - self.values[piece]) / np.maximum(step[piece], 1e-9)
        return np.asarray(before[piece] + self.values[piece] * ahead + slope * ahead**2 / 2)


class ChannelJoiner:
    """Channels that come each in blocks of its own, as from several characteristics of a BLE sensor, as one stream.

    Args:
        source_hz: rate of each channel.
    """

    def __init__(self, source_hz: float, rate_hz: float, channels: int) -> None:
        self.rate = rate_hz
        self.resamplers = [Resampler(source_hz, rate_hz, 1) for _ in range(channels)]
        self.ticks = [np.empty(0, np.int64) for _ in range(channels)]
        self.values = [np.empty((0, 1)) for _ in range(channels)]

    def push(self, channel: int, time: Times, values: Floats) -> tuple[Ticks, Floats]:
        """Takes samples (n,), (n,) of one channel, and returns the ticks that all channels have reached."""
        ticks, made = self.resamplers[channel].push(time, values[:, None])
        self.ticks[channel] = np.concatenate([self.ticks[channel], ticks])
        self.values[channel] = np.concatenate([self.values[channel], made])
        common = self.ticks[0]
        for other in self.ticks[1:]:
            common = np.intersect1d(common, other)
        columns = [v[np.searchsorted(t, common)] for t, v in zip(self.ticks, self.values, strict=True)]
        self.drop(channel, int(common[-1]) if len(common) else None)
        return common, np.concatenate(columns, 1)

    def drop(self, pushed: int, done: int | None) -> None:
        """Forget what was used, and what has waited too long."""
        most = int(KEPT * self.rate)
        for channel, ticks in enumerate(self.ticks):
            keep = ticks > done if done is not None else np.ones(len(ticks), np.bool_)
            if channel == pushed and len(ticks) > 1 and (np.diff(ticks) < 0).any():
                keep &= np.arange(len(ticks)) > np.flatnonzero(np.diff(ticks) < 0)[-1]  # its clock was set back
            self.ticks[channel], self.values[channel] = ticks[keep][-most:], self.values[channel][keep][-most:]
