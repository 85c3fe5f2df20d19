"""Recordings in EDF, BDF and WFDB as rows: signals of several rates on one clock, annotations as labels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from edge_sdk.data.traces.form import Stated
from edge_sdk.data.traces.repairs import Repairs
from edge_sdk.data.traces.times import find_zone, from_local
from edge_sdk.errors import UsageError
from edge_sdk.hardware.sensors.edf import read_edf_file
from edge_sdk.replay.imports.recording import Recorded, RecordedSignal, join_signals
from edge_sdk.replay.imports.wfdb_records import read_record, read_rhythms
from edge_sdk.replay.labels.intervals import label_rows

EDF = (".edf", ".bdf", ".rec")


def read_signal_file(path: Path, name: str, said: Stated, repairs: Repairs) -> Recorded:
    """Reads a recording.

    Args:
        name: of its device.

    Raises:
        UsageError: it cannot be read, or a channel that was named is not there.
    """
    if path.suffix.lower() in EDF:
        signals, units, start, spans = read_edf_signals(path, repairs)
    else:
        signals, units, start, spans = read_wfdb_signals(path, repairs)
    rows = join_signals(choose(path, signals, said.channels), repairs)
    label_rows(rows, spans, repairs, said.sets)
    if start is not None:
        rows.time = rows.time + start
        if said.zone is not None:
            rows.time, _ = from_local(rows.time, find_zone(said.zone))
    first = f"{rows.time[0]:.3f}" if len(rows.time) else ""
    return Recorded(name, path, rows, repairs, first, start is not None, said.zone is not None, units)


Read = tuple[list[RecordedSignal], dict[str, str], float | None, list[tuple[float, float, str]]]
"""Signals, seconds from the start; their units; when they begin; and spans of time with labels."""


def read_edf_signals(path: Path, repairs: Repairs) -> Read:
    """Reads EDF and BDF. Annotations that last are labels; those of a moment are not."""
    found = read_edf_file(path)
    for note in found.notes:
        repairs.doubt(note)
    if not found.signals:
        raise UsageError(f"{path}: no signals beside annotations")
    signals = []
    for samples in dict.fromkeys(signal.samples for signal in found.signals):
        own = [n for n, signal in enumerate(found.signals) if signal.samples == samples]
        names = tuple(found.signals[n].label for n in own)
        values = np.stack([found.columns[n] for n in own], 1)
        signals.append(RecordedSignal(names, found.times(found.signals[own[0]]), values))
    moments = sum(not lasts for _, lasts, _ in found.annotations)
    if moments:
        repairs.note(f"{moments} annotations of a moment are no labels")
    spans = [(at, at + lasts, text) for at, lasts, text in found.annotations if lasts]
    return signals, {signal.label: signal.unit for signal in found.signals}, found.start, spans


def read_wfdb_signals(path: Path, repairs: Repairs) -> Read:
    """Reads WFDB. Rhythms and other states that notes name are labels, each until the next one."""
    stored, notes = read_record(path)
    for note in notes:
        repairs.doubt(note)
    signals = [
        RecordedSignal(
            one.channels, np.arange(len(one)) / one.rate_hz, np.stack([np.asarray(c) for c in one.columns], 1)
        )
        for one in stored
    ]
    begins = read_rhythms(path)
    ends = [at for at, _ in begins[1:]] + [np.inf] * bool(begins)
    spans = [(at, end, text) for (at, text), end in zip(begins, ends, strict=True)]
    units = {name: unit for one in stored for name, unit in zip(one.channels, one.units, strict=True)}
    return signals, units, stored[0].start, spans


def choose(path: Path, signals: Sequence[RecordedSignal], channels: Sequence[str] | None) -> list[RecordedSignal]:
    """The signals with the channels that somebody named, or all."""
    if channels is None:
        return list(signals)
    known = [name for signal in signals for name in signal.names]
    for name in channels:
        if name not in known:
            raise UsageError(f"{path}: no channel {name!r} among {', '.join(known)}")
    found = []
    for signal in signals:
        own = [n for n, name in enumerate(signal.names) if name in channels]
        if own:
            found.append(RecordedSignal(tuple(signal.names[n] for n in own), signal.time, signal.values[:, own]))
    return found
