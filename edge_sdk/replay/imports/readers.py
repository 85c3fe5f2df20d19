"""Readers of other packages: files of their formats for `auscult traces import`, by the entry point `auscult.readers`.

A reader is a module, or an object, with two functions:

    takes(path) -> bool                               is this file or folder of its format? By its name, if that will do
    read(path, name, said) -> recordings              of each device in it; `recorded_arrays` makes one of arrays
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol

from edge_sdk.data.traces.form import Stated
from edge_sdk.errors import UsageError
from edge_sdk.plugins import PlugIns
from edge_sdk.replay.imports.recording import Recorded


class RecordingReader(Protocol):
    """What reads the files of one format."""

    def takes(self, path: Path) -> bool:
        """Is this file or folder of its format?"""

    def read(self, path: Path, name: str, said: Stated) -> Iterable[Recorded]:
        """What devices recorded.

        Args:
            name: of the device by the file's place, where the file names none.
            said: on the command line, as far as it concerns the format.
        """


OURS = ("text", "columns", "signals", "fit", "actigraphs", "apple-health", "empatica", "ready-windows")
"""Kinds of files that this package reads, which no other can be called."""


def check_offered(name: str, found: Any) -> RecordingReader:
    """A reader of another package. Raises UsageError if what is there reads nothing."""
    if missing := [part for part in ("takes", "read") if not callable(getattr(found, part, None))]:
        raise UsageError(f"a {type(found).__name__} without {' and '.join(missing)}; expected takes(path) and "
                         "read(path, name, said)")  # fmt: skip
    reader: RecordingReader = found
    return reader


PLUGINS = PlugIns("reader", OURS, check_offered)


def reader_of(path: Path, chosen: str = "") -> str:
    """The name of the reader that takes a file or folder; "": none does.

    Args:
        chosen: the only one that is asked; "": all of them.

    Raises:
        UsageError: several take it, or one cannot be used.
    """
    found = [name for name in ([chosen] if chosen else PLUGINS) if takes(name, path)]
    if len(found) > 1:
        raise UsageError(f"{path}: readers {' and '.join(found)} take it; choose one with --reader")
    return found[0] if found else ""


def takes(name: str, path: Path) -> bool:
    reader = PLUGINS.load(name)
    with PLUGINS.blamed(name):
        return bool(reader.takes(path))


def read_plugged(reader: str, path: Path, name: str, said: Stated) -> Iterator[Recorded]:
    """What a reader finds in a file or folder.

    Raises:
        UsageError: it fails, with its reason, or yields something else.
    """
    plugged = PLUGINS.load(reader)
    try:
        for found in plugged.read(path, name, said):
            if not isinstance(found, Recorded):
                raise UsageError(f"it yields a {type(found).__name__}, expected a Recorded (recorded_arrays)")
            found.repairs.note(f"read by {reader}, {PLUGINS.place_of(reader)}")
            yield found
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:  # SystemExit, too
        raise UsageError(f"{path}: {PLUGINS.blame(reader, error)}") from error
