"""Writes files that change in one piece: a reader finds the old one or the new one, whatever dies meanwhile.

The new content is written beside the file and then takes its name, which POSIX does in one step. Each writer has a name
of its own for what it writes aside, so that two processes which should not share a directory do not trip each other up.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from typing import BinaryIO

ASIDE = ".new"
"""How the name of a file ends that has not taken its place yet: a process that was killed may leave one."""
LEFT = re.compile(rf".+\.[0-9a-f]{{8}}{re.escape(ASIDE)}")


@contextmanager
def replace_file(path: Path) -> Iterator[BinaryIO]:
    """Open a new file that replaces `path` when the `with` ends; after an exception the old one stays as it was.

    Raises:
        OSError: the file cannot be written.
    """
    aside = path.with_name(f"{path.name}.{token_hex(4)}{ASIDE}")  # as LEFT reads it
    try:
        with aside.open("wb") as file:
            yield file
        os.replace(aside, path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


def write_bytes(path: Path, data: bytes | memoryview) -> None:
    """Replace the content of a file, or make it."""
    with replace_file(path) as file:
        file.write(data)


def write_text(path: Path, text: str) -> None:
    """Replace the content of a text file, or make it; in UTF-8."""
    write_bytes(path, text.encode())


def sync_to_disk(*paths: Path) -> None:
    """Wait until files, and directories with their names, would survive a power cut."""
    for path in paths:
        number = os.open(path, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


def sweep_aside(directory: Path) -> None:
    """Delete what writers that were killed have left beside the files that they meant to replace.

    To be called only where no other process writes into the directory.
    """
    for path in directory.glob(f"*{ASIDE}"):
        if LEFT.fullmatch(path.name):
            path.unlink(missing_ok=True)
