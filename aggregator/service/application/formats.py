"""Figures, sizes and times as people read them, in pages and in the answers of commands."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

DAY = 86400.0  # seconds
NONE = "\N{EN DASH}"
"""What stands where there is no figure."""


def percent(share: float | None) -> str:
    return NONE if share is None else f"{100 * share:.1f} %"


def figure(found: Mapping[str, Any], model: str) -> str:
    """The accuracy of a model, or its errors in their units. `found`: "accuracy" and, of values, "errors", "units"."""
    if (share := found.get("accuracy", {}).get(model)) is not None or not found.get("errors", {}).get(model):
        return percent(share)
    errors = zip(found["errors"][model].values(), found["units"], strict=False)
    return ", ".join(f"{'NaN' if error is None else number(error)} {unit}".rstrip() for error, unit in errors)


def order_of(found: Mapping[str, Any], model: str) -> float | None:
    """The number by which rows with figures are sorted: the accuracy, or the error of the first value."""
    share: float | None = found.get("accuracy", {}).get(model)
    return share if share is not None else next(iter(found.get("errors", {}).get(model, {}).values()), None)


def measure_of(found: Mapping[str, Any]) -> str:
    """What the figures of a run or a model are, with the units of errors."""
    units = [unit for unit in found.get("units", ()) if unit]
    return f"{found.get('score', 'accuracy')}{' in ' * bool(units)}{', '.join(dict.fromkeys(units))}"


def number(value: float | None, digits: int = 4) -> str:
    return NONE if value is None else f"{value:.{digits}g}"


def count(value: int | None) -> str:
    """A whole number for people, with thousands apart."""
    return NONE if value is None else f"{value:,}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def size(count: float | None) -> str:
    """Bytes for people, e.g. 1.2 MB."""
    if count is None:
        return NONE
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1000
    raise AssertionError("GB ends the loop")


def duration(seconds: float | None) -> str:
    """Seconds for people, e.g. 4 min."""
    if seconds is None:
        return NONE
    for limit, unit, digits in ((1.0, 1.0, "s"), (100.0, 1.0, "s"), (5400.0, 60.0, "min"), (2 * DAY, 3600.0, "h")):
        if seconds < limit:
            return f"{seconds / unit:.2f} {digits}" if limit == 1.0 else f"{seconds / unit:.0f} {digits}"
    return f"{seconds / DAY:.0f} days"


def ago(at: float | None) -> str:
    """The time since a moment, for people; "never" where there was none."""
    return duration(max(0.0, time.time() - at)) if at else "never"


def when(at: float | None) -> str:
    """A moment, in the time zone of the service, which is named."""
    return time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(at)) if at else NONE


def name_zone() -> str:
    """The time zone of the service, such as "CET, UTC+01:00"."""
    now = time.localtime()
    hours, minutes = divmod(abs(now.tm_gmtoff) // 60, 60)
    return f"{now.tm_zone}, UTC{'-' if now.tm_gmtoff < 0 else '+'}{hours:02}:{minutes:02}"


def part(text: str) -> str:
    """A name as a part of an address, whatever it has in it."""
    return quote(text, safe="")


FILTERS = {
    "percent": percent,
    "figure": figure,
    "measure": measure_of,
    "number": number,
    "count": count,
    "size": size,
    "duration": duration,
    "ago": ago,
    "when": when,
    "part": part,
}
