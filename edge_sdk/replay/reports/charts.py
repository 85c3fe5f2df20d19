"""Small charts as SVG text, for a report that needs no network and no library. Pure: data in, text out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, isfinite, log10

WIDTH, HEIGHT = 640, 260
LEFT, RIGHT, TOP, BOTTOM = 78, 28, 14, 46
LINE = 19
"""Pixels from the axis to the foot of its numbers: letters are as high on a phone, where a chart is drawn smaller."""
PLAIN = "var(--c5)"
"""Colour of a series that has none of its own."""

Colours = Mapping[str, str]
"""Name of a series -> its colour, the same in every chart of a page."""
NO_COLOURS: Colours = {}
Points = Sequence[tuple[float, float]]
Bands = Mapping[str, Sequence[tuple[float, float, float]]]
NO_BANDS: Bands = {}


@dataclass(frozen=True)
class Axis:
    """A linear scale from data to pixels, with round ticks."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self, count: int = 5, whole: bool = False) -> list[float]:
        """About so many round values. `whole`: only whole numbers, as rounds are."""
        step = round_step((self.high - self.low) / count)
        step = max(1.0, step) if whole else step
        first = ceil(self.low / step - 1e-9)
        return [i * step for i in range(first, floor(self.high / step + 1e-9) + 1)]


def round_step(rough: float) -> float:
    """The smallest of 1, 2, 5 times a power of ten that is at least `rough`."""
    power = 10.0 ** floor(log10(rough))
    return next(m * power for m in (1, 2, 5, 10) if m * power >= rough * (1 - 1e-9))


def span_of(values: Sequence[float], floor_at: float | None = None, percent: bool = False) -> tuple[float, float]:
    """Limits of an axis with a little air; never empty. Shares have 0 and 1, so that charts can be compared."""
    if percent:
        return 0.0, 1.0
    low, high = min(values), max(values)
    air = 0.06 * (high - low) or 0.05 * abs(high) or 1.0
    return (low - air if floor_at is None else max(low - air, floor_at)), high + air


def lines(
    series: Mapping[str, Points],
    x_name: str,
    y_name: str,
    percent: bool = False,
    colours: Colours = NO_COLOURS,
    bands: Bands = NO_BANDS,
    has_zero: bool = False,
) -> str:
    """Curves over a common x. Points that are not finite are left out.

    Args:
        has_zero: the axis of y has 0, as counts should.
        bands: name of a curve -> (x, low, high), a shaded area behind it.
    """
    series = {n: [(x, y) for x, y in ps if isfinite(y)] for n, ps in series.items()}
    series = {n: ps for n, ps in series.items() if ps}
    if not series:
        return "<p class='none'>nothing to draw</p>"
    xs = [x for ps in series.values() for x, _ in ps]
    ys = [y for ps in series.values() for _, y in ps] + [y for b in bands.values() for _, *ends in b for y in ends]
    ys += [0.0] * has_zero
    across = Axis(min(xs), max(xs) if max(xs) > min(xs) else min(xs) + 1, LEFT, WIDTH - RIGHT)
    up = Axis(*span_of(ys, 0.0, percent), HEIGHT - BOTTOM, TOP)
    parts = [grid(across, up, x_name, percent, all(float(x).is_integer() for x in xs))]
    parts += [band(b, across, up, colours.get(name, PLAIN)) for name, b in bands.items() if name in series and b]
    parts += [curve(name, ps, across, up, colours.get(name, PLAIN), percent) for name, ps in series.items()]
    return figure(parts, f"{y_name} over {x_name}", legend(list(series), colours))


def band(points: Sequence[tuple[float, float, float]], across: Axis, up: Axis, colour: str) -> str:
    """The area between low and high."""
    there = [f"{across(x):.1f},{up(high):.1f}" for x, _, high in points]
    back = [f"{across(x):.1f},{up(low):.1f}" for x, low, _ in reversed(points)]
    return f'<polygon points="{" ".join(there + back)}" fill="{colour}" opacity="0.16"/>'


