"""Numbers of samples that were given a label: what a device tells its hospital, and a hospital the service above.

Such a number is a fact about a person, so a device tells it only where its owner lets it, and in steps. Its hospital
keeps what it was told last, adds up what is new, and passes a sum on only when so many devices have added to it since
the last one as its settings want at least; in steps, too. A sum never falls: who has erased samples, or a lost disk,
adds nothing until there are more than before.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from edge_sdk.atomic import write_text
from edge_sdk.contract.children.limits import MOST_LABELLED
from edge_sdk.contract.run import ID
from edge_sdk.errors import UsageError

VERSION = 1
FILE = "labels.json"
DEVICE_STEP, SUM_STEP = 20, 100
"""Windows: a device tells multiples of the first, a hospital multiples of the second."""
COHORT = 5
"""Devices that have added to a sum before it is told, where the settings say nothing."""
MOST = 2**53
"""Largest sum: the service above takes none beyond. A device that loses its count again and again could pass it."""


def in_steps(count: int, step: int) -> int:
    """A count rounded down to a multiple of a step."""
    return count - count % step


class LabelSum:
    """Sum of the labels that a hospital's devices were given, kept in a file.

    Args:
        directory: of the node; its loop is the only one that writes there.
        cohort: devices that have to have added to a sum before it is told.

    Attributes:
        heard: device -> what it has told last.
        total: of all that was new, since the file was made.
        adding: devices that have added to it since it was told last.
        told: the sum as it may be told; None: too few devices have added to any.

    Raises:
        UsageError: the file cannot be read.
    """

    def __init__(self, directory: Path, cohort: int = COHORT):
        self.path, self.cohort = directory / FILE, cohort
        self.heard: dict[str, int] = {}
        self.total = 0
        self.told: int | None = None
        self.adding: set[str] = set()
        if self.path.exists():
            self.load()

    def load(self) -> None:
        try:
            found: Any = json.loads(self.path.read_bytes())
            if found["version"] != VERSION:
                raise ValueError(f"version {found['version']!r}")
            self.heard = {check_name(name): check_count(count) for name, count in found["heard"].items()}
            self.total, self.adding = min(check_count(found["total"]), MOST), {*map(check_name, found["adding"])}
            self.told = None if found["told"] is None else in_steps(min(check_count(found["told"]), MOST), SUM_STEP)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise UsageError(f"{self.path}: cannot be read: {error}; move it away, and counting begins anew") from None

    def note(self, device: str, count: int) -> None:
        """Note what a device has told. It is saved before it is told on; a repetition changes nothing."""
        count, before = min(count, MOST_LABELLED), self.heard.get(device, 0)
        if count == before:
            return
        self.heard[device] = count
        if count > before:
            self.total = min(self.total + count - before, MOST)
            self.adding.add(device)
        if len(self.adding) >= self.cohort:
            self.told, self.adding = in_steps(self.total, SUM_STEP), set()
        self.save()

    def save(self) -> None:
        content: dict[str, Any] = {"version": VERSION, "heard": self.heard, "total": self.total}
        content |= {"adding": sorted(self.adding), "told": self.told}
        write_text(self.path, json.dumps(content) + "\n", lasting=True)


def check_name(name: Any) -> str:
    if not isinstance(name, str) or not ID.fullmatch(name):
        raise ValueError(f"{name!r:.80} is no name")
    return name


def check_count(count: Any) -> int:
    if type(count) is not int or not count >= 0:
        raise ValueError(f"{count!r:.80} is no count")
    return count
