"""Writes files that change in one piece: a reader finds the old one or the new one, whatever dies meanwhile.

What a node keeps says something about people, so files and directories are their owner's alone, where nothing else is
said.

The new content is written beside the file and then takes its name, which POSIX does in one step. Each writer has a name
of its own for what it writes aside, so that two processes which should not share a directory do not trip each other up.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import BinaryIO

ASIDE = ".new"
"""How the name of a file ends that has not taken its place yet: a process that was killed may leave one."""
LEFT = re.compile(rf".+\.[0-9a-f]{{8}}{re.escape(ASIDE)}")


LOCK = "lock"
"""Name of the file in a node's directory that its process locks."""
PRIVATE, SHARED = 0o600, 0o666
"""Modes of files, from which the process's umask may take away."""


@contextmanager
def replace_file(path: Path, mode: int = PRIVATE, lasting: bool = False) -> Iterator[BinaryIO]:
    """Open a new file that replaces `path` when the `with` ends; after an exception the old one stays as it was.

    Args:
        lasting: it survives a power cut from then on, and one meanwhile leaves the old file or the new one.

    Raises:
        OSError: the file cannot be written.
    """
    aside = path.with_name(f"{path.name}.{token_hex(4)}{ASIDE}")  # as LEFT reads it
    try:
        with open(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            yield file
            if lasting:
                file.flush()
                os.fsync(file.fileno())
        os.replace(aside, path)
        if lasting:
            sync_to_disk(path.parent)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


def write_bytes(path: Path, data: bytes | memoryview, mode: int = PRIVATE, lasting: bool = False) -> None:
    """Replace the content of a file, or make it; `lasting`: as of `replace_file`."""
    with replace_file(path, mode, lasting) as file:
        file.write(data)


def write_text(path: Path, text: str, lasting: bool = False) -> None:
    """Replace the content of a text file, or make it; in UTF-8. `lasting`: as of `replace_file`."""
    write_bytes(path, text.encode(), lasting=lasting)


def make_private_directory(directory: Path, mark: str = LOCK) -> None:
    """Make a directory that is its owner's alone. One that is there already is closed to others if it is empty or has
    a file called `mark` in it: else it is somebody's for another purpose, and stays as it is.

    Raises:
        OSError: it cannot be made.
    """
    directory.parent.mkdir(parents=True, exist_ok=True)
    directory.mkdir(mode=0o700, exist_ok=True)
    found = directory.stat()
    ours = found.st_uid == os.geteuid() and not found.st_mode & stat.S_ISVTX
    if ours and found.st_mode & 0o077 and ((directory / mark).exists() or not any(directory.iterdir())):
        close_to_others(directory, 0o700)


def close_to_others(path: Path, mode: int = PRIVATE) -> None:
    """Set the mode of a file or directory. A file system that has no modes (FAT) refuses; `auscult doctor` says so."""
    with suppress(PermissionError):
        path.chmod(mode)


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
