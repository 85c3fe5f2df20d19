"""What all sensors have in common: a few lines, so that an application can write its own.

with opened(IioPolled(folder)) as sensor:
    while True:
        for reading in sensor.read(timeout=1.0):
            ...reading.time, reading.values...
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, TypeVar

from edge_sdk.errors import AuscultError, UsageError


class SensorError(AuscultError):
    """A sensor that cannot be read, and why."""


class SensorEnded(SensorError):
    """A recording that is played back is over, or whoever sent has closed the line."""


@dataclass(frozen=True)
class Reading:
    """One sample of all channels.

    Attributes:
        time: seconds since 1970, of the measurement where the sensor tells it, else of its arrival.
        values: one for each channel, in the channels' units.
    """

    time: float
    values: tuple[float, ...]


class Sensor(Protocol):
    """A source of samples. It is opened, read by one thread, and closed.

    Attributes:
        name: for people and for file names.
        channels: names.  units: one for each; "" where the source does not tell.
        rate_hz: samples per second that are to be expected; None where they come as they come.
    """

    @property
    def name(self) -> str: ...
    @property
    def channels(self) -> tuple[str, ...]: ...
    @property
    def units(self) -> tuple[str, ...]: ...
    @property
    def rate_hz(self) -> float | None: ...

    def open(self) -> None:
        """Opens the device. Raises SensorError where that fails."""

    def read(self, timeout: float) -> list[Reading]:
        """Returns the samples that have come since the last call, in order; waits for the first at most `timeout` s.

        Raises:
            SensorError: the device is gone. SensorEnded: there will be no more.
        """

    def close(self) -> None:
        """Closes the device; closing twice is fine."""


def check_units(sensor: Sensor) -> None:
    """Raises UsageError unless a sensor has a unit for each of its channels."""
    channels, units = tuple(sensor.channels), tuple(sensor.units)
    if len(units) != len(channels):
        raise UsageError(
            f"sensor {sensor.name}: units {units}, expected {len(channels)}, one for each of its channels {channels}; "
            '"" where it does not tell'
        )


def checked_values(name: str, values: Sequence[float], channels: Sequence[str]) -> Sequence[float]:
    """The values of a sensor's reading. Raises SensorError unless there is one for each of its channels."""
    if len(values) != len(channels):
        raise SensorError(
            f"sensor {name}: a reading of {len(values)} values, expected {len(channels)}, one for each of its channels "
            f"{', '.join(channels)}"
        )
    return values


def spread_times(last: float | None, now: float, rows: list[tuple[float, ...]]) -> list[Reading]:
    """Gives times to samples that arrived together: evenly over the time since the last ones, the newest is now.

    Args:
        last: when the samples before these arrived; None: these are the first, and all get one time.
        now: when they arrived.
    """
    before = now if last is None else min(last, now)
    return [Reading(before + (now - before) * (n + 1) / len(rows), values) for n, values in enumerate(rows)]


S = TypeVar("S", bound=Sensor)


@contextmanager
def opened(sensor: S) -> Iterator[S]:
    """Opens a sensor for a `with` block, and closes it whatever happens."""
    try:
        sensor.open()
        yield sensor
    finally:
        sensor.close()


class Pace:
    """Times at which a sensor that must be asked is asked: a fixed rate without drift.

    Where the reader was late, the times that were missed are left out, not made up: samples of a moment that is over
    cannot be read any more.

    Raises:
        UsageError: the rate is not above 0.
    """

    def __init__(
        self,
        rate_hz: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if not rate_hz > 0:
            raise UsageError(f"rate_hz = {rate_hz}, expected above 0")
        self.step, self.clock, self.sleep = 1 / rate_hz, clock, sleep
        self.next = clock()
        self.missed = 0

    def wait(self, timeout: float) -> bool:
        """Waits for the next time, at most `timeout` s; False if it has not come yet."""
        left = self.next - self.clock()
        if left > timeout:
            self.sleep(timeout)
            return False
        if left > 0:
            self.sleep(left)
        late = int((self.clock() - self.next) / self.step)
        self.missed += max(0, late)
        self.next += self.step * (1 + max(0, late))
        return True
