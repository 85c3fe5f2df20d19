"""What clients remember between rounds, on disk: memory-mapped files in which each record has a place of its own.

Only clients that have been drawn have a record, so a million clients of which ten thousand were drawn take the space of
ten thousand. A record is never written over: a new one goes to another place, and the old place is free once a
checkpoint without it is on the disk. So a process that is killed finds every record as its last checkpoint had it.
"""

from __future__ import annotations

import mmap
import os
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from edge_sdk.errors import AuscultError

SEGMENT = 256 * 2**20
"""Bytes of one file; they are taken from the disk as they are written."""
UNIT = 512
"""Bytes by which places grow."""


class Place(NamedTuple):
    """Where a record lies: file, offset in it, length of the record; all in bytes but the first."""

    segment: int
    offset: int
    size: int

    @property
    def room(self) -> int:
        """Bytes that are taken up."""
        return -(-self.size // UNIT) * UNIT


class ClientStates:
    """Records of clients by name.

    Args:
        directory: of the files; made where there is none. What lies in them is known by `places` alone.
        places: of the last checkpoint.
        segment: bytes of one file, and so the most that a record may have.
    """

    def __init__(self, directory: Path, places: Mapping[str, Place] | None = None, segment: int = SEGMENT) -> None:
        self.directory, self.size = directory, segment
        directory.mkdir(parents=True, exist_ok=True)
        self.segments: list[mmap.mmap] = []
        self.handles: list[int] = []
        self.places = dict(places or {})
        self.fresh: set[str] = set()  # written since the last checkpoint
        self.retired: list[Place] = []  # of the last checkpoint, not needed any more
        self.free: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)  # room -> where
        self.end = (0, 0)
        self.find_gaps()

    def find_gaps(self) -> None:
        """Frees what no place takes up: between records, and behind the last one."""
        taken = sorted((p.segment, p.offset, p.room) for p in self.places.values())
        if taken:
            last, offset, room = taken[-1]
            self.end = (last, offset + room)
        usual = Counter(room for *_, room in taken).most_common(1)[0][0] if taken else UNIT
        at = (0, 0)
        for segment, offset, room in taken:
            start = at[1] if at[0] == segment else 0
            while offset - start >= usual:  # most records of a run are of one size
                self.free[usual].append((segment, start))
                start += usual
            at = (segment, offset + room)

    def __len__(self) -> int:
        return len(self.places)

    def __contains__(self, name: str) -> bool:
        return name in self.places

    def read(self, name: str) -> bytes:
        """A copy of a record."""
        place = self.places[name]
        return self.open(place.segment)[place.offset : place.offset + place.size]

    def write(self, name: str, record: bytes) -> None:
        """Puts a record into a place of its own.

        Raises:
            AuscultError: it is larger than a file. OSError: the disk is full; there is the record of before.
        """
        if len(record) > self.size:
            raise AuscultError(f"the state of client {name} has {len(record)} bytes, at most {self.size} are kept")
        place = self.take(len(record))
        self.open(place.segment)
        written = 0  # to the file and not to its memory: there, a full disk ends the process by a signal
        while written < place.size:
            written += os.pwrite(self.handles[place.segment], record[written:], place.offset + written)
        self.forget(name)
        self.places[name] = place
        self.fresh.add(name)

    def forget(self, name: str) -> None:
        """Drops a record, if there is one."""
        old = self.places.pop(name, None)
        if old is None:
            return
        if name in self.fresh:
            self.free[old.room].append((old.segment, old.offset))
            self.fresh.discard(name)
        else:
            self.retired.append(old)

    def take(self, size: int) -> Place:
        """A free place for so many bytes."""
        room = -(-size // UNIT) * UNIT
        if self.free[room]:
            return Place(*self.free[room].pop(), size)
        segment, offset = self.end
        if offset + room > self.size:
            segment, offset = segment + 1, 0
        self.end = (segment, offset + room)
        return Place(segment, offset, size)

    def open(self, number: int) -> mmap.mmap:
        """The memory of a file, which is made where there is none."""
        while len(self.segments) <= number:
            path = self.directory / f"clients-{len(self.segments)}.bin"
            handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
            try:
                os.ftruncate(handle, self.size)
                self.segments.append(mmap.mmap(handle, self.size))
            except BaseException:
                os.close(handle)
                raise
            self.handles.append(handle)
        return self.segments[number]

    def flush(self) -> None:
        """Waits until everything is on the disk, and gives the memory back."""
        for segment in self.segments:
            segment.flush()
            segment.madvise(mmap.MADV_DONTNEED)

    def settle(self) -> None:
        """Frees what the checkpoint before the one that is now on the disk had."""
        for place in self.retired:
            self.free[place.room].append((place.segment, place.offset))
        self.retired, self.fresh = [], set()

    def close(self) -> None:
        for segment in self.segments:
            segment.close()
        for handle in self.handles:
            os.close(handle)
        self.segments, self.handles = [], []
