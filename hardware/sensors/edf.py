"""Recordings in the European Data Format, EDF and EDF+C: header in ASCII, then records of 16-bit numbers.

Source: B. Kemp et al., "A simple format for exchange of digitized polygraphic recordings", 1992; and edfplus.info.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from edge_sdk.errors import UsageError
from edge_sdk.hardware.sensors.recording import StoredSignals
from edge_sdk.hardware.sensors.wfdb import LARGEST, unpack_16

MAIN = 256
FIELDS = {"label": 16, "transducer": 80, "unit": 8, "low": 8, "high": 8, "digital_low": 8}
FIELDS |= {"digital_high": 8, "filter": 80, "samples": 8, "reserved": 32}
"""Fields of the signals in the order in which they lie in the header, and their bytes."""
ANNOTATIONS = "EDF Annotations"
MOST_SIGNALS = 1024


@dataclass(frozen=True)
class EdfSignal:
    """A signal, as the header tells: numbers from digital_low to digital_high are values from low to high."""

    label: str
    unit: str
    low: float
    high: float
    digital_low: int
    digital_high: int
    samples: int

    def convert(self, number: int) -> float:
        share = (number - self.digital_low) / (self.digital_high - self.digital_low)
        return self.low + share * (self.high - self.low)


def read_edf(path: Path, channels: Sequence[str] = ()) -> StoredSignals:
    """Reads a recording.

    Args:
        path: of the file.
        channels: labels of the signals wanted; none: all but annotations. They must have one rate.

    Raises:
        UsageError: it is no EDF file, is cut short, or the signals have several rates; it names file and field.
    """
    try:
        if path.stat().st_size > LARGEST:
            raise UsageError(f"{path}: more than {LARGEST:,} bytes")
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        signals, size, records, seconds, start = read_header(data)
    except ValueError as error:
        raise UsageError(f"{path}: no EDF file: {error}") from error
    chosen = choose_signals(path, signals, channels)
    width = 2 * sum(signal.samples for signal in signals)
    if records < 0:  # the recorder was switched off before it could say
        records = (len(data) - size) // width
    if len(data) < size + records * width:
        raise UsageError(f"{path}: cut short: {records} records of {width} bytes need {size + records * width}")
    columns = [read_column(data[size:], signals, number, records, width) for number in chosen]
    own = [signals[number] for number in chosen]
    names, units = tuple(signal.label for signal in own), tuple(signal.unit for signal in own)
    return StoredSignals(path.stem, own[0].samples / seconds, names, units, tuple(columns), start)


def read_header(data: bytes) -> tuple[list[EdfSignal], int, int, float, float | None]:
    """Signals, bytes of the header, number of records, seconds of each, and start of the recording."""
    text = data[:MAIN].decode("latin-1")
    if len(text) < MAIN or text[:8].strip() != "0":
        raise ValueError("it does not begin with version 0")
    if text[192:197] == "EDF+D":
        raise ValueError("EDF+D, a recording with gaps; only those without are read")
    size, records, seconds, count = int(text[184:192]), int(text[236:244]), float(text[244:252]), int(text[252:256])
    if not 1 <= count <= MOST_SIGNALS or size != MAIN * (count + 1) or len(data) < size or not seconds > 0:
        raise ValueError(f"{count} signals, a header of {size} bytes, records of {seconds} s")
    columns, at = {}, MAIN
    for name, width in FIELDS.items():
        columns[name] = [data[at + n * width : at + (n + 1) * width].decode("latin-1").strip() for n in range(count)]
        at += count * width
    return [read_signal_fields(columns, n) for n in range(count)], size, records, seconds, read_moment(text[168:184])


def read_signal_fields(columns: dict[str, list[str]], n: int) -> EdfSignal:
    low, high, bottom, top, samples = (columns[k][n] for k in ("low", "high", "digital_low", "digital_high", "samples"))
    signal = EdfSignal(
        columns["label"][n], columns["unit"][n], float(low), float(high), int(bottom), int(top), int(samples)
    )
    if signal.digital_high == signal.digital_low or signal.samples < 1:
        raise ValueError(f"signal {signal.label!r}: digital {bottom} to {top}, {samples} samples in a record")
    return signal


def read_moment(text: str) -> float | None:
    """Start, seconds since 1970, from "24.12.0112.30.00"; years from 85 on are of the last century, as EDF has it."""
    try:
        day, month, year = int(text[0:2]), int(text[3:5]), int(text[6:8])
        hour, minute, second = int(text[8:10]), int(text[11:13]), int(text[14:16])
        full = year + (1900 if year >= 85 else 2000)
        return datetime(full, month, day, hour, minute, second, tzinfo=UTC).timestamp()
    except ValueError:
        return None


def choose_signals(path: Path, signals: Sequence[EdfSignal], channels: Sequence[str]) -> list[int]:
    """Numbers of the wanted signals, of one rate."""
    labels = [signal.label for signal in signals]
    for name in channels:
        if labels.count(name) != 1:
            raise UsageError(f"{path}: {labels.count(name)} signals are called {name!r}; there are {', '.join(labels)}")
    chosen = [labels.index(name) for name in channels] or [n for n, name in enumerate(labels) if name != ANNOTATIONS]
    rates = {signals[n].samples for n in chosen}
    if len(rates) != 1:
        told = ", ".join(f"{signals[n].label} ({signals[n].samples} a record)" for n in chosen)
        raise UsageError(f"{path}: signals of {len(rates)} rates: {told}; choose channels of one rate")
    return chosen


def read_column(body: bytes, signals: Sequence[EdfSignal], number: int, records: int, width: int) -> array[float]:
    """All samples of one signal, record after record."""
    signal, before = signals[number], 2 * sum(s.samples for s in signals[:number])
    column = array("d")
    for record in range(records):
        at = record * width + before
        column.extend(signal.convert(n) for n in unpack_16(body[at : at + 2 * signal.samples]))
    return column
