"""Boards that print one sample a line on a serial port, as an Arduino does: numbers with commas, tabs or spaces.

A line that is no sample (a greeting, half a line after plugging in) is counted in `refused` and left out. What is
plugged out ends the reading with an error.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Sequence
from typing import Any

from edge_sdk.errors import UsageError
from edge_sdk.hardware.sensors.extras import import_extra
from edge_sdk.hardware.sensors.sensor import Reading, SensorError, spread_times

LONGEST = 4096
"""Bytes of a line at most: a device that never ends its line must not fill the memory."""
BETWEEN = re.compile(r"[,;\s]+")


class SerialLines:
    """A serial port whose lines are samples.

    Args:
        port: such as /dev/ttyUSB0.
        channels: name of each number in a line.  units: likewise; none: "".
        baud: bits per second.
        clock: seconds since 1970, for lines carry no time; those that arrive together are spread over the time before.
    """

    def __init__(
        self,
        port: str,
        channels: Sequence[str],
        units: Sequence[str] = (),
        baud: int = 115200,
        rate_hz: float | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if not channels or len(set(channels)) < len(channels):
            raise UsageError(
                f"serial {port}: channels = {list(channels)}; one name for each number in a line, each once"
            )
        self.port, self.baud, self.clock = port, baud, clock
        self.name, self.channels, self.rate_hz = port.rpartition("/")[2], tuple(channels), rate_hz
        self.units = tuple(units) or ("",) * len(channels)
        self.refused = 0
        self.line: Any = None
        self.last: float | None = None

    def open(self) -> None:
        serial = import_extra("serial")
        try:
            self.line = serial.Serial(self.port, self.baud, timeout=0)
        except (OSError, ValueError) as error:  # serial.SerialException is an OSError
            raise SensorError(f"serial {self.port}: {error}") from error
        self.rest, self.last = b"", None
        self.skips = True  # we may have come in the middle of a line

    def read(self, timeout: float) -> list[Reading]:
        try:
            self.line.timeout = timeout
            data = self.line.read(1)
            data += self.line.read(self.line.in_waiting)
        except (OSError, TypeError) as error:  # pyserial lets a TypeError out where the port is closed meanwhile
            raise SensorError(f"serial {self.port}: {error}") from error
        now = self.clock()
        *lines, self.rest = (self.rest + data).split(b"\n")
        if len(self.rest) > LONGEST:
            self.rest, self.refused, self.skips = b"", self.refused + 1, True
        if lines and self.skips:
            del lines[0]
            self.skips = False
        rows = [values for line in lines if (values := self.parse(line)) is not None]
        last, self.last = self.last, now if rows else self.last
        return spread_times(last, now, rows)

    def parse(self, line: bytes) -> tuple[float, ...] | None:
        """Numbers of a line, or None (and one more refused) where it is no sample."""
        try:
            values = tuple(float(word) for word in BETWEEN.split(line.decode("ascii").strip()))
        except ValueError:
            values = ()
        if len(values) != len(self.channels) or not all(map(math.isfinite, values)):
            self.refused += 1
            return None
        return values

    def close(self) -> None:
        if self.line is not None:
            self.line.close()
            self.line = None
