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

    Args:
        path: of the file; runs that follow each other in one directory share it.
        run: id of the run whose events are added. Each run numbers its own.
    """

    def __init__(self, path: Path, run: str):
        self.path, self.run, self.last = path, run, -1
        if path.exists():
            complete = [line for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
            write_text(path, "".join(complete))
            found = [json.loads(line) for line in complete]
            # lines without a run are of an older version, which could only go on with the run that it had
            self.last = max((line["number"] for line in found if line.get("run", run) == run), default=-1)

    def add(self, number: int, line: Mapping[str, Any]) -> None:
        """Append a line, unless the event of this number is in the file already."""
        if number <= self.last:
            return
        self.path.touch(mode=PRIVATE)
        with self.path.open("a") as file:
            file.write(json.dumps({"number": number, "run": self.run, **line}) + "\n")
        self.last = number
