"""Availability of devices that nobody wore: nights on the charger, days on the battery, hours without a network.

    evening   on the charger at 22:30, give or take an hour and a half; one night in ten it is forgotten
    night     6 to 9 hours there; the battery is full after two
    day       the battery falls by 3 to 5 % an hour; in one day of three it is offline for 2 to 9 hours
    heat      31 degrees Celsius and up to 8 more, by the hour of the day

The figures are plausible and measured on nobody. Same seed, same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import pi, sin
from pathlib import Path

import numpy as np

from edge_sdk.data.availability import SUFFIX
from edge_sdk.errors import UsageError

STEP = 900.0  # seconds between two lines
DAY, HOUR = 86400.0, 3600.0
CHARGING = 0.5  # of a battery, an hour


def write_nights(directory: Path, devices: tuple[str, ...], days: int, seed: int) -> None:
    """Writes NAME.availability.csv for each device."""
    if days < 1:
        raise UsageError(f"--days {days}: at least 1")
    for index, name in enumerate(devices):
        random = np.random.default_rng([seed, index, 77])
        lines = ["time,offline,charging,battery,celsius", *make_lines(random, days)]
        (directory / f"{name}{SUFFIX}").write_text("\n".join(lines) + "\n", encoding="utf-8")


def make_lines(random: np.random.Generator, days: int) -> Iterator[str]:
    """Lines of one device."""
    charging, offline = draw_spans(random, days)
    battery, falls = random.uniform(0.4, 0.9), random.uniform(0.03, 0.05)
    for step in range(int(days * DAY / STEP)):
        now = step * STEP
        plugged, away = is_in(charging, now), is_in(offline, now)
        battery = min(1.0, battery + CHARGING * STEP / HOUR) if plugged else max(0.02, battery - falls * STEP / HOUR)
        celsius = 31 + 4 * (1 + sin(2 * pi * (now / DAY - 0.4))) + random.normal(0, 0.5)
        yield f"{now:.0f},{away:d},{plugged:d},{battery:.3f},{celsius:.1f}"


Spans = list[tuple[float, float]]


def draw_spans(random: np.random.Generator, days: int) -> tuple[Spans, Spans]:
    """Spans of seconds in which a device is on the charger, and in which it is offline."""
    charging, offline = [], []
    for day in range(-1, days):
        evening = day * DAY + 22.5 * HOUR + random.uniform(-1.5, 1.5) * HOUR
        if random.random() < 0.9:
            charging.append((evening, evening + random.uniform(6, 9) * HOUR))
        morning = day * DAY + random.uniform(8, 13) * HOUR
        if random.random() < 1 / 3:
            offline.append((morning, morning + random.uniform(2, 9) * HOUR))
    return charging, offline


def is_in(spans: Spans, time: float) -> bool:
    return any(first <= time < last for first, last in spans)
