"""The roster of a hospital: names of its devices that the service above has enrolled, beside those in its settings.

It comes on a topic of its own from the parent, replaces the one before, and is saved before it counts. A lower number
than that of the present one is an old roster that somebody has recorded, and changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from edge_sdk.atomic import write_text
from edge_sdk.contract.run import ID
from edge_sdk.errors import PeerError, UsageError

VERSION = 1
MOST = 20_000  # devices
LARGEST = 2**31 - 1  # number, as every database keeps it
FILE = "roster.json"


class Roster:
    """The roster of one hospital, kept in a file.

    Args:
        hospital: its name.
        directory: of the node.
        changed: called after another roster was saved, on the loop's thread.

    Attributes:
        number: of the present one; 0: there was none yet.
        devices: names in it.

    Raises:
        UsageError: the file cannot be read.
    """

    def __init__(self, hospital: str, directory: Path, changed: Callable[[], None] = lambda: None):
        self.hospital, self.path, self.changed = hospital, directory / FILE, changed
        self.number, self.devices = load(self.path, hospital)

    def take(self, payload: bytes) -> None:
        """Take a roster that has come.

        Raises:
            PeerError: it is none, or not this hospital's.
        """
        number, devices = read_roster(payload, self.hospital)
        if number <= self.number:
            return
        content = {"version": VERSION, "hospital": self.hospital, "number": number, "devices": list(devices)}
        write_text(self.path, json.dumps(content) + "\n", lasting=True)
        before, self.number, self.devices = self.devices, number, devices
        if devices != before:
            self.changed()


def load(path: Path, hospital: str) -> tuple[int, tuple[str, ...]]:
    """Number and devices of a saved roster; (0, ()) where there is none."""
    try:
        return read_roster(path.read_bytes(), hospital)
    except FileNotFoundError:
        return 0, ()
    except (OSError, PeerError) as error:
        raise UsageError(f"{path}: cannot be read: {error}; move it away, and the service sends it again") from None


def read_roster(payload: bytes, hospital: str) -> tuple[int, tuple[str, ...]]:
    """Read and check a roster. Raises PeerError if it is none, or another hospital's."""
    try:
        found: Any = json.loads(payload)
        number, devices = found["number"], found["devices"]
        if found["version"] != VERSION or found["hospital"] != hospital:
            raise PeerError(f"a roster of version {VERSION} for {hospital} was expected")
        if type(number) is not int or not 0 < number <= LARGEST:
            raise PeerError(f"roster: number {number!r:.40}")
        if type(devices) is not list or len(devices) > MOST or len({*map(str, devices)}) < len(devices):
            raise PeerError(f"roster: expected a list of at most {MOST} names, each once")
        if wrong := [d for d in devices if not isinstance(d, str) or not ID.fullmatch(d)]:
            raise PeerError(f"roster: {wrong[0]!r:.80} is no name")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise PeerError(f"roster: cannot be read ({type(error).__name__}: {error})") from None
    return number, tuple(devices)
