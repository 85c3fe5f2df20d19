"""The metrics of a run: a file of JSON lines, one for each event that the method has told."""

from __future__ import annotations

import json
import logging
import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edge_sdk.atomic import PRIVATE, write_bytes

log = logging.getLogger("auscult.metrics")
Line = dict[str, Any]


class Metrics:
    """A file in which every event occurs once, although the runtime may tell it again after a crash.

    Each line ends with a checksum (`crc`, of the line without it). When the first event comes, a line that was cut off
    by a crash is removed: its event will be told again. A line that is not as it was written is moved to a file beside
    it, whose name ends in ".damaged".

    Args:
        path: of the file; runs that follow each other in one directory share it.
        run: id of the run whose events are added. Each run numbers its own.
    """

    def __init__(self, path: Path, run: str):
        self.path, self.run, self.last, self.opened = path, run, -1, False

    def open(self) -> None:
        """Read what is there. Only now, and not when it is made: until the run begins, another process may be at it."""
        self.opened = True
        if not self.path.exists():
            return
        lines = self.path.read_bytes().splitlines(keepends=True)
        read = {line: read_line(line) for line in lines if line.endswith(b"\n")}
        damaged = [line for line, found in read.items() if found is None]
        if damaged:
            self.put_aside(damaged)
        whole = [line for line in lines if read.get(line) is not None]
        if whole != lines:
            write_bytes(self.path, b"".join(whole))
        found = [line for line in read.values() if line is not None]
        # lines without a run are of an older version, which could only go on with the run that it had
        self.last = max((line["number"] for line in found if line.get("run", self.run) == self.run), default=-1)

    def put_aside(self, damaged: list[bytes]) -> None:
        aside = self.path.with_name(f"{self.path.name}.damaged")
        with aside.open("ab") as file:
            file.writelines(damaged)
        log.error("%s: %d damaged lines are now in %s", self.path, len(damaged), aside)

    def add(self, number: int, line: Mapping[str, Any]) -> None:
        """Append a line, unless the event of this number is in the file already.

        Raises:
            OSError: it cannot be written; the file is as it was before, so that it can be tried again.
        """
        if not self.opened:
            self.open()
        if number <= self.last:
            return
        self.path.touch(mode=PRIVATE)
        with self.path.open("ab", buffering=0) as file:
            before = file.tell()
            content = write_line({"number": number, "run": self.run, **line})
            try:
                if (written := file.write(content)) != len(content):
                    raise OSError(28, f"{written} of {len(content)} bytes were written", str(self.path))
                os.fsync(file.fileno())  # the store forgets the event soon, and that may be what a power cut leaves
            except OSError:
                os.ftruncate(file.fileno(), before)
                raise
        self.last = number


def write_line(fields: Line) -> bytes:
    """An object as a line with its checksum at the end."""
    text = json.dumps(fields)
    return f'{text[:-1]}, "crc": {zlib.crc32(text.encode())}}}\n'.encode()


def read_line(line: bytes) -> Line | None:
    """The object in a line; None: it is not what was written. An older version wrote no checksum."""
    try:
        found: Line = json.loads(line)
        crc = found.pop("crc", None)
        right = crc is None or zlib.crc32(json.dumps(found).encode()) == crc
        return found if right and type(found["number"]) is int else None
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
