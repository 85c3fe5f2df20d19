"""Charts with a row for each device, as SVG text: a dot for each series and a line over its interval. Pure.

Names stand at the left, so they are read whatever their length and number, on a phone as on paper.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import isfinite, nan

from edge_sdk.replay.reports.charts import NO_COLOURS, PLAIN, Axis, Colours, figure, format_value, legend, span_of

WIDTH, ROW, TOP, BOTTOM = 440, 20, 6, 22
LETTER = 7.4
"""Pixels of a letter of a name, in the mean."""
COLOUR_COUNT = 6
SHORT = 22
"""Letters of a name that are shown; the whole of it is in its tooltip."""


@dataclass(frozen=True)
class Whisker:
    """One value with its interval; a bare value has itself for both ends."""

    value: float
    low: float
    high: float


def spread(values: Sequence[float]) -> Whisker:
    """Mean and range; of no values nothing that could be drawn."""
    return Whisker(sum(values) / len(values), min(values), max(values)) if values else Whisker(nan, nan, nan)


def over_seeds(several: Sequence[Sequence[tuple[float, float]]]) -> list[tuple[float, Whisker]]:
    """Mean, least and greatest value at each x that all curves have."""
    curves = [dict(points) for points in several]
    shared = [x for x in curves[0] if all(x in one for one in curves)] if curves else []
    return [(x, spread([one[x] for one in curves])) for x in shared]


def run_colours(names: Iterable[str]) -> dict[str, str]:
    """One colour for each run on the whole page."""
    return {name: f"var(--c{i % COLOUR_COUNT})" for i, name in enumerate(names)}


def bare(value: float) -> Whisker:
    """A value without an interval."""
    return Whisker(value, value, value)


def intervals(
    names: Sequence[str],
    series: Mapping[str, Sequence[Whisker]],
    x_name: str,
    percent: bool = False,
    colours: Colours = NO_COLOURS,
    zero: bool = False,
    shared: Sequence[float] = (),
) -> str:
    """A row for each name, and in it a dot and a line for each series. Values that are not finite are left out.

    Args:
        zero: the axis has zero, with a line at it.
        shared: values that the axis has as well, where several charts have one.
    """
    found = [i for some in series.values() for i in some if isfinite(i.value)]
    if not names or not found:
        return "<p class='none'>nothing to draw</p>"
    left = 10 + LETTER * max(len(shorten(name)) for name in names)
    ends = [end for i in found for end in (i.low, i.high)] + ([0.0] if zero else []) + [*shared]
    limits = span_of(ends, percent=percent)
    across, height = Axis(*limits, left, WIDTH - 24), TOP + ROW * len(names) + BOTTOM
    parts = [ruler(across, height, percent, zero)]
    for place, name in enumerate(names):
        middle = TOP + ROW * (place + 0.5)
        parts.append(label(name, left, middle))
        parts += [
            mark(name, one, some[place], across, middle + offset(s, len(series)), colours.get(one, PLAIN), percent)
            for s, (one, some) in enumerate(series.items())
        ]
    key = legend(list(series), colours) if len(series) > 1 else ""
    return figure(parts, f"{x_name} by device", key, WIDTH, height, "rows")


def offset(place: int, count: int) -> float:
    """Distance of a series from the middle of its row."""
    return (place - (count - 1) / 2) * min(5.0, (ROW - 6) / max(1, count))


def shorten(name: str) -> str:
    return name if len(name) <= SHORT else f"{name[: SHORT - 1]}…"


def label(name: str, left: float, middle: float) -> str:
    text = f"<title>{escape(name)}</title>{escape(shorten(name))}"
    return f'<text x="{left - 8:.1f}" y="{middle + 4:.1f}" text-anchor="end">{text}</text>'


def mark(name: str, series: str, i: Whisker, across: Axis, y: float, colour: str, percent: bool) -> str:
    """The dot of one value, and the line over its interval."""
    if not isfinite(i.value):
        return ""
    said = format_value(i.value, percent)
    if i.low < i.high:
        said += f" [{format_value(i.low, percent)}, {format_value(i.high, percent)}]"
    title = f"<title>{escape(name)}, {escape(series)}: {said}</title>"
    x1, x2 = (f"{across(end):.1f}" for end in (i.low, i.high))
    line = f'<line x1="{x1}" x2="{x2}" y1="{y:.1f}" y2="{y:.1f}" stroke="{colour}" stroke-width="1.4"/>'
    dot = f'<circle cx="{across(i.value):.1f}" cy="{y:.1f}" r="2.8" fill="{colour}">{title}</circle>'
    return (line if i.low < i.high else "") + dot


def ruler(across: Axis, height: float, percent: bool, zero: bool) -> str:
    """Upright lines at round values, with the values under them."""
    lines = [
        f'<line x1="{across(t):.1f}" x2="{across(t):.1f}" y1="{TOP}" y2="{height - BOTTOM}" class="grid"/>'
        f'<text x="{across(t):.1f}" y="{height - 7}" text-anchor="middle">{format_value(t, percent)}</text>'
        for t in across.ticks()
    ]
    if zero:
        at = f"{across(0.0):.1f}"
        lines.append(f'<line x1="{at}" x2="{at}" y1="{TOP}" y2="{height - BOTTOM}" class="zero"/>')
    return "".join(lines)
