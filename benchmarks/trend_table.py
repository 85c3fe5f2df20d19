"""Ratios of the figures of two trees, their intervals, and the table of benchmarks/trend.py in pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, log, sqrt
from pathlib import Path
from statistics import fmean, median, stdev

END = "<!-- end of the table -->"
MOST = 1.10
"""Ratio that the whole interval must not be above."""
T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)
"""Quantile 0.975 of Student's t distribution with 1, 2, ... degrees of freedom."""


@dataclass(frozen=True)
class Ratio:
    """Today's figure by an earlier tree's: the geometric mean over blocks, and its interval of 95 %."""

    mean: float
    low: float
    high: float

    @property
    def is_dearer(self) -> bool:
        return self.low > MOST

    def __str__(self) -> str:
        if self.low == self.high:
            return f"{self.mean:.2f}"
        return f"{self.mean:.2f} [{self.low:.2f}, {self.high:.2f}]"


def find_ratio(today: Sequence[float], earlier: Sequence[float]) -> Ratio:
    """The ratio of figures that were measured in the same blocks.

    Raises:
        ValueError: there are fewer than two blocks, or not as many of each, or a figure is not above 0.
    """
    if len(today) < 2 or min(*today, *earlier) <= 0:
        raise ValueError(f"ratios of two blocks or more, all above 0: {today} and {earlier}")
    logs = [log(a / b) for a, b in zip(today, earlier, strict=True)]
    quantile = T[min(len(logs) - 1, len(T)) - 1]
    half = quantile * stdev(logs) / sqrt(len(logs))
    return Ratio(exp(fmean(logs)), exp(fmean(logs) - half), exp(fmean(logs) + half))


@dataclass(frozen=True)
class Row:
    """One figure: its name, today's median, and the ratio to each earlier tree; None: it cannot be run there."""

    name: str
    today: float
    ratios: tuple[Ratio | None, ...]


def is_complete(values: Sequence[float | None]) -> bool:
    """A figure was measured in every block."""
    return bool(values) and None not in values


def compare(name: str, by_tree: Mapping[str, Sequence[float | None]], today: str, earlier: Sequence[str]) -> Row:
    """The row of a figure from what was measured in each tree; this tree was measured in every block. There is no ratio
    to a tree that was not: blocks before it failed are no sample of blocks."""
    mine = [value for value in by_tree[today] if value is not None]
    ratios = list[Ratio | None]()
    for tree in earlier:
        theirs = [value for value in by_tree[tree] if value is not None]
        ratios.append(find_ratio(mine, theirs) if is_complete(by_tree[tree]) else None)
    return Row(name, median(mine), tuple(ratios))


def write_table(rows: Sequence[Row], earlier: Sequence[str], units: Mapping[str, str]) -> str:
    """The table of all rows, in Markdown. `units`: name of a figure -> its unit."""
    heads = ["what it costs", "today", *(f"by {tree}" for tree in earlier)]
    lines = [heads, ["---"] * len(heads)]
    for row in rows:
        ratios = ("-" if ratio is None else f"**{ratio}**" if ratio.is_dearer else str(ratio) for ratio in row.ratios)
        lines.append([row.name, f"{row.today:.3g} {units[row.name]}", *ratios])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def say_failures(rows: Sequence[Row], earlier: Sequence[str]) -> list[str]:
    """A line for each figure that has become dearer."""
    return [
        f"{row.name}: {ratio} times that of {tree}; more than {MOST:.2f} is a failure"
        for row in rows
        for tree, ratio in zip(earlier, row.ratios, strict=True)
        if ratio is not None and ratio.is_dearer
    ]


def begin(table: str) -> str:
    """The mark before a table. `table`: the script of benchmarks/ that writes it, and a name if it writes several."""
    return f"<!-- the table of benchmarks/{table} -->"


def find_between(page: Path, table: str) -> tuple[int, int]:
    """Where in a page the text between the marks of a table begins and ends.

    Raises:
        ValueError: the page has not the first mark once, and the mark of an end behind it.
    """
    text, mark = page.read_text(), begin(table)
    if text.count(mark) != 1 or END not in text.partition(mark)[2].partition("<!-- the table")[0]:
        raise ValueError(f"{page} has not the two lines {mark!r}, once, and {END!r} after it")
    start = text.index(mark) + len(mark)
    return start, text.index(END, start)


def read_between(page: Path, table: str = "trend.py") -> str:
    """What stands between the marks of a table in a page."""
    start, end = find_between(page, table)
    return page.read_text()[start:end].strip()


def put_between(page: Path, content: str, table: str = "trend.py") -> None:
    """Put a text between the marks of a table in a page, in place of what is there."""
    start, end = find_between(page, table)
    text = page.read_text()
    page.write_text(f"{text[:start]}\n\n{content}\n\n{text[end:]}")
