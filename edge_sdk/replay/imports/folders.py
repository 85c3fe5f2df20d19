"""Files of one folder as the recordings of one device, for loggers that begin a file with each recording."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby, pairwise
from pathlib import Path

import numpy as np

from edge_sdk.data.traces.rates import common_rate, resample_trace
from edge_sdk.data.traces.read import Trace
from edge_sdk.data.traces.repairs import Repair
from edge_sdk.errors import UsageError
from edge_sdk.replay.imports.sources import device_name

PAUSE = 60.0
NO_DATES = f"recordings have no dates; they are in the order of their names, {PAUSE:g} s apart"


def group_folders(source: Path, sources: Sequence[tuple[str, Path]]) -> Iterator[tuple[str, Path, list[Path]]]:
    """The files of a source by their folders: the device's name, the folder, and its files."""
    for folder, found in groupby(sources, key=lambda one: one[1].parent):
        parts = folder.relative_to(source).parts if source.is_dir() else ()
        yield "-".join(device_name(Path(part)) for part in parts) or device_name(folder), folder, [p for _, p in found]


def in_order_of_names(parts: Sequence[tuple[Path, Trace]]) -> list[tuple[Path, Trace]]:
    """Recordings without dates, each of which begins `PAUSE` seconds after the end of the one before."""
    found, at = list[tuple[Path, Trace]](), 0.0
    for file, trace in parts:
        found.append((file, replace(trace, began=at, notes=(*trace.notes, NO_DATES))))
        at += float(trace.time[-1]) + PAUSE
    return found


def join_traces(name: str, parts: Sequence[tuple[Path, Trace]]) -> Trace:
    """One device's trace of its recordings, in the order of their times.

    Args:
        parts: file and trace of each recording, whose `began` are of one clock.

    Raises:
        UsageError: two of them were recorded at the same time, or have other channels.
    """
    ordered = sorted(parts, key=lambda one: one[1].began)
    for (file, one), (other, next_one) in pairwise(ordered):
        if one.began + one.time[-1] >= next_one.began:
            raise UsageError(f"{other}: begins before {file} ends; files of one device follow each other in time")
    first = ordered[0][1]
    for file, trace in ordered:
        if set(trace.channels) != set(first.channels):
            wanted, found = ", ".join(first.channels), ", ".join(trace.channels)
            raise UsageError(f"{file}: channels {found}; {ordered[0][0].name} has {wanted} (--channels NAMES)")
    rate = common_rate([trace for _, trace in ordered])
    traces = [resample_trace(trace, rate) for _, trace in ordered]
    classes = sorted({word for trace in traces for word in trace.classes})
    return replace(
        first,
        name=name,
        time=np.concatenate([trace.began - traces[0].began + trace.time for trace in traces]),
        values=np.concatenate(
            [trace.values[:, [trace.channels.index(one) for one in first.channels]] for trace in traces]
        ),
        codes=np.concatenate([renumbered(trace, classes) for trace in traces]),
        classes=tuple(classes),
        rate_hz=float(np.median([trace.rate_hz for trace in traces])),
        began=traces[0].began,
        repairs=summed(traces),
        notes=(f"{len(traces)} recordings", *one_of_each(note for trace in traces for note in trace.notes)),
    )


def one_of_each(notes: Iterable[str]) -> tuple[str, ...]:
    """Notes without those that differ from an earlier one in the example in brackets only."""
    found = dict[str, str]()
    for note in notes:
        found.setdefault(re.sub(r" \([^)]*\)", "", note), note)
    return tuple(found.values())


def renumbered(trace: Trace, classes: Sequence[str]) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """Codes of a trace among these classes; -1 stays: no label."""
    table = np.array([*(classes.index(word) for word in trace.classes), -1], np.int64)
    return table[trace.codes]


def summed(traces: Sequence[Trace]) -> tuple[Repair, ...]:
    """Repairs of all, each kind once; lines are of different files, so none is named."""
    found = dict[tuple[str, str], Repair]()
    for each in (repair for trace in traces for repair in trace.repairs):
        before = found.get((each.what, each.done))
        found[each.what, each.done] = Repair(each.what, each.done, each.rows + (before.rows if before else 0))
    return tuple(found.values())
