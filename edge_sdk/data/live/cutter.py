"""From blocks as they come to windows: of all channels or of one, at the bundle's rate or at another one."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from edge_sdk.data.live.resample import ChannelJoiner, Resampler, is_same_rate
from edge_sdk.data.live.windower import LiveWindows, Windower

Times = npt.NDArray[np.float64]
Floats = npt.NDArray[np.float32]
Block = tuple[int, Times, Floats]
"""Place of a channel (-1: all channels), times (n,), and samples (n,) or (n, c)."""


class StreamCutter:
    """Cuts what a sensor gives into windows of the bundle's signal.

    Args:
        source_hz: rate of the sensor.
        channels, rate_hz, window, stride: of the bundle's signal.
    """

    def __init__(self, source_hz: float, channels: int, rate_hz: float, window: int, stride: int) -> None:
        self.signal = source_hz, channels, rate_hz, window, stride
        self.source, self.rate = source_hz, rate_hz
        self.resampler = None if is_same_rate(source_hz, rate_hz) else Resampler(source_hz, rate_hz, channels)
        self.joiner = ChannelJoiner(source_hz, rate_hz, channels)
        self.windower = Windower(channels, rate_hz, window, stride)

    def push(self, place: int, time: Times, block: Floats) -> LiveWindows:
        """The windows that the finite ones of these samples complete, see `Block`."""
        known = np.isfinite(block).reshape(len(block), -1).all(1)
        time, block = time[known], block[known]
        if place < 0 and self.resampler is None:
            return self.windower.push(time, block)
        if place >= 0:
            ticks, values = self.joiner.push(place, time, block)
        else:
            assert self.resampler is not None
            ticks, values = self.resampler.push(time, block)
        return self.windower.push(ticks / self.rate, values.astype(np.float32))

    def forget(self, began: float, ended: float) -> None:
        """Begin anew, if a sample of this stretch of time is kept for windows that are not whole yet."""
        streams = [*self.joiner.resamplers, *([] if self.resampler is None else [self.resampler])]
        kept = [self.windower.time, *(stream.time for stream in streams)]
        kept += [ticks / self.rate for ticks in self.joiner.ticks]
        if any(((times >= began) & (times <= ended)).any() for times in kept):
            vars(self).update(vars(StreamCutter(*self.signal)))

    def count_missing(self) -> int:
        """Samples with which the next window may be whole."""
        missing = self.windower.window + self.windower.skip - len(self.windower.time)
        return max(1, int(missing * self.source / self.rate))


def group_blocks(blocks: Iterable[Block]) -> list[Block]:
    """Blocks in their order, where neighbours of the same channel are one."""
    found: list[tuple[int, list[Times], list[Floats]]] = []
    for place, time, block in blocks:
        if not found or found[-1][0] != place:
            found.append((place, [], []))
        found[-1][1].append(time)
        found[-1][2].append(block)
    return [(place, np.concatenate(times), np.concatenate(blocks)) for place, times, blocks in found]
