"""The table of traces: what each device recorded, in the terminal."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edge_sdk.replay.imports.importing import DeviceLine

HEADER = ("device", "rate", "channels", "hours", "gaps", "labels", "no label")
SHOWN = 5
"""Labels of a device that are named."""


def table_of(lines: Sequence[DeviceLine]) -> str:
    """A line for each device under a header."""
    rows = [HEADER, *(row_of(line) for line in lines)]
    widths = [max(len(row[n]) for row in rows) for n in range(len(HEADER))]
    right = {"rate", "hours", "gaps", "no label"}

    def fill(row: Sequence[str]) -> str:
        cells = [
            cell.rjust(width) if name in right else cell.ljust(width)
            for cell, width, name in zip(row, widths, HEADER, strict=True)
        ]
        return "  ".join(cells).rstrip()

    rule = "-" * (sum(widths) + 2 * (len(widths) - 1))
    return "\n".join([fill(rows[0]), rule, *map(fill, rows[1:])])


def row_of(line: DeviceLine) -> tuple[str, ...]:
    """The cells of a device."""
    names = [name + (f" ({line.units[name]})" if name in line.units else "") for name in line.channels]
    most = sorted(line.seconds, key=lambda name: -line.seconds[name])
    more = [f"and {len(most) - SHOWN} more"] if len(most) > SHOWN else []
    return (
        line.name,
        f"{line.rate_hz:.4g} Hz",
        short(", ".join(names), 40),
        f"{line.hours:.2f}",
        str(line.gaps),
        short(", ".join([*most[:SHOWN], *more]) or "-", 60),
        f"{line.unlabelled:.0%}",
    )


def hint_of_targets(lines: Sequence[DeviceLine]) -> list[str]:
    """What to say of a column whose gaps have cost rows; nothing where none has."""
    lacks = Counter(
        name
        for line in lines
        for text in line.repairs
        for name in re.findall(r"left out: no number in ([^,]+?)(?: \(|$)", text)
    )
    found = [name for name in lacks if any(name in line.channels for line in lines)]
    if not found:
        return []
    return [f"rows are left out for want of {', '.join(found)}; if one is to be predicted, --target NAME keeps them"]


def short(text: str, most: int) -> str:
    """A text with its end cut off where it is long."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def notes_of(lines: Sequence[DeviceLine], left: Sequence[str]) -> list[str]:
    """What was guessed and put right: once where it is so of all devices, else under each device's name."""
    counts = Counter(note for line in lines for note in line.notes)
    shared = [note for note, count in counts.items() if count == len(lines) > 1]
    found = [f"all devices: {note}" for note in shared]
    for line in lines:
        own = [note for note in line.notes if note not in shared]
        if own or line.repairs:
            found.append(f"{line.name}: {'; '.join([*own, *line.repairs])}")
    return [*found, *left]
