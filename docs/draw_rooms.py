"""Draws the rooms of edge_sdk from docs/import_table.toml as docs/rooms.svg: `python docs/draw_rooms.py`.

A room stands one floor above the highest room that it may import; a room that nobody imports stands on the top floor.
An arrow is drawn to each room that cannot be reached by way of another arrow; what else may be imported is written in
the box. Arrows go straight down, or down and then sideways, and never through a box.
"""

from __future__ import annotations

import textwrap
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
WIDTH, MARGIN, COLUMNS = 900, 24, 12
GAP, FLOOR_GAP, PADDING = 18, 34, 12  # between boxes, between floors, inside a box; all in pixels
TITLE, LINE = 19, 16  # heights of a title and of a line of text
LETTER = 6.1  # width of a letter of text, about
APART = 22  # between two arrows
LABELS = 180  # longest line beside an arrow
LEGEND = 60.0, 350.0  # left and right, in the free place beside live and delivery

STYLE = """
  .ground { fill: #fbfaf7; stroke: #d9d5cb; }
  text { font-family: "Segoe UI", "Helvetica Neue", Arial, "DejaVu Sans", sans-serif; fill: #24262b; font-size: 12px; }
  .name { font-size: 15px; font-weight: 600; }
  .also, .note { fill: #666a73; font-size: 11px; }
  .heading { font-size: 13px; font-weight: 600; }
  .arrow { stroke: #7b7f88; stroke-width: 1.6; fill: none; }
  .head { fill: #7b7f88; }
  .pure { fill: #e3f1e7; stroke: #7fb08f; }
  .own { fill: #fbeed3; stroke: #cfa552; }
  .network { fill: #dfebf8; stroke: #7fa3cc; }
  .top { fill: #ece6f4; stroke: #a18fc0; }
  .package { fill: #ffffff; stroke: #c9c5bb; stroke-dasharray: 4 3; }
  @media (prefers-color-scheme: dark) {
    .ground { fill: #1d2026; stroke: #3a3f49; }
    text { fill: #e6e7ea; }
    .also, .note { fill: #a4a9b3; }
    .arrow { stroke: #9aa0ab; }
    .head { fill: #9aa0ab; }
    .pure { fill: #21382b; stroke: #5c9470; }
    .own { fill: #3b3220; stroke: #a98a48; }
    .network { fill: #20324a; stroke: #5c86b8; }
    .top { fill: #322b40; stroke: #8674a8; }
    .package { fill: #1d2026; stroke: #555b66; }
  }
"""


@dataclass
class Box:
    """A room in the picture, in pixels."""

    name: str
    family: str
    reason: list[str]
    also: list[str]
    left: float
    right: float
    top: float = 0
    bottom: float = 0

    @property
    def height(self) -> float:
        return 2 * PADDING + TITLE + LINE * len(self.reason) + (LINE - 1) * len(self.also) - 4

    @property
    def middle(self) -> float:
        return (self.top + self.bottom) / 2


def targets(rooms: dict[str, Any], name: str) -> dict[str, list[str]]:
    """Room -> the modules of it that a room may import; none: all of them. Modules outside the rooms are left out."""
    found: dict[str, list[str]] = {}
    for other in rooms[name]["imports"]:
        room, _, module = other.partition(".")
        if room in rooms:
            found.setdefault(room, []).extend([module] if module else [])
    return found


def nearest(rooms: dict[str, Any], name: str) -> list[str]:
    """The rooms that a room may import and that no other of these leads to."""
    direct = targets(rooms, name)
    return [room for room in direct if not any(room in below(rooms, other) for other in direct)]


def below(rooms: dict[str, Any], name: str) -> set[str]:
    """All rooms that a room leads to, by one step or several."""
    direct = set(targets(rooms, name))
    return direct.union(*(below(rooms, other) for other in direct))


def floors(rooms: dict[str, Any]) -> dict[str, int]:
    """Room -> its floor, from 0 on."""
    heights: dict[str, int] = {}

    def height(name: str) -> int:
        if name not in heights:
            heights[name] = 1 + max((height(other) for other in targets(rooms, name)), default=-1)
        return heights[name]

    highest = max(height(name) for name in rooms)
    wanted = set().union(*(targets(rooms, name) for name in rooms))
    return {name: heights[name] if name in wanted else highest for name in rooms}


