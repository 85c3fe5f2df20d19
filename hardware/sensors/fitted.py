"""A sensor as a bundle wants it: its channels in the bundle's order, their values in the bundle's units."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Protocol

from edge_sdk.errors import UsageError
from edge_sdk.hardware.channel_names import find_columns
from edge_sdk.hardware.sensors.sensor import Reading, Sensor, check_units, checked_values
from edge_sdk.hardware.units import conversion

log = logging.getLogger("auscult.sensors")


class WantedSignal(Protocol):
    """What a bundle says of its signal (`edge_sdk.model.tasks.signal_spec.SignalSpec`)."""

    @property
    def channels(self) -> tuple[str, ...]: ...
    @property
    def units(self) -> tuple[str, ...]: ...


class FittedSensor:
    """A sensor whose readings are samples of a signal.

    Channels are found by their names (`find_columns`), or by those that are given. Values are converted where both tell
    a unit; where the sensor tells none, the log says for which unit they are taken.

    Args:
        channels: names of the sensor's channels, in the order of the signal's; empty: by the names of both.

    Raises:
        UsageError: the names do not say which is which, or a unit is missing or none of the same quantity.
    """

    def __init__(self, sensor: Sensor, signal: WantedSignal, channels: Sequence[str] = ()) -> None:
        self.sensor, self.name = sensor, sensor.name
        check_units(sensor)
        self.channels, self.units = signal.channels, signal.units
        self.columns = columns_of(sensor, signal.channels, channels)
        self.factors = []
        for column, name, unit in zip(self.columns, signal.channels, signal.units, strict=True):
            try:
                self.factors.append(conversion(sensor.units[column], unit))
            except UsageError as error:
                raise UsageError(f"sensor {sensor.name}, channel {name}: {error}") from None
            if unit and not sensor.units[column]:
                log.warning("sensor %s does not tell the unit of %s; taken for %s", sensor.name, name, unit)

    @property
    def rate_hz(self) -> float | None:
        """Rate of the sensor, which some know only when they are open."""
        return self.sensor.rate_hz

    def open(self) -> None:
        self.sensor.open()

    def read(self, timeout: float) -> list[Reading]:
        """See `Sensor.read`."""
        return [Reading(reading.time, self.values(reading.values)) for reading in self.sensor.read(timeout)]

    def values(self, values: Sequence[float]) -> tuple[float, ...]:
        """A sample of the sensor as one of the signal. Raises SensorError where it has not its channels' values."""
        checked_values(self.name, values, self.sensor.channels)
        pairs = zip(self.columns, self.factors, strict=True)
        return tuple(scale * values[column] + offset for column, (scale, offset) in pairs)

    def close(self) -> None:
        self.sensor.close()


def columns_of(sensor: Sensor, wanted: Sequence[str], given: Sequence[str] = ()) -> list[int]:
    """Where the signal's channels are among the sensor's."""
    there = list(sensor.channels)
    if given and len(given) == len(wanted) and all(name in there for name in given):
        return [there.index(name) for name in given]
    found = None if given else find_columns(there, wanted)
    if found is not None:
        return found
    raise UsageError(
        f"sensor {sensor.name} has the channels {', '.join(there)}; the bundle wants {', '.join(wanted)}: say which of "
        f"the sensor's {len(wanted)} these are, in that order, with channels=[...]"
    )
