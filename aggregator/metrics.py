"""The metrics of a run: a file of JSON lines, one for each event that the method has told."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edge_sdk.atomic import PRIVATE, write_text


class Metrics:
    """A file in which every event occurs once, although the runtime may tell it again after a crash.

    A line that was cut off by a crash is removed when the file is opened: its event will be told again.
    """

    def __init__(self, path: Path):
        self.path, self.last = path, -1
        if path.exists():
            complete = [line for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
            write_text(path, "".join(complete))
            self.last = max((json.loads(line)["number"] for line in complete), default=-1)

    def add(self, number: int, line: Mapping[str, Any]) -> None:
        """Append a line, unless the event of this number is in the file already."""
        if number <= self.last:
            return
        self.path.touch(mode=PRIVATE)
        with self.path.open("a") as file:
            file.write(json.dumps({"number": number, **line}) + "\n")
        self.last = number
