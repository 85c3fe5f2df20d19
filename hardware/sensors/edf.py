"""Recordings in EDF, EDF+ (whole or with gaps) and BDF: signals of 16 or 24 bits in records, and annotations.

Source: Kemp et al. 1992, "A simple format for exchange of digitized polygraphic recordings"; Kemp and Olivan 2003 for
EDF+; BioSemi's page on BDF. Libraries refuse files that are not quite as these have it (decimal commas, a record that
is cut at the end), and those with gaps: recorders write such files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from edge_sdk.errors import UsageError
from edge_sdk.hardware.sensors.recording import StoredSignals

MAIN = 256
"""Bytes of the header's first part, and of what it has for each signal."""
FIELDS = {
    "label": 16,
    "transducer": 80,
    "unit": 8,
    "low": 8,
    "high": 8,
    "digital_low": 8,
    "digital_high": 8,
    "filters": 80,
    "samples": 8,
    "reserved": 32,
}
ANNOTATIONS = ("EDF Annotations", "BDF Annotations")
BLANK = ("", "-", ".")
"""Labels of signals that hold nothing."""
BIOSEMI = b"\xffBIOSEMI"
LARGEST = 1 << 32
MOST_SIGNALS = 4096


@dataclass(frozen=True)
class EdfSignal:
    """A signal, as the header tells of it.

    Attributes:
        label, unit: as written.  low, high: values of `digital_low` and `digital_high`.
        samples: in a record.
    """

    label: str
    unit: str
    low: float
    high: float
    digital_low: int
    digital_high: int
    samples: int

    def convert(self, numbers: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Values of numbers of the converter, in the signal's unit."""
        step = (self.high - self.low) / (self.digital_high - self.digital_low)
        return np.asarray(self.low + (numbers.astype(np.float64) - self.digital_low) * step)


@dataclass(frozen=True, eq=False)
class EdfRecording:
    """What an EDF file holds.

    Attributes:
        signals: but those of annotations and blank ones; names differ.
        columns: of each signal float64 (records x samples,).
        began: float64 (records,), seconds from the start of the recording to each record's.
        seconds: of a record.
        start: seconds since 1970, as if its local time were UTC; None where the file does not tell.
        annotations: seconds from the start, seconds that it lasts (0: a moment), text.
        notes: what is not as it should be.
    """

    signals: tuple[EdfSignal, ...]
    columns: tuple[npt.NDArray[np.float64], ...]
    began: npt.NDArray[np.float64]
    seconds: float
    start: float | None
    annotations: tuple[tuple[float, float, str], ...] = ()
    notes: tuple[str, ...] = ()

    def times(self, signal: EdfSignal) -> npt.NDArray[np.float64]:
        """Seconds from the start of each sample of a signal."""
        inner = np.arange(signal.samples) * (self.seconds / signal.samples)
        return np.asarray((self.began[:, None] + inner).ravel())


@dataclass
class Head:
    """The header of a file."""

    signals: list[EdfSignal]
    size: int
    records: int
    seconds: float
    start: float | None
    gaps: bool
    width: int
    """Bytes of a number."""
    notes: list[str] = field(default_factory=list)

    @property
    def record_size(self) -> int:
        return self.width * sum(signal.samples for signal in self.signals)


def read_edf(path: Path, channels: Sequence[str] = ()) -> StoredSignals:
    """Reads a recording without gaps whose signals have one rate, to be played.

    Args:
        path: of the file.
        channels: labels of the signals wanted; none: all but annotations and blank ones.

    Raises:
        UsageError: it is no EDF file, is cut short, has gaps, or several rates; it names file and field.
    """
    found = read_edf_file(path)
    if found.notes:
        raise UsageError(f"{path}: {found.notes[0]}")
    if len(found.began) > 1 and np.ptp(np.diff(found.began)) > 1e-6:
        raise UsageError(f"{path}: a recording with gaps; `auscult traces import` makes a trace of it")
    chosen = choose_signals(path, found.signals, channels)
    own = [found.signals[n] for n in chosen]
    names, units = tuple(signal.label for signal in own), tuple(signal.unit for signal in own)
    columns: tuple[Any, ...] = tuple(found.columns[n].tolist() for n in chosen)
    start = None if found.start is None else found.start + float(found.began[0] if len(found.began) else 0.0)
    return StoredSignals(path.stem, own[0].samples / found.seconds, names, units, columns, start)


def choose_signals(path: Path, signals: Sequence[EdfSignal], channels: Sequence[str]) -> list[int]:
    """Numbers of the wanted signals, of one rate."""
    labels = [signal.label for signal in signals]
    for name in channels:
        if labels.count(name) != 1:
            raise UsageError(f"{path}: {labels.count(name)} signals are called {name!r}; there are {', '.join(labels)}")
    chosen = [labels.index(name) for name in channels] or [*range(len(signals))]
    rates = {signals[n].samples for n in chosen}
    if len(rates) != 1:
        told = ", ".join(f"{signals[n].label} ({signals[n].samples} a record)" for n in chosen)
        raise UsageError(f"{path}: signals of {len(rates)} rates: {told}; choose channels of one rate")
    return chosen


def read_edf_file(path: Path) -> EdfRecording:
    """Reads all that a file holds.

    Raises:
        UsageError: it is no EDF file; it names file and field.
    """
    try:
        if path.stat().st_size > LARGEST:
            raise UsageError(f"{path}: more than {LARGEST:,} bytes")
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        head = read_header(data)
    except ValueError as error:
        raise UsageError(f"{path}: no EDF file: {error}") from error
    records = count_records(data, head)
    body = np.frombuffer(data, np.uint8, records * head.record_size, head.size).reshape(records, head.record_size)
    texts, signals, columns, at = list[bytes](), list[EdfSignal](), list[npt.NDArray[np.float64]](), 0
    for signal in head.signals:
        own, at = body[:, at : at + head.width * signal.samples], at + head.width * signal.samples
        if signal.label in ANNOTATIONS:
            texts = texts or [row.tobytes() for row in own]
        elif signal.label in BLANK:
            head.notes.append(f"a signal called {signal.label!r} is left out, it holds nothing")
        else:
            signals.append(signal)
            columns.append(signal.convert(unpack(own, head.width).ravel()))
    began: npt.NDArray[np.float64] = np.arange(records, dtype=np.float64) * head.seconds
    starts, annotations = read_annotations(texts)
    if head.gaps and len(starts) == records:
        began = starts
    elif len(starts) and not head.gaps:
        began += starts[0]  # less than a second, which the header's start cannot tell
    elif head.gaps:
        head.notes.append("a recording with gaps that does not say when its records began: taken as one without")
    notes = tuple(dict.fromkeys(head.notes))
    named = tuple(name_apart(signals))
    return EdfRecording(named, tuple(columns), began, head.seconds, head.start, annotations, notes)


def count_records(data: bytes, head: Head) -> int:
    """Whole records that are there. A recorder that was switched off before it could say how many says -1."""
    there = (len(data) - head.size) // head.record_size if head.record_size else 0
    if head.records < 0:
        return there
    if there < head.records:
        head.notes.append(f"cut short: {there} of {head.records} records of {head.record_size} bytes are there")
    return min(there, head.records)


def read_header(data: bytes) -> Head:
    """The header, checked."""
    text = data[:MAIN].decode("latin-1")
    biosemi = data[:8] == BIOSEMI
    if len(text) < MAIN or not (biosemi or text[:8].strip() == "0"):
        raise ValueError("it does not begin with version 0")
    size, records, seconds, count = int(text[184:192]), int(text[236:244]), number(text[244:252]), int(text[252:256])
    if not 1 <= count <= MOST_SIGNALS or size != MAIN * (count + 1) or len(data) < size or not 0 <= seconds < 1e6:
        raise ValueError(f"{count} signals, a header of {size} bytes, records of {seconds} s")
    columns, at = {}, MAIN
    for name, width in FIELDS.items():
        columns[name] = [data[at + n * width : at + (n + 1) * width].decode("latin-1").strip() for n in range(count)]
        at += count * width
    signals = [read_signal_fields(columns, n) for n in range(count)]
    if not seconds and any(signal.label not in ANNOTATIONS for signal in signals):
        raise ValueError(f"records of {seconds} s")
    gaps = text[192:197] in ("EDF+D", "BDF+D")
    return Head(signals, size, records, seconds, read_moment(text[168:184]), gaps, 3 if biosemi else 2)


def number(text: str) -> float:
    """A number of the header; some recorders write decimal commas."""
    return float(text.strip().replace(",", "."))


def read_signal_fields(columns: dict[str, list[str]], n: int) -> EdfSignal:
    low, high, bottom, top, samples = (columns[k][n] for k in ("low", "high", "digital_low", "digital_high", "samples"))
    label = columns["label"][n]
    if int(samples) < 1:
        raise ValueError(f"signal {label!r}: {samples} samples in a record")
    if label in (*ANNOTATIONS, *BLANK):
        return EdfSignal(label, "", 0.0, 1.0, 0, 1, int(samples))
    signal = EdfSignal(label, columns["unit"][n], number(low), number(high), int(bottom), int(top), int(samples))
    if signal.digital_high == signal.digital_low:
        raise ValueError(f"signal {label!r}: digital {bottom} to {top}; two different numbers are needed")
    if not isfinite(signal.low) or not isfinite(signal.high) or signal.low == signal.high:
        raise ValueError(f"signal {signal.label!r}: values from {low} to {high}; two different numbers are needed")
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


def unpack(data: npt.NDArray[np.uint8], width: int) -> npt.NDArray[Any]:
    """Numbers (records, samples) of bytes (records, samples x width), low byte first."""
    whole = np.ascontiguousarray(data)
    if width == 2:
        return whole.view("<i2")
    parts = whole.reshape(len(whole), whole.shape[1] // 3, 3).astype(np.int32)
    numbers = parts[..., 0] | parts[..., 1] << 8 | parts[..., 2] << 16
    return np.asarray(numbers - ((numbers & 0x800000) << 1))


def read_annotations(
    records: Sequence[bytes],
) -> tuple[npt.NDArray[np.float64], tuple[tuple[float, float, str], ...]]:
    """Seconds at which records begin, as far as they say it, and annotations, in the order of their times.

    A list in a record is "+ONSET[\\x15SECONDS]\\x14TEXT\\x14...\\x00"; the first of a record has an empty text.
    """
    starts, found = list[float](), list[tuple[float, float, str]]()
    for record in records:
        for place, part in enumerate(filter(None, record.split(b"\0"))):
            when, *texts = part.decode("utf-8", "replace").split("\x14")
            onset, _, lasts = when.partition("\x15")
            try:
                at, seconds = float(onset), float(lasts or 0.0)
            except ValueError:
                continue  # not what the format has; signals are of use without it
            if place == 0 and texts[:1] == [""]:
                starts.append(at)
            found += [(at, seconds, text) for text in texts if text]
    return np.array(starts), tuple(sorted(found))


def name_apart(signals: Sequence[EdfSignal]) -> list[EdfSignal]:
    """Gives signals of one label numbers, from the second on."""
    seen: dict[str, int] = {}
    found = []
    for signal in signals:
        seen[signal.label] = seen.get(signal.label, 0) + 1
        label = signal.label if seen[signal.label] == 1 else f"{signal.label}-{seen[signal.label]}"
        fields = {name: getattr(signal, name) for name in EdfSignal.__dataclass_fields__}
        found.append(EdfSignal(**{**fields, "label": label}))
    return found