def curve(name: str, points: Points, across: Axis, up: Axis, colour: str, percent: bool) -> str:
    path = " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in points)
    dots = "".join(
        f'<circle cx="{across(x):.1f}" cy="{up(y):.1f}" r="2.4" fill="{colour}">'
        f"<title>{escape(name)}, {x:g}: {format_value(y, percent)}</title></circle>"
        for x, y in points
    )
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.8"/>{dots}'


def bars(
    groups: Sequence[str],
    series: Mapping[str, Sequence[float]],
    y_name: str,
    percent: bool = False,
    colours: Colours = NO_COLOURS,
) -> str:
    """Groups of bars side by side, one colour for each series."""
    values = [v for vs in series.values() for v in vs if isfinite(v)]
    if not groups or not values:
        return "<p class='none'>nothing to draw</p>"
    up = Axis(0.0, 1.0 if percent else max(max(values) * 1.05, 1e-12), HEIGHT - BOTTOM, TOP)
    slot = (WIDTH - LEFT - RIGHT) / len(groups)
    wide = 0.8 * slot / len(series)
    parts = [grid(None, up, "", percent)]
    for g, group in enumerate(groups):
        left = LEFT + g * slot + 0.1 * slot
        parts += [
            bar(group, n, vs[g], left + s * wide, wide, up, colours.get(n, PLAIN), percent)
            for s, (n, vs) in enumerate(series.items())
        ]
        at = f'x="{left + 0.4 * slot:.1f}" y="{HEIGHT - BOTTOM + LINE}"'
        parts.append(f'<text {at} text-anchor="middle">{escape(group)}</text>')
    return figure(parts, f"{y_name} by group", legend(list(series), colours) if len(series) > 1 else "")


def bar(group: str, name: str, value: float, left: float, wide: float, up: Axis, colour: str, percent: bool) -> str:
    if not isfinite(value):
        return ""
    top = up(value)
    title = f"<title>{escape(group)}, {escape(name)}: {format_value(value, percent)}</title>"
    box = f'x="{left:.1f}" y="{top:.1f}" width="{wide:.1f}" height="{max(0.0, up.start - top):.1f}"'
    return f'<rect {box} fill="{colour}">{title}</rect>'


def grid(across: Axis | None, up: Axis, x_name: str, percent: bool, whole: bool = False) -> str:
    rows = "".join(
        f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{up(t):.1f}" y2="{up(t):.1f}" class="grid"/>'
        f'<text x="{LEFT - 6}" y="{up(t) + 5:.1f}" text-anchor="end">{format_value(t, percent)}</text>'
        for t in up.ticks()
    )
    if across is None:
        return rows
    marks = "".join(
        f'<text x="{across(t):.1f}" y="{HEIGHT - BOTTOM + LINE}" text-anchor="middle">{t:g}</text>'
        for t in across.ticks(6, whole)
    )
    return (
        rows + marks + f'<text x="{(LEFT + WIDTH) / 2}" y="{HEIGHT - 4}" text-anchor="middle">{escape(x_name)}</text>'
    )


def format_value(value: float, percent: bool) -> str:
    if percent:
        return f"{100 * value:.3g}%"
    return f"{value / 1000:g}k" if abs(value) >= 10_000 else f"{value:.4g}"


def legend(names: Sequence[str], colours: Colours) -> str:
    keys = (f'<span><i style="background:{colours.get(n, PLAIN)}"></i>{escape(n)}</span>' for n in names)
    return f"<p class='legend'>{''.join(keys)}</p>"


def figure(
    parts: Sequence[str], label: str, key: str, width: float = WIDTH, height: float = HEIGHT, kind: str = "plot"
) -> str:
    box = f'viewBox="0 0 {width} {height}" role="img" aria-label="{escape(label)}"'
    return f"<figure class='{kind}'>{key}<svg {box}>{''.join(parts)}</svg></figure>"
