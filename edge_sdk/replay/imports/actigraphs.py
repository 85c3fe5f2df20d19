"""Recordings of actigraphs: ActiGraph `.gt3x`, GENEActiv `.bin` and Axivity `.cwa`, as `actfast` reads them.

Accelerations (g) and angular velocities (deg/s) keep their clock; light and temperature are brought to it. What a
device notes of itself (battery, button, whether it is worn) and all that the file says of a person stays out. Where it
slept or was off there is a gap. Its clock shows local time, and nobody sets it while it records: one offset from UTC
holds for the whole file, that of --zone where the recording begins, or else the one that the file names.

Sources: https://github.com/actigraph/GT3X-File-Format; Activinsights, GENEActiv instruction manual, "Decoding .bin
files"; Open Movement, AX device technical documentation, cwa.h.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from edge_sdk.data.traces.form import Stated
from edge_sdk.data.traces.repairs import Repairs
from edge_sdk.data.traces.times import find_zone, offset_of
from edge_sdk.errors import UsageError
from edge_sdk.replay.imports.actigraph_files import KINDS, check_file, unpacked
from edge_sdk.replay.imports.recording import Recorded, RecordedSignal, even_blocks, join_signals, values_at
from edge_sdk.replay.imports.signal_files import choose

CHANNELS = {
    "acceleration": ("ax", "ay", "az"),
    "gyroscope": ("gx", "gy", "gz"),
    "light": ("light",),
    "temperature": ("temp",),
}
"""Sensor -> its channels."""
UNITS = dict.fromkeys(("ax", "ay", "az"), "g") | dict.fromkeys(("gx", "gy", "gz"), "deg/s") | {"temp": "Cel"}
LUX = (".gt3x", ".bin")
"""Whose light is in lux; an Axivity's is what its converter gave."""
COVERED = 0.5
"""Share of the samples below which a sensor that nobody has named is left out, for its sake no sample is."""
LOOK = 10_000
"""Samples that are looked at for that, and for the scale of accelerations."""
ABOVE_ALL = 32.0
"""g; no actigraph measures so much, so such numbers are steps of its converter."""
STEPS = {"NEO": 341.0, "CLE": 341.0, "MRA": 341.0}
"""Steps of an ActiGraph's converter for one g, by the first letters of its serial number; of others 256."""
IDENTITY = {
    ".gt3x": ("ActiGraph", "info", "Device Type", "Serial Number"),
    ".bin": ("Activinsights", "Device Identity", "Device Type", "Device Unique Serial Code"),
    ".cwa": ("Axivity", "device", "hardware_type", "device_id"),
}
"""Who made it, and where the metadata have its kind and its serial number."""
OFFSET = re.compile(r"(?:GMT|UTC)?\s*([+-]?)(\d{1,2}):(\d\d)(?::\d\d)?\s*")
DAY = 86_400
BLOCK = 1 << 20
"""Times that are converted at once."""

Metadata = Mapping[str, Mapping[str, str]]


def read_actigraph(path: Path, name: str, said: Stated, repairs: Repairs) -> Recorded:
    """Reads a recording, as `read_plain` does; one of an Axivity may be packed by gzip."""
    with unpacked(path, said.damaged) as plain:
        return replace(read_plain(plain, name, said, repairs), source=path)


