"""Curves of a comparison as one picture: validation accuracy over rounds and over bytes, mean and range over seeds.

The commands of tables that keep curves draw it with `--picture FILE.svg`, in the report's charts
(edge_sdk/replay/reports/charts.py). A file of its own has its colours, its letters and its legend inside. The charts
stand one above the other, with large letters: on a phone the picture is a little over half as wide.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from edge_sdk.errors import UsageError
from edge_sdk.replay.reports import charts
from edge_sdk.replay.reports.charts import Axis

COLOURS = (
    "#1f77b4", "#d9822b", "#2a9d63", "#8e5bb5", "#b5485d", "#66788a", "#c2a100", "#17a2b8",
    "#7a4a2b", "#e377c2", "#4b5fd1", "#8bb53c", "#24262b",
)  # fmt: skip
STYLE = (
    '.ground{fill:#fff}text{font:17px "Segoe UI","Helvetica Neue",Arial,"DejaVu Sans",sans-serif;fill:#1c2733}'
    ".grid{stroke:#dde4ea}"
)
KEY, COLUMNS, WIDE = 25, 2, 290
"""Height of a line of the legend in pixels, its columns, and how wide one is."""
APART = 12
"""Pixels between the charts."""

Curves = Mapping[str, Sequence[Sequence[Mapping[str, float]]]]
"""Name of a row -> the curve of each seed: points with "round", "cost" and "value", see `protocol.Point`."""


def over_seeds(seeds: Sequence[Sequence[Mapping[str, float]]], x: str) -> list[tuple[float, float, float, float]]:
    """Mean of x, and mean, least and greatest value, of each round that all seeds have a point of."""
    by_round = [{p["round"]: p for p in curve} for curve in seeds]
    found = []
    for r in sorted(set.intersection(*[set(one) for one in by_round])):
        points = [one[r] for one in by_round]
        values = [p["value"] for p in points]
        found.append((sum(p[x] for p in points) / len(points), sum(values) / len(values), min(values), max(values)))
    return found


def picture(rows: Curves, cost: str) -> str:
    """An SVG file's text with two charts, one below the other.

    Args:
        cost: what "cost" counts, e.g. "MB, all devices".

    Raises:
        UsageError: no row has a curve of two points.
    """
    rows = {name: seeds for name, seeds in rows.items() if seeds and all(len(curve) > 1 for curve in seeds)}
    if not rows:
        raise UsageError("there is no curve of two points or more to draw")
    colours = {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(rows)}
    top = KEY * (1 + -(-len(rows) // COLUMNS))
    parts = legend(colours)
    for i, (x, name) in enumerate((("round", "round"), ("cost", cost))):
        drawn = chart({row: over_seeds(seeds, x) for row, seeds in rows.items()}, name, colours)
        parts.append(f'<g transform="translate(0,{top + i * (charts.HEIGHT + APART)})">{drawn}</g>')
    wide, high = charts.WIDTH, top + 2 * (charts.HEIGHT + APART)
    ground = f'<style>{STYLE}</style><rect class="ground" width="{wide}" height="{high}"/>'
    label = escape(f"Validation accuracy over rounds and over {cost}")
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" role="img" aria-label="{label}">'
    return f"{head}{ground}{''.join(parts)}</svg>\n"


def chart(rows: Mapping[str, Any], x_name: str, colours: Mapping[str, str]) -> str:
    """One chart: a line for each row and, where there are several seeds, the range of them behind it."""
    xs = [x for points in rows.values() for x, *_ in points]
    ys = [y for points in rows.values() for _, *three in points for y in three]
    across = Axis(0.0, max(xs), charts.LEFT, charts.WIDTH - charts.RIGHT)
    up = Axis(*charts.span_of(ys, 0.0), charts.HEIGHT - charts.BOTTOM, charts.TOP)
    parts = [charts.grid(across, up, x_name, True)]
    parts += [charts.band([(x, a, b) for x, _, a, b in ps], across, up, colours[n]) for n, ps in rows.items()]
    parts += [charts.curve(n, [(x, y) for x, y, *_ in ps], across, up, colours[n], True) for n, ps in rows.items()]
    return "".join(parts)


def legend(colours: Mapping[str, str]) -> list[str]:
    parts = []
    for i, (name, colour) in enumerate(colours.items()):
        x, y = 20 + (i % COLUMNS) * WIDE, KEY * (1 + i // COLUMNS)
        parts.append(f'<rect x="{x}" y="{y - 12}" width="13" height="13" fill="{colour}"/>')
        parts.append(f'<text x="{x + 20}" y="{y}">{escape(name)}</text>')
    return parts


def draw(path: Path, rows: Curves, cost: str) -> None:
    """Writes the picture."""
    path.write_text(picture(rows, cost), encoding="utf-8")
