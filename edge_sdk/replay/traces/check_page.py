"""The page of `auscult traces check`: when each device recorded, with its labels along time; no network, no library."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape
from math import isnan

import numpy as np

from edge_sdk.data.traces.read import Trace
from edge_sdk.data.traces.windows import find_recordings
from edge_sdk.replay.reports.page import wrap
from edge_sdk.replay.reports.sections import table
from edge_sdk.replay.traces.checking import SHARES, Checked
from edge_sdk.replay.traces.table import HEADER, notes_of, row_of

WIDTH, LEFT, ROW = 1000, 150, 22
COLOURS = tuple(f"var(--c{n})" for n in (0, 1, 2, 3, 4, 6))
NONE = "var(--rule)"
"""Colour of what has no label."""
COLUMNS = 850
"""Pixels of a line of time."""
STEPS = (1, 2, 5, 10, 15, 30, 60, 168, 720, 2160, 8760)
"""Hours, or minutes, between marks."""
SHORT = 3 * 3600
"""Seconds below which marks are minutes."""


def make_check_page(name: str, found: Checked) -> str:
    """The whole page. `name`: of the folder."""
    title = escape(f"Traces of {name}")
    doubts = "".join(f"<li>{escape(line)}</li>" for line in [*found.mistakes, *found.left])
    notes = "".join(f"<li>{escape(line)}</li>" for line in notes_of(found.lines, ()))
    return wrap(
        title,
        [
            f"<h1>{title}</h1><p class='lead'>{len(found.traces)} devices, "
            f"{sum(line.hours for line in found.lines):.1f} hours</p>",
            f"<h2>Probably wrong</h2>{f'<ul>{doubts}</ul>' if doubts else '<p>nothing that shows</p>'}",
            f"<h2>When each device recorded</h2>{timeline(found.traces)}",
            f"<h2>Devices</h2>{table(HEADER, [row_of(line) for line in found.lines])}",
            f"<h2>Values</h2>{amplitude_table(found)}",
            f"<h2>Guessed and put right while reading</h2><ul>{notes}</ul>" if notes else "",
        ],
    )


def timeline(traces: Sequence[Trace]) -> str:
    """A line for each device, each from its own first sample, coloured by what was done."""
    classes = sorted({name for trace in traces for name in trace.classes})
    colours = {name: COLOURS[n % len(COLOURS)] for n, name in enumerate(classes)}
    longest = max(float(trace.time[-1]) for trace in traces) or 1.0
    rows = [device_row(trace, n, longest, colours) for n, trace in enumerate(traces)]
    height = ROW * len(traces) + 24
    box = f"viewBox='0 0 {WIDTH} {height}' role='img' aria-label='when each device recorded'"
    keys = [f"<span><i style='background:{colours[name]}'></i>{escape(name)}</span> " for name in classes]
    keys.append(f"<span><i style='background:{NONE}'></i>no label</span> ")
    again = "; colours repeat, a pointer on a piece tells its label" if len(classes) > len(COLOURS) else ""
    unit, seconds = ("Hours", 3600) if longest >= SHORT else ("Minutes", 60)
    lead = f"<p class='lead'>{unit} from each device's first sample{again}.</p>"
    marks = time_marks(longest / seconds, height)
    return f"{lead}<figure><p class='legend'>{''.join(keys)}</p><svg {box}>{''.join([*marks, *rows])}</svg></figure>"


def time_marks(length: float, height: int) -> list[str]:
    """Lines of the grid, with their hours or minutes below."""
    step = next((step for step in STEPS if length / step <= 10), STEPS[-1])
    marks = []
    for n in range(int(length / step) + 1):
        at = LEFT + n * step / length * COLUMNS
        marks.append(f"<line x1='{at:.1f}' x2='{at:.1f}' y1='0' y2='{height - 20}' class='grid'/>")
        marks.append(f"<text x='{at:.1f}' y='{height - 4}' text-anchor='middle'>{n * step:.3g}</text>")
    return marks


def device_row(trace: Trace, number: int, longest: float, colours: dict[str, str]) -> str:
    """Name and recordings of a device; of those that share a pixel only the first is drawn."""
    top = ROW * number
    began = f"{datetime.fromtimestamp(trace.began, UTC):%Y-%m-%d %H:%M} UTC" if trace.began > 1e8 else "unknown date"
    parts = [f"<text x='{LEFT - 8}' y='{top + 15}' text-anchor='end'>{escape(trace.name[:20])}"
             f"<title>{escape(trace.name)}: {began}</title></text>"]  # fmt: skip
    bounds = find_recordings(trace)
    starts, ends = trace.time[bounds[:, 0]], trace.time[bounds[:, 1] - 1]
    left, right = (np.round(LEFT + seconds / longest * COLUMNS, 1) for seconds in (starts, ends))
    done = -1.0
    for n in range(len(bounds)):
        if right[n] <= done and n:
            continue
        code = int(trace.codes[bounds[n, 0]])
        label = trace.classes[code] if code >= 0 else "no label"
        wide = max(0.5, float(right[n] - max(left[n], done)))
        box = f"x='{max(float(left[n]), done):.1f}' y='{top + 3}' width='{wide:.1f}' height='{ROW - 7}'"
        said = f"{escape(label)}, {(ends[n] - starts[n]):.0f} s from {starts[n] / 3600:.2f} h"
        parts.append(f"<rect {box} fill='{colours.get(label, NONE)}'><title>{said}</title></rect>")
        done = float(max(right[n], done + 0.5))
    return "".join(parts)


def amplitude_table(found: Checked) -> str:
    """The percentiles of each device's channels."""
    units = {line.name: line.units for line in found.lines}
    lines = [
        (name, channel, units[name].get(channel, ""), *("-" if isnan(value) else f"{value:.4g}" for value in values))
        for name, channels in found.amplitudes.items()
        for channel, values in channels.items()
    ]
    return table(("device", "channel", "unit", *(f"{share} %" for share in SHARES)), lines)