def read_plain(path: Path, name: str, said: Stated, repairs: Repairs) -> Recorded:
    """Reads a recording.

    Args:
        name: of its device: that of the file, as one device is worn by many people, one after another.

    Raises:
        UsageError: it is something else or damaged, has no accelerations, a channel that was named is not there, or
            nothing is installed that reads it.
    """
    kind = path.suffix.lower()
    check_file(path, said.damaged)
    found = read_tables(path, said.damaged, repairs)
    metadata: Metadata = found["metadata"]
    tell_cuts(path, found, repairs)
    signals = gather_signals(path, found.pop("timeseries"), repairs)
    if kind == ".gt3x":
        correct_actigraph(metadata, signals[0], repairs)
    signals = leave_out_scarce(signals, repairs) if said.channels is None else choose(path, signals, said.channels)
    rows = join_signals(signals, repairs)
    del signals
    maker, section, model, serial = IDENTITY[kind]
    own = metadata.get(section, {})
    repairs.note(
        f"recorded by {printable(own.get(model, ''))} ({maker}), serial number {printable(own.get(serial, ''))}"
    )
    offset = find_offset(kind, metadata, float(rows.time[0]), said, repairs)
    rows.time -= offset or 0.0
    units = UNITS | ({"light": "lx"} if kind in LUX else {})
    return Recorded(name, path, rows, repairs, f"{rows.time[0]:.3f}", True, offset is not None, units)


def read_tables(path: Path, damaged: bool, repairs: Repairs) -> dict[str, Any]:
    """What `actfast` finds in a file: its metadata and tables of samples."""
    try:
        import actfast
    except ModuleNotFoundError as error:
        raise UsageError(f"{path}: {KINDS[path.suffix.lower()]} needs actfast: pip install 'auscult[files]'") from error
    try:
        found = cast(dict[str, Any], actfast.read(str(path), lenient=damaged))
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic in it is no Exception
        more = "" if damaged else "; --damaged takes what is whole"
        raise UsageError(f"{path}: damaged, {KINDS[path.suffix.lower()]} that cannot be read: {error}{more}") from error
    if warnings := found["warnings"]:
        repairs.doubt(f"{len(warnings)} damaged places left out, the first: {warnings[0]}")
    return found


def tell_cuts(path: Path, found: Mapping[str, Any], repairs: Repairs) -> None:
    """Notes where a file has fewer blocks than it says, or ends within one."""
    kind = path.suffix.lower()
    if kind == ".cwa" and path.stat().st_size % 512:
        repairs.doubt("the file ends within a block, which is left out")
    said = found["metadata"].get("Memory Status", {}).get("Number of Pages", "").strip()
    there = len(found["timeseries"].get("low_frequency", {"datetime": ()})["datetime"])
    if kind == ".bin" and said.isdecimal() and int(said) > there:
        repairs.doubt(f"{there} of the {said} pages that its head speaks of are there")


def gather_signals(path: Path, tables: dict[str, dict[str, Any]], repairs: Repairs) -> list[RecordedSignal]:
    """The signals of a file, seconds since 1970 by its own clock; that with the accelerations is the first."""
    signals, others = list[RecordedSignal](), set[str]()
    for name in list(tables):
        table = tables.pop(name)  # a day's samples are not held twice
        others |= table.keys() - {*CHANNELS, "datetime"}
        sensors = [sensor for sensor in CHANNELS if sensor in table]
        if not sensors or not len(table["datetime"]):
            continue
        nanoseconds = table.pop("datetime")
        if sensors[0] == "acceleration":
            even_blocks(nanoseconds, repairs)
        columns = [np.asarray(table.pop(sensor), np.float32).reshape(len(nanoseconds), -1) for sensor in sensors]
        names = tuple(channel for sensor in sensors for channel in CHANNELS[sensor])
        values = columns[0] if len(columns) == 1 else np.concatenate(columns, 1)
        signals.append(RecordedSignal(names, seconds_of(nanoseconds), values))
    signals.sort(key=lambda signal: signal.names[0] != "ax")
    if not signals or signals[0].names[0] != "ax":
        more = " (of an ActiGraph, records of the kind ACTIVITY are read)" * (path.suffix.lower() == ".gt3x")
        raise UsageError(f"{path}: no accelerations in it{more}")
    if others:
        repairs.note(f"{', '.join(sorted(others))} left out")
    return signals


