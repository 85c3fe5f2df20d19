"""Recordings of sports watches in Garmin's FIT: what they note each second, with the sport as the label.

A watch writes a message of the kind `record` about each second, or only when something has changed. Its numbers become
channels at 1 Hz: values on the lines between two records that are at most four of the usual steps apart, else none.
Positions stay out: they say where somebody lives. Source: FIT protocol, https://developer.garmin.com/fit/protocol.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from edge_sdk.data.traces.form import Stated
from edge_sdk.data.traces.repairs import Repairs
from edge_sdk.errors import UsageError
from edge_sdk.replay.imports.recording import Recorded, RecordedSignal, recorded_arrays, values_at
from edge_sdk.replay.imports.signal_files import choose
from edge_sdk.replay.labels.intervals import label_rows

FIT = (".fit",)
POSITIONS = ("position_lat", "position_long")
TIME = "timestamp"
LONGEST_DAYS = 31
"""Days that one file may span: a wrong time would be filled with months of empty rows."""
MOST_RECORDS, MOST_NUMBERS = LONGEST_DAYS * 86_400, 2 * 10**8
"""Records of a file, one each second, and numbers in the table of its seconds and channels."""


def read_fit_file(path: Path, name: str, said: Stated, repairs: Repairs) -> Recorded:
    """Reads a recording.

    Args:
        name: of its device.

    Raises:
        UsageError: it cannot be read, has no records, or a channel that was named is not there.
    """
    records, units, sports = read_messages(path)
    if len(records) < 2:
        raise UsageError(f"{path}: {len(records)} records with a time; expected some of each second of an activity")
    records = in_order(records, repairs)
    channels = sorted({key for _, values in records for key in values} - {*POSITIONS})
    if not channels:
        raise UsageError(f"{path}: its records have no numbers beside positions, which are not imported")
    if any(key in values for _, values in records for key in POSITIONS):
        repairs.note("positions are left out")
    time = np.array([at for at, _ in records])
    if time[-1] - time[0] > LONGEST_DAYS * 86_400:
        raise UsageError(
            f"{path}: records from {time[0]:.0f} to {time[-1]:.0f} (s since 1970); expected a month at most"
        )
    rows = max(len(records), int(time[-1] - time[0]) + 1)
    if rows * len(channels) > MOST_NUMBERS:
        raise UsageError(f"{path}: {rows} rows of {len(channels)} channels; expected {MOST_NUMBERS} numbers at most")
    values = np.array([[each.get(channel, np.nan) for channel in channels] for _, each in records], np.float64)
    (kept,) = choose(path, [RecordedSignal(tuple(channels), time, values)], said.channels)
    seconds = np.arange(time[0], time[-1] + 0.5)
    columns = np.concatenate([each_second(kept, k, seconds) for k in range(len(kept.names))], 1)
    found = recorded_arrays(path, name, Stated(), time=seconds, values=columns, channels=kept.names, units=units)
    found.repairs = repairs
    label_rows(found.rows, sports)
    return found


def each_second(signal: RecordedSignal, channel: int, seconds: Any) -> Any:
    """One channel (n, 1) at these times, by the records that have it."""
    there = np.isfinite(signal.values[:, channel])
    own = RecordedSignal(signal.names[channel : channel + 1], signal.time[there], signal.values[there, channel, None])
    if len(own.time) < 2:
        return np.full((len(seconds), 1), np.nan)
    return values_at(own, seconds)


def in_order(records: list[tuple[float, dict[str, float]]], repairs: Repairs) -> list[tuple[float, dict[str, float]]]:
    """Records by their times, of those with one time the last one."""
    found = {at: values for at, values in records}
    if len(found) < len(records) or [*found] != sorted(found):
        repairs.doubt(f"{len(records) - len(found)} records with the time of another one left out, the rest sorted")
    return sorted(found.items(), key=lambda one: one[0])


def read_messages(
    path: Path,
) -> tuple[list[tuple[float, dict[str, float]]], dict[str, str], list[tuple[float, float, str]]]:
    """Times with the numbers of their records, units of these, and spans of time with a sport.

    Raises:
        UsageError: the file is damaged, or nothing is installed that reads it.
    """
    try:
        import fitdecode
    except ModuleNotFoundError as error:
        raise UsageError(f"{path}: FIT files need fitdecode: pip install 'auscult[files]'") from error
    strictly = {"check_crc": fitdecode.CrcCheck.RAISE, "error_handling": fitdecode.ErrorHandling.RAISE}
    records, units, sports = list[tuple[float, dict[str, float]]](), dict[str, str](), list[tuple[float, float, str]]()
    try:
        with fitdecode.FitReader(str(path), **strictly) as file:
            for message in file:
                if not isinstance(message, fitdecode.FitDataMessage):
                    continue
                if message.name == "record" and message.has_field(TIME):
                    records += read_record(message, units)
                    if len(records) > MOST_RECORDS:
                        raise UsageError(f"{path}: more than {MOST_RECORDS} records; expected a month at most")
                elif message.name == "session":
                    sports += read_session(message)
    except (fitdecode.FitError, OSError, ValueError, KeyError, IndexError, TypeError) as error:
        raise UsageError(f"{path}: no FIT file, or a damaged one: {error}") from error
    return records, units, sports


def read_record(message: Any, units: dict[str, str]) -> list[tuple[float, dict[str, float]]]:
    """The time and the numbers of a message; notes their units."""
    at = message.get_value(TIME)
    if not isinstance(at, datetime):
        return []
    values = dict[str, float]()
    for field in message.fields:
        if field.name in POSITIONS:
            values[field.name] = 0.0  # that there is one is all that is told
        elif field.name != TIME and type(field.value) in (int, float) and np.isfinite(field.value):
            values[field.name] = float(field.value)
            units.setdefault(field.name, field.units or "")
    return [(at.timestamp(), values)]


def read_session(message: Any) -> list[tuple[float, float, str]]:
    """From when to when a sport was done; nothing where the message does not say so."""
    begin, lasts, sport = (
        message.get_value(key, fallback=None) for key in ("start_time", "total_elapsed_time", "sport")
    )
    if not isinstance(begin, datetime) or not isinstance(lasts, (int, float)) or not isinstance(sport, str):
        return []
    return [(begin.timestamp(), begin.timestamp() + float(lasts), sport)]
