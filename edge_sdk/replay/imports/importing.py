"""Recordings of other people's formats as traces: `auscult traces import`.

DIR/NAME.csv      time (seconds since 1970 where the source has dates), channels, activity; one file for each device
DIR/import.toml   what was read with which options, what was guessed, and what was put right
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from edge_sdk.data.traces.form import Stated
from edge_sdk.data.traces.rates import resample_trace
from edge_sdk.data.traces.read import Trace, make_trace
from edge_sdk.data.traces.repairs import Repairs
from edge_sdk.data.traces.windows import find_gaps, longest_step, split_channels
from edge_sdk.errors import UsageError
from edge_sdk.replay.imports.folders import group_folders, in_order_of_names, join_traces, one_of_each
from edge_sdk.replay.imports.recording import Recorded
from edge_sdk.replay.imports.sources import clean_name, find_sources, read_source
from edge_sdk.replay.imports.writing import write_trace
from edge_sdk.replay.labels.intervals import IntervalsOf, set_apart
from edge_sdk.replay.planning.toml_files import write_toml
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
        unlabelled: share of the samples without a label, or without the values that are to be predicted.
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


def describe_trace(
    trace: Trace, source: Path, began: float | None, units: Mapping[str, str] | None, targets: Sequence[str] = ()
) -> DeviceLine:
    """The line of a trace. `targets`: columns that are to be predicted, in place of labels."""
    columns = [n for n, name in enumerate(trace.channels) if name in targets]
    lacks = ~np.isfinite(trace.values[:, columns]).all(1) if targets else trace.codes < 0
    counts = np.bincount(trace.codes[trace.codes >= 0], minlength=len(trace.classes))
    off = np.flatnonzero(find_gaps(trace.time, longest_step(trace, GAP)))
    return DeviceLine(
        name=trace.name,
        source=source,
        samples=len(trace.time),
        rate_hz=trace.rate_hz,
        channels=trace.channels,
        hours=float((trace.time[-1] - (trace.time[off + 1] - trace.time[off]).sum()) / 3600),
        gaps=len(off),
        began=began,
        seconds={name: float(n / trace.rate_hz) for name, n in zip(trace.classes, counts, strict=True) if n},
        unlabelled=float(lacks.mean()),
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
    sources, intervals = set_apart(source, find_sources(source, reader, said.only, said.intervals), said)
    reading = replace(said, label=None, labels=False) if intervals else said
    found = Imported(
        open_folder(Path(directory), overwrite), reading, rate_hz, progress or (lambda line: None), intervals
    )
    if said.by_folder:
        for name, place, files in group_folders(source, sources):
            found.import_folder(name, place, files, reader)
    else:
        for name, path in sources:
            found.import_file(name, path, reader)
    found.tell_unused()
    if not found.made:
        raise found.faults[0]
    if source.is_dir() and (source / MARK).is_file():
        (found.folder / MARK).write_text((source / MARK).read_text())
    left = [f"left out {error}" for error in found.faults]
    labelled_by = sorted({one.file for own in found.intervals.values() for one in own})
    write_notes(found.folder, source, said, rate_hz, command, found.made, left, labelled_by)
    return tuple(found.made), tuple(left)


@dataclass
class Imported:
    """The traces of a folder while they are written: what was made, and why other files were left out.

    Attributes:
        folder: of the traces.
        rate_hz: of all traces; 0: each as it was recorded.
        progress: called with each device's line.
        intervals: the labels of recordings that files beside them say.
    """

    folder: Path
    said: Stated
    rate_hz: float
    progress: Callable[[DeviceLine], None]
    intervals: IntervalsOf = field(default_factory=dict)
    made: list[DeviceLine] = field(default_factory=list)
    faults: list[UsageError] = field(default_factory=list)

    def read(self, name: str, path: Path, reader: str) -> Iterator[Recorded]:
        """What devices recorded in one file, with the labels that files beside it say."""
        for recorded in read_source(name, path, self.said, reader):
            for intervals in self.intervals.get(path, ()):
                intervals.label(recorded.name, recorded.rows, recorded.dated, recorded.repairs, self.said.sets)
            yield recorded

    def tell_unused(self) -> None:
        """Tells of files of intervals that are of no time at which anybody recorded."""
        for one in {one.file: one for own in self.intervals.values() for one in own}.values():
            if not one.used:
                began, ended = (f"{at:.0f}" for at in (one.spans[0][0], one.spans[-1][1]))
                self.leave_out(
                    UsageError(f"{one.file}: no row of a recording lies in its intervals, {began} to {ended} s")
                )

    def import_file(self, name: str, path: Path, reader: str) -> None:
        """Writes what devices recorded in one file."""
        try:
            for recorded in self.read(name, path, reader):
                self.write(trace_of(recorded, clean_name(recorded.name), self.said), recorded)
        except UsageError as error:
            self.leave_out(error)

    def import_folder(self, name: str, place: Path, files: Sequence[Path], reader: str) -> None:
        """Writes what one device recorded in the files of a folder."""
        parts = list[tuple[Recorded, Trace]]()
        for path in files:
            try:
                for recorded in self.read(name, path, reader):
                    parts.append((recorded, trace_of(recorded, name, self.said)))
            except UsageError as error:
                self.leave_out(error)
        try:
            if parts:
                dated = [recorded.dated for recorded, _ in parts]
                if any(dated) and not all(dated):
                    raise UsageError(f"{parts[dated.index(False)][0].source}: no date, as other files of {place} have")
                found = [(recorded.source, trace) for recorded, trace in parts]
                joined = join_traces(name, found if all(dated) else in_order_of_names(found))
                units = {key: unit for recorded, _ in parts for key, unit in (recorded.units or {}).items()}
                repairs = Repairs(place, self.said.strict)
                repairs.notes = [*joined.notes, *(note for recorded, _ in parts for note in recorded.repairs.notes)]
                self.write(joined, replace(parts[0][0], source=place, repairs=repairs, units=units))
        except UsageError as error:
            self.leave_out(error)

    def write(self, trace: Trace, recorded: Recorded) -> None:
        """Writes one device's trace."""
        if before := next((one for one in self.made if one.name == trace.name), None):
            raise UsageError(
                f"{recorded.source}: device {trace.name} has been read from {before.source} already; rename one"
            )
        trace = resample_trace(trace, self.rate_hz) if self.rate_hz else trace
        began = trace.began if recorded.dated else None
        write_trace(self.folder / f"{trace.name}.csv", trace, began, not self.said.targets)
        line = describe_trace(trace, recorded.source, began, recorded.units, self.said.targets)
        extra = tuple(note for note in one_of_each(recorded.repairs.notes) if note not in line.notes)
        self.made.append(replace(line, notes=(*line.notes, *extra)))
        self.progress(self.made[-1])

    def leave_out(self, error: UsageError) -> None:
        """Keeps the reason why something was left out. Raises it where nothing may be."""
        if self.said.strict:
            raise error
        self.faults.append(error)


def trace_of(recorded: Recorded, name: str, said: Stated) -> Trace:
    """A device's rows, put in order."""
    trace = make_trace(name, recorded.rows, recorded.repairs, said, (), recorded.start)
    split_channels(trace, said.targets)  # are there such columns?
    if recorded.dated and not recorded.zoned:
        recorded.repairs.note("times without a zone are taken as UTC (--zone NAME)")
    return trace


def write_notes(
    folder: Path,
    source: Path,
    said: Stated,
    rate_hz: float,
    command: str,
    made: list[DeviceLine],
    left: list[str],
    intervals: Sequence[Path],
) -> None:
    """Writes what was done to what, so that it can be repeated. `intervals`: files with labels of recordings."""
    options = {
        one.name: value for one in fields(said) if (value := getattr(said, one.name)) not in (None, (), False, "")
    }
    table: dict[str, Any] = {
        "source": source.resolve(),
        "command": command or None,
        "options": options | ({"rate_hz": rate_hz} if rate_hz else {}),
        "left_out": left,
        "device": [device_table(line) for line in made],
        "intervals": [{"source": file, "sha256": hash_file(file)} for file in intervals],
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