def wrapped(words: str, width: float, letter: float = LETTER) -> list[str]:
    return textwrap.wrap(words, int((width - 2 * PADDING) / letter), break_on_hyphens=False)


def boxes(rooms: dict[str, Any], top: float) -> dict[str, Box]:
    """All rooms at their places; `top`: where the highest floor begins."""
    column = (WIDTH - 2 * MARGIN + GAP) / COLUMNS
    made = {}
    for name, room in rooms.items():
        first, last = room["columns"]
        left, right = MARGIN + (first - 1) * column, MARGIN + last * column - GAP
        near = nearest(rooms, name)
        others = [other for other in room["imports"] if other.partition(".")[0] not in near]
        also = wrapped("also " + ", ".join(others), right - left, 5.8) if others else []
        made[name] = Box(name, room["family"], wrapped(room["reason"], right - left), also, left, right)
    level = floors(rooms)
    for floor in range(max(level.values()), -1, -1):
        here = [made[name] for name in rooms if level[name] == floor]
        for box in here:
            box.top, box.bottom = top, top + max(other.height for other in here)
        top = here[0].bottom + FLOOR_GAP
    return made


Point = tuple[float, float]


def crosses(one: Point, other: Point, box: Box) -> bool:
    """Whether a horizontal or vertical line touches a box, or comes close to it."""
    (x1, x2), (y1, y2) = sorted((one[0], other[0])), sorted((one[1], other[1]))
    return x1 < box.right + 4 and x2 > box.left - 4 and y1 < box.bottom and y2 > box.top


def ways(start: Box, end: Box) -> Iterator[list[Point]]:
    """Ways from the bottom of a box to another one: straight down first, from the middle outward; else with a bend."""
    middle = (max(start.left, end.left) + min(start.right, end.right)) / 2
    places = sorted(range(int(start.left) + 14, int(start.right) - 13, 2), key=lambda x: abs(x - middle))
    for x in places:
        if end.left + 14 <= x <= end.right - 14:
            yield [(x, start.bottom), (x, end.top)]
    for x in places:
        side = end.right if x > end.right else end.left
        yield [(x, start.bottom), (x, end.middle), (side, end.middle)]


def is_near(way: list[Point], other: list[Point]) -> bool:
    """Whether the vertical parts of two arrows run side by side with less than APART between them."""
    overlap = way[0][1] < other[1][1] and other[0][1] < way[1][1]
    return overlap and abs(way[0][0] - other[0][0]) < APART


def route(start: Box, end: Box, others: list[Box], taken: list[list[Point]]) -> list[Point]:
    """The first way that touches no other box and keeps its distance from other arrows.

    Raises:
        ValueError: there is none; the table's `columns` have to leave room for one.
    """
    for way in ways(start, end):
        free = not any(crosses(a, b, box) for a, b in pairwise(way) for box in others)
        if free and not any(is_near(way, other) for other in taken):
            return way
    raise ValueError(f"no way for an arrow from {start.name} to {end.name}: change their columns")


def arrow(way: list[Point], labels: list[str]) -> str:
    """A line with a head, and beside the head the only modules that it leads to."""
    (x, y), (before_x, _) = way[-1], way[-2]
    down = before_x == x
    tip = f"{x},{y} {x - 4.5},{y - 9} {x + 4.5},{y - 9}"
    if not down:
        sign = 1 if before_x > x else -1
        tip = f"{x},{y} {x + sign * 9},{y - 4.5} {x + sign * 9},{y + 4.5}"
    points = [*way[:-1], (x, y - 7) if down else (x + (7 if before_x > x else -7), y)]
    line = " ".join(f"{a:.1f},{b:.1f}" for a, b in points)
    found = f'<polyline class="arrow" points="{line}"/><polygon class="head" points="{tip}"/>'
    if labels and down:
        lines = wrapped(", ".join(labels), LABELS)
        found += "".join(words(x + 8, y - 12 - 13 * i, line, "note") for i, line in enumerate(reversed(lines)))
    elif labels:
        found += words(x + 12, y - 8, labels[0], "note") + words(x + 12, y + 16, ", ".join(labels[1:]), "note")
    return found


