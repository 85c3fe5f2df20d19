"""What was put right when a recording was read: counted, with the first line of each kind. Nothing is silent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from edge_sdk.errors import UsageError


@dataclass(frozen=True)
class Repair:
    """Rows of one file that were put right in one way.

    Attributes:
        what: was wrong, such as "no number in ax".
        done: about it, such as "left out".
        rows: how many.
        line: of the first, from 1, the first line of the file; 0: the file has no lines.
        value: of the first, as it is written; "": none.
    """

    what: str
    done: str
    rows: int
    line: int = 0
    value: str = ""

    def __str__(self) -> str:
        value = f" {self.value!r:.60}" if self.value else ""
        where = f" (first: line {self.line}{value})" if self.line else ""
        return f"{self.rows} row{'s' * (self.rows != 1)} {self.done}: {self.what}{where}"


class Repairs:
    """The repairs of one file while it is read, and what was guessed about it.

    Args:
        file: is named in errors.
        strict: refuse what would be repaired.
    """

    def __init__(self, file: Path, strict: bool = False) -> None:
        self.file, self.strict = file, strict
        self.found: dict[tuple[str, str], Repair] = {}
        self.notes: list[str] = []

    def add(self, what: str, done: str, lines: npt.NDArray[np.integer] | Sequence[int], value: str = "") -> None:
        """Counts rows. `lines`: of each of them, in the order of the file; none: nothing was wrong.

        Raises:
            UsageError: nothing may be repaired.
        """
        if not len(lines):
            return
        first = int(lines[0])
        if self.strict:
            said = f" {value!r:.60}" if value else ""
            count = f"{len(lines)} rows are" if len(lines) != 1 else "1 row is"
            where = f" line {first}" if first else ""
            raise UsageError(f"{self.file}{where}:{said} {what}; without strict, {count} {done}")
        before = self.found.setdefault((what, done), Repair(what, done, 0, first, value))
        self.found[what, done] = replace(before, rows=before.rows + len(lines))

    def forget(self, what: str) -> None:
        """Tells nothing of rows in which this was wrong, which are kept after all."""
        self.found = {key: repair for key, repair in self.found.items() if key[0] != what}

    def note(self, text: str) -> None:
        """Tells once what was guessed, or left as it is."""
        if text not in self.notes:
            self.notes.append(text)

    def doubt(self, text: str) -> None:
        """Tells what loses something; refused where nothing may be repaired.

        Raises:
            UsageError: nothing may be repaired.
        """
        if self.strict:
            raise UsageError(f"{self.file}: {text}")
        self.note(text)
