"""Several traces that are to be learned from together: same channels, same rate, one numbering of the classes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from edge_sdk.data.availability import SUFFIX
from edge_sdk.data.live.resample import is_same_rate
from edge_sdk.data.traces.form import Stated
from edge_sdk.data.traces.labels import UNLABELLED, describe_folds, fold_labels, join_classes
from edge_sdk.data.traces.rates import common_rate, resample_trace
from edge_sdk.data.traces.read import LIMIT, Trace, read_stated, stated
from edge_sdk.errors import UsageError
from edge_sdk.label_names import JOIN

ENDINGS = (".csv", ".csv.gz", ".tsv", ".dat")
"""Of files of a folder that are traces."""


@dataclass(frozen=True)
class TraceFolder:
    """The traces of a folder that fit together.

    Attributes:
        traces: sorted by name; all have the same `channels` and `classes`, and one rate within 5 %.
        files: name of a trace -> its file.
        notes: a line for each trace of which something was guessed or put right, and for each that was left out.
    """

    traces: tuple[Trace, ...]
    files: dict[str, Path]
    notes: tuple[str, ...]


def load_folder(
    path: str | Path | Iterable[str | Path],
    label: str = "activity",
    channels: Sequence[str] | None = None,
    *,
    limit: int = LIMIT,
    strict: bool = False,
) -> tuple[Trace, ...]:
    """The traces of `load_traces`."""
    return load_traces(path, label, channels, limit=limit, strict=strict).traces


def load_traces(
    path: str | Path | Iterable[str | Path],
    label: str | None = "activity",
    channels: Sequence[str] | None = None,
    *,
    limit: int = LIMIT,
    strict: bool = False,
    missing: Sequence[str] = (),
    rate_hz: float = 0.0,
    separator: str = JOIN,
) -> TraceFolder:
    """Reads the traces of a folder (but files of availability), or the files of a list, and makes them alike.

    Channels go by their names, in the order of the first file; those that only few traces have are left out, and so is
    a trace that lacks one of the others. Traces of another rate than most have are resampled.

    Args:
        path: a folder, or files.
        label: name of the column with the labels; None: none is looked for.
        channels: names of the channel columns; None: those of numbers that most traces have.
        limit: bytes per file.
        strict: refuse what would be put right, resampled or left out.
        missing: further words that stand for no label.
        rate_hz: samples per second of all traces; 0: what most have.
        separator: between the labels of a set.

    Raises:
        UsageError: no file, two files of one name, or no trace is left; or, under `strict`, one is unlike others.
    """
    return load_stated(path, stated(label, channels, strict, missing, separator), rate_hz, limit)


def load_stated(
    path: str | Path | Iterable[str | Path], said: Stated, rate_hz: float = 0.0, limit: int = LIMIT
) -> TraceFolder:
    """The traces of `load_traces`."""
    files, strict = find_files(path), said.strict
    traces, notes, faults = list[Trace](), list[str](), list[UsageError]()
    for file in files:
        try:
            traces.append(read_stated(file, said, limit))
        except UsageError as error:
            if strict:
                raise
            faults.append(error)
            notes.append(f"warning: left out {error}")
    if not traces:
        raise faults[0]
    traces = match_channels(traces, strict, notes)
    traces = match_rates(traces, rate_hz, strict, notes)
    classes = join_classes(trace.classes for trace in traces)
    traces = [_recode(trace, classes, strict) for trace in traces]
    told = [trace.told for trace in traces if trace.told]
    return TraceFolder(tuple(traces), {name_of(file): file for file in files}, (*told, *notes))


def name_of(file: Path) -> str:
    """Name of the device whose trace a file is."""
    return Path(file.name.removesuffix(".gz")).stem


def find_files(path: str | Path | Iterable[str | Path]) -> list[Path]:
    """The traces of a folder, or of a list, sorted by name.

    Raises:
        UsageError: there is none, or two are of one device.
    """
    if isinstance(path, (str, Path)):
        if not Path(path).is_dir():
            raise UsageError(f"{path}: not a folder; expected a folder of CSV files or a list of files")
        found = [file for file in Path(path).iterdir() if is_trace(file)]
    else:
        found = [Path(file) for file in path]
    if not found:
        raise UsageError(
            f"{path}: no trace; one file NAME.csv per device is needed ({', '.join(ENDINGS)}); "
            "`auscult traces import` makes them of other files"
        )
    files = sorted(found, key=lambda file: (name_of(file), str(file)))
    for one, other in pairwise(files):
        if name_of(one) == name_of(other):
            raise UsageError(f"{one} and {other} are both {name_of(one)!r}; that names the device: rename one")
    return files


def is_trace(file: Path) -> bool:
    """May a file of a folder be a trace? Files of availability are none, nor are signals of WFDB."""
    wfdb = file.suffix == ".dat" and file.with_suffix(".hea").exists()
    return file.name.endswith(ENDINGS) and not file.name.endswith(SUFFIX) and not wfdb and file.is_file()


def match_channels(traces: list[Trace], strict: bool, notes: list[str]) -> list[Trace]:
    """Gives all traces the channels that most of them have, in one order. Upper and lower case may differ, but where a
    trace tells channels apart by it."""

    def fold(name: str) -> str:
        return name.strip().casefold()

    are_one = all(len({*map(fold, trace.channels)}) == len(trace.channels) for trace in traces)

    def key(name: str) -> str:
        return fold(name) if are_one else name

    own = [{key(name): n for n, name in enumerate(trace.channels)} for trace in traces]
    wanted = [name for name in dict.fromkeys(n for names in own for n in names) if _most(name in n for n in own)]
    told = ", ".join(traces[0].channels)
    for names, trace in zip(own, traces, strict=True):
        if strict and set(names) != set(own[0]):
            raise UsageError(f"{trace.name} has channels {', '.join(trace.channels)} but {traces[0].name} has {told}")
    fits = [all(name in names for name in wanted) for names in own]
    if not wanted or not any(fits):
        other = next((t for t, names in zip(traces, own, strict=True) if set(names) != set(own[0])), traces[-1])
        raise UsageError(
            f"{other.name} has channels {', '.join(other.channels)} but {traces[0].name} has {told}; "
            "most traces must have the same"
        )
    spelled = dict[str, str]()
    for trace in traces:
        for name in trace.channels:
            spelled.setdefault(key(name), name)
    found, names_of = list[Trace](), tuple(spelled[name] for name in wanted)
    for trace, names, fit in zip(traces, own, fits, strict=True):
        if not fit:
            lacks = ", ".join(spelled[name] for name in wanted if name not in names)
            notes.append(f"warning: left out {trace.name}: it has no channel {lacks}, which most have")
            continue
        extra = [name for name in trace.channels if key(name) not in wanted]
        said = (f"channel {', '.join(extra)} left out, most have none",) if extra else ()
        places = [names[name] for name in wanted]
        values = trace.values if places == [*range(len(trace.channels))] else trace.values[:, places]
        found.append(
            replace(trace, channels=names_of, values=np.ascontiguousarray(values), notes=(*trace.notes, *said))
        )
    return found


def _most(has: Iterable[bool]) -> bool:
    found = list(has)
    return 2 * sum(found) > len(found)


def match_rates(traces: list[Trace], rate_hz: float, strict: bool, notes: list[str]) -> list[Trace]:
    """Resamples the traces of another rate than most have, or than the one wanted."""
    rate = rate_hz or common_rate(traces)
    found = list[Trace]()
    for trace in traces:
        if strict and not is_same_rate(trace.rate_hz, rate):
            raise UsageError(
                f"{trace.name} has {trace.rate_hz:.2f} samples per second, others have {rate:.2f}; "
                "without strict it is resampled"
            )
        try:
            found.append(resample_trace(trace, rate))
        except UsageError as error:
            notes.append(f"warning: left out {error}")
    if not found:
        raise UsageError(notes[-1].removeprefix("warning: left out "))
    return found


def _recode(trace: Trace, classes: tuple[str, ...], strict: bool) -> Trace:
    folds = fold_labels(dict.fromkeys(trace.classes, 1), classes)
    said = describe_folds(folds)
    if said and strict:
        raise UsageError(f"{trace.name}: {said}, as in other traces; without strict they are one class")
    place = [*(classes.index(folds[name]) for name in trace.classes), UNLABELLED]  # its last entry is that of code -1
    notes = (*trace.notes, said) if said else trace.notes
    return replace(trace, codes=np.array(place, np.int64)[trace.codes], classes=classes, notes=notes)
