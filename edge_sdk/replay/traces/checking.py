"""`auscult traces check`: what a folder of traces holds, and what is probably wrong with it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from edge_sdk.data.live.resample import is_same_rate
from edge_sdk.data.noted_units import read_units
from edge_sdk.data.traces.folder import find_files
from edge_sdk.data.traces.labels import UNLABELLED
from edge_sdk.data.traces.rates import common_rate
from edge_sdk.data.traces.read import SINCE_1970, Trace, read_stated, stated
from edge_sdk.data.traces.windows import split_channels
from edge_sdk.errors import UsageError
from edge_sdk.label_names import JOIN
from edge_sdk.replay.imports.importing import DeviceLine, describe_trace
from edge_sdk.replay.traces.mistakes import find_mistakes

"""What `auscult record` writes beside traces."""
SHARES = (1, 50, 99)
"""Percentiles of a channel that are shown."""


@dataclass(frozen=True)
class Checked:
    """What was found in a folder.

    Attributes:
        lines: one for each device.
        traces: as they were read; each with its own channels, rate and classes.
        mistakes: suspicions, in sentences.
        left: files that could not be read, with the reasons.
        amplitudes: device -> channel -> values of `SHARES`.
    """

    lines: tuple[DeviceLine, ...]
    traces: tuple[Trace, ...]
    mistakes: tuple[str, ...]
    left: tuple[str, ...]
    amplitudes: dict[str, dict[str, tuple[float, ...]]]


def check_traces(
    folder: str | Path, label: str = "activity", missing: tuple[str, ...] = (), targets: tuple[str, ...] = ()
) -> Checked:
    """Reads the traces of a folder, each as it is.

    Args:
        label: name of the label column.
        missing: further words that stand for no label.
        targets: columns that are to be predicted, in place of labels.

    Raises:
        UsageError: there is none, or none can be read.
    """
    traces, lines, left, faults = list[Trace](), list[DeviceLine](), list[str](), list[UsageError]()
    units, said = read_units(Path(folder)), stated(label, None, False, missing, JOIN, targets, not targets)
    for file in find_files(folder):
        try:
            trace = read_stated(file, said)
            trace = trace if not targets else label_known(trace, targets)
        except UsageError as error:
            faults.append(error)
            left.append(f"cannot be read: {error}")
            continue
        traces.append(trace)
        began = trace.began if trace.began > SINCE_1970 else None
        lines.append(describe_trace(trace, file, began, units.get(trace.name)))
    if not traces:
        raise faults[0]
    mistakes = (*find_mistakes(traces, targets), *find_unlike(traces))
    return Checked(tuple(lines), tuple(traces), mistakes, tuple(left), {t.name: amplitudes_of(t) for t in traces})


def label_known(trace: Trace, targets: tuple[str, ...]) -> Trace:
    """A trace whose label is the names of what is to be predicted, where that is known."""
    columns = trace.values[:, split_channels(trace, targets)[1]]
    known = np.isfinite(columns).all(1)
    return replace(trace, codes=np.where(known, 0, UNLABELLED), classes=(", ".join(targets),))


def amplitudes_of(trace: Trace) -> dict[str, tuple[float, ...]]:
    """The percentiles of each channel."""
    columns = [column[np.isfinite(column)] for column in trace.values.T]
    found = [np.percentile(column, SHARES) if len(column) else np.full(len(SHARES), np.nan) for column in columns]
    return {name: tuple(map(float, own)) for name, own in zip(trace.channels, found, strict=True)}


def find_unlike(traces: list[Trace]) -> list[str]:
    """What a replay would make alike: rates, and channels that not all traces have."""
    rate = common_rate(traces)
    found = [
        f"{trace.name}: {trace.rate_hz:.4g} Hz, most have {rate:.4g}; a replay resamples it"
        for trace in traces
        if not is_same_rate(trace.rate_hz, rate)
    ]
    counts: dict[str, list[str]] = {}
    for trace in traces:
        for name in trace.channels:
            counts.setdefault(name.casefold(), []).append(trace.name)
    for name, own in counts.items():
        if len(own) < len(traces):
            some = ", ".join(own) if len(own) <= 3 else f"{len(own)} of {len(traces)} traces"
            found.append(f"channel {name}: only {some} {'has' if len(own) == 1 else 'have'} it")
    return found
