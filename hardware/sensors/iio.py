"""Accelerometers, gyroscopes and the like that Linux knows, through its Industrial I/O files.

    polled     sys/bus/iio/devices/iio:deviceN/in_accel_x_raw, ..._scale, ..._offset      value = (raw + offset) * scale
    buffered   .../scan_elements/in_accel_x_{en,index,type}, .../buffer/{length,enable}, and bytes from dev/iio:deviceN

Names and units are those of the kernel's ABI (Documentation/ABI/testing/sysfs-bus-iio): m/s^2 for accel, rad/s for
anglvel, gauss for magn. Everything is below a root directory, so that tests lay out such a tree.
"""

from __future__ import annotations

import os
import re
import select
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from edge_sdk.errors import UsageError
from edge_sdk.hardware.boards.linux_files import read_number, read_text
from edge_sdk.hardware.sensors.sensor import Pace, Reading, SensorEnded, SensorError

UNITS = {"accel": "m/s^2", "anglvel": "rad/s", "magn": "gauss", "temp": "mCelsius", "pressure": "kPa"}
TYPE = re.compile(r"(le|be):([su])(\d+)/(\d+)(?:X(\d+))?>>(\d+)")
TIMESTAMP = "in_timestamp"
BUFFER = 128
"""Samples that the kernel keeps for us."""


def find_iio(name: str, root: Path = Path("/")) -> Path:
    """Finds the folder of a device by its name, e.g. "lis3dh_accel", or by its number, e.g. "iio:device0".

    Raises:
        UsageError: there is none, or there are several; it lists those that there are.
    """
    folders = sorted((root / "sys/bus/iio/devices").glob("iio:device*"))
    named = {folder: read_text(folder / "name") or "" for folder in folders}
    found = [folder for folder, own in named.items() if name in (own, folder.name)]
    if len(found) != 1:
        there = ", ".join(f"{folder.name} ({own})" for folder, own in named.items()) or "none"
        raise UsageError(f"iio: {len(found)} devices are called {name!r}, exactly one is needed; there are: {there}")
    return found[0]


def list_channels(folder: Path, pattern: str) -> list[str]:
    """Names of the channels, such as "in_accel_x", that have a file of that pattern; time is none of them."""
    files = sorted(folder.glob(pattern.format("in_*")))
    suffix = pattern.rpartition("}")[2]
    return [name for file in files if (name := file.name.removesuffix(suffix)) != TIMESTAMP]


def read_conversion(folder: Path, channel: str) -> tuple[float, float]:
    """Offset and scale of a channel: its own, else that of its kind (in_accel_scale for in_accel_x)."""
    kind = channel.rpartition("_")[0]

    def own(what: str, default: float) -> float:
        for name in (channel, kind):
            value = read_number(folder / f"{name}_{what}")
            if value is not None:
                return value
        return default

    return own("offset", 0.0), own("scale", 1.0)