def words(x: float, y: float, text: str, kind: str = "") -> str:
    kind = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{kind}>{escape(text)}</text>'


def drawn(box: Box) -> str:
    x, y = box.left + PADDING, box.top + PADDING + 12
    size = f'width="{box.right - box.left:.1f}" height="{box.bottom - box.top:.1f}"'
    parts = [f'<rect class="{box.family}" x="{box.left:.1f}" y="{box.top:.1f}" {size} rx="7"/>']
    parts.append(words(x, y, box.name, "name"))
    lines = [(text, "") for text in box.reason] + [(text, "also") for text in box.also]
    parts += [words(x, y + TITLE + i * (LINE - (kind != "")), text, kind) for i, (text, kind) in enumerate(lines)]
    return "".join(parts)


def arrows(rooms: dict[str, Any], made: dict[str, Box], legend: Box) -> Iterator[str]:
    taken: list[list[Point]] = []
    for name in rooms:
        for other in nearest(rooms, name):
            rest = [legend, *(box for box in made.values() if box.name not in (name, other))]
            way = route(made[name], made[other], rest, taken)
            taken.append(way)
            yield arrow(way, targets(rooms, name)[other])


NOTES = (
    "An arrow leads to a room that may be imported;",
    "“also” names those that it leads past.",
    "A name beside an arrow: only that module.",
    "All of them may import errors.",
)


def legend(families: dict[str, str], place: Box) -> Iterator[str]:
    x, y = place.left + PADDING, place.top + 12
    yield words(x, y, "How to read it", "heading")
    for i, line in enumerate(NOTES):
        yield words(x, y + 20 + 16 * i, line, "note")
    for i, (family, meaning) in enumerate(families.items()):
        top = y + 96 + 20 * i
        yield f'<rect class="{family}" x="{x:.1f}" y="{top - 10:.1f}" width="18" height="12" rx="3"/>'
        yield words(x + 26, top, meaning, "note")


def listed(imports: list[str]) -> str:
    """What a package may import, its parts behind the name of their own package."""
    parts: dict[str, list[str]] = {}
    for name in imports:
        package, _, part = name.partition(".")
        parts.setdefault(package, []).extend([part] if part else [])
    return "; ".join(f"of {name} {', '.join(some)}" if some else name for name, some in parts.items()) or "no other"


def packages(table: dict[str, Any], top: float) -> tuple[list[str], float]:
    """The packages of the repository in one row; and where it ends."""
    width = (WIDTH - 2 * MARGIN - GAP * (len(table) - 1)) / len(table)
    boxes = []
    for i, (name, package) in enumerate(table.items()):
        left = MARGIN + i * (width + GAP)
        also = wrapped("imports " + listed(package["imports"]), width, 5.8)
        boxes.append(Box(name, "package", wrapped(package["reason"], width), also, left, left + width, top))
    bottom = top + max(box.height for box in boxes)
    for box in boxes:
        box.bottom = bottom
    return [drawn(box) for box in boxes], bottom


def svg(table: dict[str, Any]) -> str:
    row, end = packages(table["packages"], 50)
    rooms = table["rooms"]
    made = boxes(rooms, end + 56)
    height = int(max(box.bottom for box in made.values()) + MARGIN)
    body = [words(MARGIN, 36, "The packages of the repository", "heading"), *row]
    body += [words(MARGIN, end + 42, "The rooms of edge_sdk", "heading")]
    place = Box("legend", "", [], [], *LEGEND, made["live"].top, made["delivery"].bottom)
    body += arrows(rooms, made, place)
    body += [drawn(box) for box in made.values()]
    body += legend(table["families"], place)
    title = "<title>The packages and the rooms of Auscult, and which may import which</title>"
    ground = f'<rect class="ground" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="10"/>'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}">'
    return "\n".join([head, title, f"<style>{STYLE}</style>", ground, *body, "</svg>", ""])


if __name__ == "__main__":
    table = tomllib.loads((HERE / "import_table.toml").read_text())
    (HERE / "rooms.svg").write_text(svg(table), encoding="utf-8")
