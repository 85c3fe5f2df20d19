"""A bar of the rounds that are done, and what goes on around them: on a terminal, in a notebook, or nowhere."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, TextIO

WIDTH = 30
WORDS = 60
"""Letters of what is done that fit beside a bar."""
Done = tuple[int, int]
"""Rounds that are done, and all rounds; 0: nobody knows yet."""


class Bar(Protocol):
    """Who is shown how far runs are."""

    def show(self, runs: Sequence[Done], doing: str = "") -> None:
        """Takes how far each run is, and in words what is done where no round is played."""

    def close(self) -> None:
        """Goes: all of them are over."""


class NoBar:
    """Nobody looks."""

    def show(self, runs: Sequence[Done], doing: str = "") -> None:
        return

    def close(self) -> None:
        return


class TerminalBar:
    """A line on a terminal that is written over."""

    def __init__(self, file: TextIO) -> None:
        self.file, self.last = file, ""

    def show(self, runs: Sequence[Done], doing: str = "") -> None:
        text = line_of(runs, doing)
        if text != self.last:
            self.file.write(f"\r{text.ljust(len(self.last))}")
            self.file.flush()
            self.last = text

    def close(self) -> None:
        self.file.write(f"\r{' ' * len(self.last)}\r")
        self.file.flush()


class NotebookBar:
    """An output of a notebook's cell that is replaced, and goes when all is done."""

    def __init__(self, display: Any) -> None:
        self.handle, self.last = display({"text/plain": ""}, raw=True, display_id=True), ""

    def show(self, runs: Sequence[Done], doing: str = "") -> None:
        text = line_of(runs, doing)
        if text != self.last:
            self.handle.update({"text/plain": text}, raw=True)
            self.last = text

    def close(self) -> None:
        self.handle.update({"text/plain": ""}, raw=True)


def make_bar(wanted: bool | None = None) -> Bar:
    """The bar that suits where this runs. `wanted`: None: where somebody looks."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if wanted is False:
        return NoBar()
    if shell is not None and hasattr(shell, "kernel"):
        return NotebookBar(sys.modules["IPython"].display.display)
    return TerminalBar(sys.stderr) if wanted or sys.stderr.isatty() else NoBar()


def line_of(runs: Sequence[Done], doing: str = "") -> str:
    """A line of text: "[######......] 12 of 50 rounds, run 2 of 5"; `doing`: before the first and after the last."""
    doing = doing if len(doing) <= WORDS else f"{doing[:WORDS]}..."
    done = sum(done for done, _ in runs)
    most = max((every for _, every in runs), default=0)
    every, over = most * len(runs), sum(0 < most <= done for done, _ in runs)
    if not every:
        return doing or "starting"
    full = min(WIDTH, WIDTH * done // every)
    of_runs = f", {over} of {len(runs)} runs are over" if len(runs) > 1 else ""
    around = f"; {doing}" if doing and done >= every else ""
    return f"[{'#' * full}{'.' * (WIDTH - full)}] {done} of {every} rounds{of_runs}{around}"


def rounds_of(out: Path) -> Done:
    """Rounds of the run in a directory, by what it has written there."""
    try:
        every = int(json.loads((out / "job.json").read_text())["rounds"])
        lines = (out / "metrics.jsonl").read_text().splitlines()
    except (OSError, ValueError, KeyError):
        return 0, 0
    return sum('"kind": "round"' in line for line in lines), every


def said_last(log: Path) -> str:
    """The sentence that a run has said last, without the rows of its tables; "": none yet."""
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return next((line for line in reversed(lines) if line[:1].isalpha()), "")
