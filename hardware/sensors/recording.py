"""Recordings of other people's formats as if they came from a sensor now: what WFDB and EDF readers make."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from edge_sdk.errors import UsageError
from edge_sdk.hardware.sensors.sensor import Reading, SensorEnded

BLOCK = 1024
"""Samples that a reader gets at once where nobody waits for the time to pass."""


@dataclass(frozen=True)
class StoredSignals:
    """Signals of one rate, read from a file.

    Attributes:
        name: of the recording.
        rate_hz: samples per second.
        channels: names.  units: one for each.
        columns: one sequence of numbers for each channel, all of one length; NaN where the recording has no value.
        start: seconds since 1970, of the first sample; None where the file does not tell.
    """

    name: str
    rate_hz: float
    channels: tuple[str, ...]
    units: tuple[str, ...]
    columns: tuple[Sequence[float], ...]
    start: float | None = None

    def __len__(self) -> int:
        return min(map(len, self.columns), default=0)


class Playback:
    """A sensor that plays stored signals.

    Args:
        signals: what is played.
        speed: 1 is real time, 60 a minute in a second; 0 as fast as it is read.
        start: seconds since 1970 for the first sample; None: the recording's own start, else now.
    """

    def __init__(
        self,
        signals: StoredSignals,
        speed: float = 1.0,
        start: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if not speed >= 0:
            raise UsageError(f"speed = {speed}; 0 (as fast as can be) or more is needed")
        if not len(signals):
            raise UsageError(f"{signals.name}: a recording without samples")
        self.signals, self.speed, self.clock, self.sleep = signals, speed, clock, sleep
        self.name, self.channels, self.units = signals.name, signals.channels, signals.units
        self.rate_hz: float | None = signals.rate_hz
        self.start = start if start is not None else signals.start

    def open(self) -> None:
        self.at, self.began = 0, self.clock()
        self.zero = time.time() if self.start is None else self.start

    def read(self, timeout: float) -> list[Reading]:
        if self.at >= len(self.signals):
            raise SensorEnded(f"{self.name}: the recording is over")
        until = self.count_due()
        if until == self.at:
            wait = min(timeout, self.at / self.signals.rate_hz / self.speed - (self.clock() - self.began))
            self.sleep(max(0.0, wait))
            until = self.count_due()
        found = [self.read_sample(at) for at in range(self.at, until)]
        self.at = until
        return found

    def count_due(self) -> int:
        """Samples whose time has come."""
        if not self.speed:
            return min(len(self.signals), self.at + BLOCK)
        elapsed = (self.clock() - self.began) * self.speed
        # a sample is due at its very time; rounding must not hold it back for ever where the wait was exact
        return min(len(self.signals), max(self.at, int(elapsed * self.signals.rate_hz + 1 + 1e-6)))

    def read_sample(self, at: int) -> Reading:
        values = tuple(float(column[at]) for column in self.signals.columns)
        return Reading(self.zero + at / self.signals.rate_hz, values)

    def close(self) -> None:
        """Does nothing: the recording is in memory."""