def describe_channels(channels: list[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names for people, "accel_x", and units of channels."""
    names = tuple(channel.removeprefix("in_") for channel in channels)
    return names, tuple(UNITS.get(re.split(r"[_0-9]", name)[0], "") for name in names)


class IioPolled:
    """A device whose channels are read one after the other, as often as wanted. For slow rates: each is a system call.

    Args:
        folder: of the device, as `find_iio` finds it.
        rate_hz: readings per second.
        channels: such as "in_accel_x"; None: all.
        clock: seconds since 1970.  pace: tests give their own.
    """

    def __init__(
        self,
        folder: Path,
        rate_hz: float,
        channels: list[str] | None = None,
        clock: Callable[[], float] = time.time,
        pace: Pace | None = None,
    ) -> None:
        if not 0 < rate_hz <= 1000:
            raise UsageError(f"rate_hz = {rate_hz}; polled files give between 0 and 1000 readings a second")
        self.folder, self.rate_hz, self.clock, self.pace = folder, rate_hz, clock, pace
        self.raw = channels or list_channels(folder, "{}_raw")
        if not self.raw:
            raise UsageError(f"{folder}: no file in_*_raw, so nothing to poll")
        self.name = read_text(folder / "name") or folder.name
        self.channels, self.units = describe_channels(self.raw)

    def open(self) -> None:
        self.conversions = [read_conversion(self.folder, channel) for channel in self.raw]
        self.pace = self.pace or Pace(self.rate_hz or 1.0)

    def read(self, timeout: float) -> list[Reading]:
        assert self.pace is not None
        if not self.pace.wait(timeout):
            return []
        now = self.clock()
        values = []
        for channel, (offset, scale) in zip(self.raw, self.conversions, strict=True):
            raw = read_number(self.folder / f"{channel}_raw")
            if raw is None:
                raise SensorError(f"{self.folder / channel}_raw: cannot be read any more")
            values.append((raw + offset) * scale)
        return [Reading(now, tuple(values))]

    def close(self) -> None:
        self.pace = None


# Buffered -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class ScanElement:
    """One value in a scan of the buffer, as its `type` file describes it, e.g. "le:s12/16>>4".

    Attributes:
        index: its place among the enabled ones.
        order: "little" or "big".  signed: is it?
        bits: that count.  size: bytes that it takes.  shift: to the right, before the bits are cut out.
    """

    name: str
    index: int
    order: str
    signed: bool
    bits: int
    size: int
    shift: int

    def decode(self, data: bytes) -> int:
        """The number in its bytes."""
        number = int.from_bytes(data, "little" if self.order == "le" else "big") >> self.shift
        number &= (1 << self.bits) - 1
        return number - (1 << self.bits) if self.signed and number >> (self.bits - 1) else number


def read_element(folder: Path, name: str) -> ScanElement:
    """Reads how a channel is stored in the buffer.

    Raises:
        SensorError: its files are not there or say something else.
    """
    text, index = read_text(folder / f"{name}_type") or "", read_number(folder / f"{name}_index")
    found = TYPE.fullmatch(text)
    if found is None or index is None or found[5] not in (None, "1") or int(found[4]) % 8:
        raise SensorError(
            f"{folder / name}: type {text!r}, index {index}; expected such as 'le:s16/16>>0' and a number"
        )
    order, sign, bits, stored, _, shift = found.groups()
    return ScanElement(name, int(index), order, sign == "s", int(bits), int(stored) // 8, int(shift))


def place_elements(elements: list[ScanElement]) -> tuple[dict[str, int], int]:
    """Offsets of all elements in a scan, and its size: each lies at a multiple of its size, the scan ends at one, too.

    Source: the kernel's documentation of industrialio buffers ("aligned to its storage size").
    """
    offsets, at = {}, 0
    for element in sorted(elements, key=lambda one: one.index):
        at += -at % element.size
        offsets[element.name] = at
        at += element.size
    return offsets, at + -at % max(element.size for element in elements)


class IioBuffered:
    """A device whose driver fills a buffer at its own rate: no sample is missed while we are busy.

    Args:
        folder: of the device.  node: its file of bytes; None: dev/iio:deviceN beside the folder's root.
        rate_hz: written to sampling_frequency; None: as it is.
        channels: such as "in_accel_x"; None: all that have a scan element.
        trigger: name written to trigger/current_trigger, for devices that need one.
    """

    def __init__(
        self,
        folder: Path,
        node: Path | None = None,
        rate_hz: float | None = None,
        channels: list[str] | None = None,
        trigger: str = "",
    ) -> None:
        self.folder, self.scan, self.trigger = folder, folder / "scan_elements", trigger
        self.node = node or folder.parents[4] / "dev" / folder.name
        self.raw = channels or list_channels(self.scan, "{}_en")
        if not self.raw:
            raise UsageError(f"{self.scan}: no file in_*_en, so this device has no buffer; poll it")
        self.wanted, self.rate_hz = rate_hz, rate_hz
        self.name = read_text(folder / "name") or folder.name
        self.channels, self.units = describe_channels(self.raw)
        self.file, self.runs = -1, False

    def open(self) -> None:
        """Chooses channels and rate, and lets the buffer run; it must be off while these are changed."""
        self.write("buffer/enable", "0")
        if self.trigger:
            self.write("trigger/current_trigger", self.trigger)
        if (self.folder / "current_timestamp_clock").exists():
            self.write("current_timestamp_clock", "realtime")  # another clock's times could not be put beside labels
        rate = next(iter(sorted(self.folder.glob("*sampling_frequency"))), self.folder / "sampling_frequency")
        if self.wanted is not None:
            self.write(rate.name, f"{self.wanted:g}")
        self.rate_hz = read_number(rate) or self.wanted
        chosen = [*self.raw, *([TIMESTAMP] if (self.scan / f"{TIMESTAMP}_en").exists() else [])]
        for file in sorted(self.scan.glob("*_en")):
            self.write(f"scan_elements/{file.name}", "1" if file.name.removesuffix("_en") in chosen else "0")
        self.elements = [read_element(self.scan, name) for name in chosen]
        self.offsets, self.size = place_elements(self.elements)
        self.conversions = {name: read_conversion(self.folder, name) for name in self.raw}
        self.rest = b""
        self.write("buffer/length", str(BUFFER))
        self.write("buffer/enable", "1")
        self.runs = True
        try:
            self.file = os.open(self.node, os.O_RDONLY | os.O_NONBLOCK)
        except OSError as error:
            raise SensorError(f"{self.node}: {error.strerror}; a group or a udev rule may allow it") from error

    def write(self, name: str, text: str) -> None:
        try:
            (self.folder / name).write_text(text)
        except OSError as error:
            raise SensorError(f"{self.folder / name}: {text!r} cannot be written: {error.strerror}") from error

    def read(self, timeout: float) -> list[Reading]:
        if not select.select([self.file], [], [], timeout)[0]:
            return []
        try:
            data = os.read(self.file, self.size * BUFFER)
        except BlockingIOError:
            return []
        except OSError as error:
            raise SensorError(f"{self.node}: {error.strerror}") from error
        if not data:
            raise SensorEnded(f"{self.node}: no more bytes")
        data = self.rest + data
        whole = len(data) - len(data) % self.size
        self.rest = data[whole:]
        arrived = time.time()
        return [self.decode(data[at : at + self.size], arrived) for at in range(0, whole, self.size)]

    def decode(self, scan: bytes, arrived: float) -> Reading:
        """One scan as a reading; its time is the driver's, in ns since 1970, where the device gives one."""
        raw = {e.name: e.decode(scan[self.offsets[e.name] : self.offsets[e.name] + e.size]) for e in self.elements}
        values = tuple((raw[name] + offset) * scale for name, (offset, scale) in self.conversions.items())
        return Reading(raw[TIMESTAMP] / 1e9 if TIMESTAMP in raw else arrived, values)

    def close(self) -> None:
        if self.file >= 0:
            os.close(self.file)
            self.file = -1
        if self.runs:  # also where its bytes could not be opened: a running buffer costs the sensor's power
            self.runs = False
            self.write("buffer/enable", "0")