def seconds_of(nanoseconds: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Times in seconds, each the nearest number to it: nanoseconds since 1970 are more than a float64 can tell.

    They take the place of the nanoseconds in memory.
    """
    found = nanoseconds.view(np.float64)
    for at in range(0, len(found), BLOCK):
        whole, rest = np.divmod(nanoseconds[at : at + BLOCK], 10**9)
        found[at : at + BLOCK] = whole + rest / 1e9
    return found


def correct_actigraph(metadata: Metadata, signal: RecordedSignal, repairs: Repairs) -> None:
    """Puts an ActiGraph's accelerations right, in place: the scale of a log that does not name it, which `actfast`
    takes as 1/256 (no parameters) or 1 (none among them), and axes that one firmware exchanged."""
    info = metadata.get("info", {})
    serial, values = info.get("Serial Number", "").strip(), signal.values[:, :3]
    steps = STEPS.get(serial[:3], 256.0)
    if re.fullmatch(r"\d{1,5}(\.\d+)?", info.get("Acceleration Scale", "")):
        steps = float(info["Acceleration Scale"]) or steps
    if "device_feature_enabled" not in metadata:
        values /= 256.0 * steps
        repairs.note(f"the log has no parameters: {steps:g} steps are taken as 1 g, by its serial number or info.txt")
    elif np.median(np.linalg.norm(values[:: max(1, len(values) // LOOK)], axis=1)) > ABOVE_ALL:
        values /= steps
        repairs.note(f"the log names no scale: {steps:g} steps are taken as 1 g, by its serial number or info.txt")
    if serial.startswith("MOS") and info.get("Firmware", "").strip() == "1.6.0":
        values[:, 0], values[:, 1] = values[:, 1].copy(), -values[:, 0]
        repairs.note("firmware 1.6.0 exchanged ax and ay, which are put right")


def leave_out_scarce(signals: Sequence[RecordedSignal], repairs: Repairs) -> list[RecordedSignal]:
    """The signals but those that have a value at few of the first one's samples, which would be lost with them."""
    some = signals[0].time[:: max(1, len(signals[0].time) // LOOK)]
    found = [signals[0]]
    for signal in signals[1:]:
        if np.isfinite(values_at(signal, some)).all(1).mean() >= COVERED:
            found.append(signal)
            continue
        names = ", ".join(signal.names)
        repairs.note(f"{names} left out, recorded for less than half of the time (--channels names them)")
    return found


def find_offset(kind: str, metadata: Metadata, start: float, said: Stated, repairs: Repairs) -> float | None:
    """Seconds that the device's clock is ahead of UTC; None: nobody has said.

    Args:
        start: seconds since 1970 at which the recording begins, by that clock.
    """
    offset: float | None
    if said.zone is not None:
        offset, who = offset_of(start, find_zone(said.zone), 0), f"{said.zone} is where the recording begins"
    else:
        offset, who = offset_in_file(kind, metadata), "the file says"
    if offset is None:
        return None
    hours, minutes = divmod(round(abs(offset) / 60), 60)
    repairs.note(f"its clock is taken as UTC{'-' if offset < 0 else '+'}{hours:02}:{minutes:02} throughout, as {who}")
    return offset


def offset_in_file(kind: str, metadata: Metadata) -> float | None:
    """Seconds ahead of UTC by what the file says; None: it does not."""
    if kind == ".cwa":
        minutes = metadata.get("device", {}).get("time_zone", "-1")
        known = re.fullmatch(r"-?\d+", minutes) and minutes != "-1"  # -1: it was not set
        return within_a_day(60.0 * int(minutes)) if known else None
    text = metadata.get("info", {}).get("TimeZone", "") or metadata.get("Configuration Info", {}).get("Time Zone", "")
    found = OFFSET.fullmatch(text.strip())
    if not found:
        return None
    sign, hours, minutes = found.groups()
    return within_a_day((-1 if sign == "-" else 1) * (int(hours) * 3600.0 + int(minutes) * 60))


def within_a_day(offset: float) -> float | None:
    """An offset from UTC, if it can be one."""
    return offset if abs(offset) < DAY else None


def printable(text: str) -> str:
    """A text of a file as a note can have it."""
    return re.sub(r"[^ -~]+", "", text).strip()[:40] or "unknown"
