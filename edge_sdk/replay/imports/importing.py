"""Recordings of other people's formats as traces: `auscult traces import`.

DIR/NAME.csv      time (seconds since 1970 where the source has dates), channels, activity; one file for each device
DIR/import.toml   what was read with which options, what was guessed, and what was put right
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from edge_sdk.data.traces import Trace, resample_trace
from edge_sdk.data.traces.form import Stated
from edge_sdk.data.traces.read import make_trace
from edge_sdk.data.traces.windows import find_gaps, longest_step
from edge_sdk.errors import UsageError
from edge_sdk.replay.imports.recording import Recorded
from edge_sdk.replay.imports.sources import clean_name, find_sources, read_source
from edge_sdk.replay.imports.writing import write_trace
from edge_sdk.replay.toml_files import write_toml
from edge_sdk.replay.traces.synth import MARK, open_folder

NOTES = "import.toml"
GAP = 0.5
"""Seconds without a sample that are counted as a gap."""


@dataclass(frozen=True)
class DeviceLine:
    """A device's line in the table of what was imported, or is in a folder.

    Attributes:
        name: of the device. source: the file that it was read from.
        samples, rate_hz, channels: of its trace.
        hours: recorded, without gaps.
        gaps: times that the sensor was off.
        began: seconds since 1970; None: not known.
        seconds: class -> how long it has that label.
        unlabelled: share of the samples without a label.
        notes, repairs: one text each for what was guessed, and put right.
        units: of channels by their names.
    """

    name: str
    source: Path
    samples: int
    rate_hz: float
    channels: tuple[str, ...]
    hours: float
    gaps: int
    began: float | None
    seconds: dict[str, float]
    unlabelled: float
    notes: tuple[str, ...]
    repairs: tuple[str, ...]
    units: dict[str, str]


def describe_trace(trace: Trace, source: Path, began: float | None, units: Mapping[str, str] | None) -> DeviceLine:
    """The line of a trace."""
    counts = np.bincount(trace.codes[trace.codes >= 0], minlength=len(trace.classes))
    off = find_gaps(trace.time, longest_step(trace, GAP))
    return DeviceLine(
        name=trace.name,
        source=source,
        samples=len(trace.time),
        rate_hz=trace.rate_hz,
        channels=trace.channels,
        hours=float((trace.time[-1] - np.diff(trace.time)[off].sum()) / 3600),
        gaps=int(off.sum()),
        began=began,
        seconds={name: float(n / trace.rate_hz) for name, n in zip(trace.classes, counts, strict=True) if n},
        unlabelled=float((trace.codes < 0).mean()),
        notes=trace.notes,
        repairs=tuple(map(str, trace.repairs)),
        units={name: unit for name, unit in (units or {}).items() if name in trace.channels and unit},
    )


def import_traces(
    source: str | Path,
    directory: str | Path,
    said: Stated | None = None,
    *,
    rate_hz: float = 0.0,
    reader: str = "",
    command: str = "",
    overwrite: bool = False,
    progress: Callable[[DeviceLine], None] | None = None,
) -> tuple[tuple[DeviceLine, ...], tuple[str, ...]]:
    """Reads recordings, and writes a trace for each device.

    Args:
        source: a file, a folder of files, or a folder of folders.
        directory: made where it is missing.
        said: how the files are written, as far as that is not to be found by looking.
        rate_hz: of all traces; 0: each as it was recorded.
        reader: of another package, which reads the files that it takes, and no others are read; "": all are.
        command: the command line, kept beside the traces.
        overwrite: write into a directory that has files already (those of the same name are replaced).
        progress: called with each device's line.

    Returns:
        A line for each device, and one for each that was left out.

    Raises:
        UsageError: there is nothing to read, the directory lies in the source, two devices have one name,
            or no device is left; under `strict` also the first thing that would be put right.
    """
    said, source = said or Stated(), Path(source)
    if Path(directory).resolve().is_relative_to(source.resolve()):
        raise UsageError(
            f"{directory} lies in {source}, whose files would be replaced or read again; name another place"
        )
    sources = find_sources(source, reader)
    folder = open_folder(Path(directory), overwrite)
    made, left, faults = list[DeviceLine](), list[str](), list[UsageError]()
    for name, path in sources:
        try:
            for recorded in read_source(name, path, said, reader):
                line = import_recorded(recorded, folder, said, rate_hz, {one.name: one.source for one in made})
                made.append(line)
                if progress is not None:
                    progress(line)
        except UsageError as error:
            if said.strict:
                raise
            faults.append(error)
            left.append(f"left out {error}")
    if not made:
        raise faults[0]
    if source.is_dir() and (source / MARK).is_file():
        (folder / MARK).write_text((source / MARK).read_text())
    write_notes(folder, source, said, rate_hz, command, made, left)
    return tuple(made), tuple(left)


def import_recorded(
    recorded: Recorded, folder: Path, said: Stated, rate_hz: float, known: Mapping[str, Path]
) -> DeviceLine:
    """Puts one device's rows in order, and writes them."""
    name = clean_name(recorded.name)
    if name in known:
        raise UsageError(f"{recorded.source}: device {name} has been read from {known[name]} already; rename one")
    trace = make_trace(name, recorded.rows, recorded.repairs, said, (), recorded.start)
    if recorded.dated and not recorded.zoned:
        recorded.repairs.note("times without a zone are taken as UTC (--zone NAME)")
    trace = resample_trace(trace, rate_hz) if rate_hz else trace
    began = trace.began if recorded.dated else None
    write_trace(folder / f"{name}.csv", trace, began)
    line = describe_trace(trace, recorded.source, began, recorded.units)
    extra = tuple(note for note in recorded.repairs.notes if note not in line.notes)
    return DeviceLine(**{**vars(line), "notes": (*line.notes, *extra)})


def write_notes(
    folder: Path,
    source: Path,
    said: Stated,
    rate_hz: float,
    command: str,
    made: list[DeviceLine],
    left: list[str],
) -> None:
    """Writes what was done to what, so that it can be repeated."""
    options = {one.name: value for one in fields(said) if (value := getattr(said, one.name)) not in (None, (), False)}
    table: dict[str, Any] = {
        "source": source.resolve(),
        "command": command or None,
        "options": options | ({"rate_hz": rate_hz} if rate_hz else {}),
        "left_out": left,
        "device": [device_table(line) for line in made],
    }
    write_toml(
        folder / NOTES, table, "What `auscult traces import` read, guessed and put right. The command repeats it."
    )


def device_table(line: DeviceLine) -> dict[str, Any]:
    """The table of one device."""
    began = None if line.began is None else datetime.fromtimestamp(line.began, UTC).isoformat("T", "milliseconds")
    kept = ("name", "source", "samples", "channels", "gaps", "units", "notes", "repairs")
    rounded = {
        "rate_hz": round(line.rate_hz, 4),
        "hours": round(line.hours, 4),
        "unlabelled": round(line.unlabelled, 4),
    }
    hours = {name: round(seconds / 3600, 4) for name, seconds in line.seconds.items()}
    found = {key: getattr(line, key) for key in kept} | rounded | {"began": began, "labelled_hours": hours}
    return found | ({"sha256": hash_file(line.source)} if line.source.is_file() else {})


def hash_file(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    found = sha256()
    with path.open("rb") as file:
        while part := file.read(1 << 20):
            found.update(part)
    return found.hexdigest()
