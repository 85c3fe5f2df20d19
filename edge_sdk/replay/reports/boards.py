"""Cost of a replay's devices on the boards that they were emulated as: a row for each, for terminal and page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from edge_sdk.replay.reports.sections import table

HEAD = ("board", "devices", "share", "busy s", "wall s", "J", "MB", "of MB", "kB")
WIDTHS = (24, 8, 8, 9, 9, 9, 7, 7, 9)


def board_cells(row: Mapping[str, Any]) -> Sequence[str]:
    """A row's cells, in the order of HEAD. What nothing tells is named as that."""
    return (
        row["board"],
        str(row["devices"]),
        f"{row['share']:.1%}",
        f"{row['busy_seconds']:.0f}",
        f"{row['seconds']:.0f}",
        "unknown" if row["joules"] is None else f"{row['joules']:.0f}",
        f"{row['peak_memory_mb']:.0f}",
        "-" if row["memory_mb"] is None else f"{row['memory_mb']:.0f}",
        f"{row['bytes'] / 1000:.0f}",
    )


def board_lines(boards: Mapping[str, Any]) -> str:
    """The rows as a table of text, and below it what it does not tell."""
    lines = [
        "".join(
            f"{cell:<{wide}}" if i == 0 else f"{cell:>{wide}}"
            for i, (cell, wide) in enumerate(zip(cells, WIDTHS, strict=True))
        )
        for cells in (HEAD, *map(board_cells, boards["rows"]))
    ]
    rule = "-" * len(lines[0])
    return "\n".join(
        [lines[0], rule, *lines[1:], rule, *describe_heat(boards), boards["how"], boards["not_reproduced"]]
    )


def describe_heat(boards: Mapping[str, Any]) -> list[str]:
    """A sentence about the temperature of the machine that emulated, if that tells any."""
    celsius = boards["rows"][0]["this_machine_celsius"]
    return [] if celsius is None else [f"This machine had {celsius:.0f} degrees Celsius at the end."]


def boards_section(result: Mapping[str, Any]) -> str:
    """Section with a row for each board; empty where none was emulated."""
    if "boards" not in result:
        return ""
    boards = result["boards"]
    words = " ".join([*describe_heat(boards), boards["how"], boards["not_reproduced"]])
    found = table(HEAD, map(board_cells, boards["rows"]))
    return f"<h2>On emulated boards, means over their devices</h2>{found}<p class='note'>{escape(words)}</p>"
