"""Recordings of PhysioNet to be played: a header RECORD.hea and signals in the formats 16 and 212, which most
databases have. It needs no package, so a device can play them; `auscult traces import` reads all formats.

Source: G. B. Moody, WFDB Applications Guide, header(5) and signal(5).
"""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from edge_sdk.errors import UsageError
from edge_sdk.hardware.sensors.recording import StoredSignals

RATE, GAIN = 250.0, 200.0
"""Samples per second, and units of the converter per unit of the signal, where a header does not say."""
LARGEST = 1 << 30
GAIN_FIELD = re.compile(r"([-+0-9.eE]+)(?:\((-?\d+)\))?(?:/(\S+))?")
INVALID = {16: -(1 << 15), 212: -(1 << 11)}
"""Number that stands for "no value"."""


@dataclass(frozen=True)
class SignalLine:
    """A signal, as its line in the header tells: value = (number - baseline) / gain."""

    file: str
    format: int
    offset: int
    gain: float
    baseline: float
    unit: str
    name: str


def read_wfdb(path: Path) -> StoredSignals:
    """Reads a recording by its header file or by its name without a suffix.

    Raises:
        UsageError: it cannot be read, or has something that is not read here; it names the file and the field.
    """
    header = path if path.suffix == ".hea" else path.with_name(f"{path.name}.hea")
    try:
        lines = header.read_text(encoding="latin-1").splitlines()
    except OSError as error:
        raise UsageError(f"{header}: cannot be read: {error.strerror}") from error
    lines = [line for line in lines if line.strip() and not line.startswith("#")]
    try:
        first = lines[0].split()
        name, count = first[0], int(first[1])
        if "/" in name:
            raise UsageError(f"{header}: a record of several segments; name one of its segments")
        rate = float(re.split("[/(]", first[2])[0]) if len(first) > 2 else RATE
        signals = [read_signal(line) for line in lines[1 : 1 + count]]
        if len(signals) != count or not count or not 0 < rate < 1e6:
            raise ValueError(f"{len(signals)} signals of {count}, {rate} samples per second")
    except (IndexError, ValueError) as error:
        raise UsageError(f"{header}: no header of WFDB: {error}") from error
    columns = read_columns(header.parent, signals)
    told, there = first[3:4], min(map(len, columns))
    if told and told[0].isdigit() and int(told[0]) > there:
        raise UsageError(f"{header}: cut short: {there} of {told[0]} samples are in its files")
    names = tuple(line.name or f"signal-{number}" for number, line in enumerate(signals))
    return StoredSignals(name, rate, names, tuple(s.unit for s in signals), columns, read_start(first[4:6]))


def read_signal(line: str) -> SignalLine:
    """Reads the line of a signal: file, format, gain(baseline)/unit, resolution, zero, first, checksum, block, name."""
    words = line.split(maxsplit=8)
    form = re.fullmatch(r"(\d+)(?:\+(\d+))?", words[1])
    if form is None or int(form[1]) not in INVALID:
        raise ValueError(f"signal format {words[1]!r}; 16 and 212 are read, one sample per frame")
    gain = GAIN_FIELD.fullmatch(words[2]) if len(words) > 2 else None
    factor = float(gain[1]) if gain else 0.0
    if not math.isfinite(factor):
        raise ValueError(f"gain {words[2]!r}; a finite number is needed")
    zero = float(words[4]) if len(words) > 4 else 0.0
    baseline = float(gain[2]) if gain and gain[2] else zero
    unit = gain[3] if gain and gain[3] else "mV"
    name = words[8].strip() if len(words) > 8 else ""
    return SignalLine(words[0], int(form[1]), int(form[2] or 0), factor or GAIN, baseline, unit, name)


def read_start(words: Sequence[str]) -> float | None:
    """Start of a recording, seconds since 1970, from "12:30:00" and "24/12/2001"; None without both of them."""
    try:
        moment = datetime.strptime(" ".join(words).split(".")[0], "%H:%M:%S %d/%m/%Y")
    except ValueError:
        return None
    return moment.replace(tzinfo=UTC).timestamp()


def read_columns(folder: Path, signals: Sequence[SignalLine]) -> tuple[Sequence[float], ...]:
    """Reads all signals; those of one file take turns in it."""
    columns: dict[int, Sequence[float]] = {}
    for name in dict.fromkeys(signal.file for signal in signals):
        own = [number for number, signal in enumerate(signals) if signal.file == name]
        numbers = read_numbers(folder, signals[own[0]])
        for place, number in enumerate(own):
            columns[number] = convert(numbers[place :: len(own)], signals[number])
    return tuple(columns[number] for number in range(len(signals)))


def read_numbers(folder: Path, signal: SignalLine) -> array[int]:
    """Numbers of a file of signals.

    Raises:
        UsageError: it is missing, or its name leads elsewhere: a header is somebody else's text.
    """
    if Path(signal.file).name != signal.file:
        raise UsageError(f"{folder}: the header names {signal.file!r}; a file beside it was expected")
    try:
        if (folder / signal.file).stat().st_size > LARGEST:
            raise UsageError(f"{folder / signal.file}: more than {LARGEST:,} bytes")
        data = (folder / signal.file).read_bytes()[signal.offset :]
    except OSError as error:
        raise UsageError(f"{folder / signal.file}: cannot be read: {error.strerror}") from error
    return unpack_212(data) if signal.format == 212 else unpack_16(data)


def unpack_16(data: bytes) -> array[int]:
    """Numbers of format 16: two bytes each, little end first."""
    numbers = array("h", data[: len(data) // 2 * 2])
    if array("h", [1]).tobytes() != b"\1\0":
        numbers.byteswap()
    return numbers


def unpack_212(data: bytes) -> array[int]:
    """Numbers of format 212: two of 12 bits in three bytes; the middle one has the high bits of both."""
    numbers = array("h")
    for at in range(0, len(data) - 1, 3):
        middle = data[at + 1]
        numbers.append(sign_12(data[at] | (middle & 0x0F) << 8))
        if at + 2 < len(data):
            numbers.append(sign_12(data[at + 2] | (middle & 0xF0) << 4))
    return numbers


def sign_12(number: int) -> int:
    return number - 4096 if number >= 2048 else number


def convert(numbers: Sequence[int], signal: SignalLine) -> array[float]:
    """Numbers of the converter as values in the signal's unit; NaN where there is none."""
    invalid = INVALID[signal.format]
    return array("d", (math.nan if n == invalid else (n - signal.baseline) / signal.gain for n in numbers))
