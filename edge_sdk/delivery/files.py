"""Large bodies as files beside the database, and bodies that are arriving in pieces.

A file gets its name when it is complete, and only then a row may name it; one that no row names is swept at the start.
A part carries a checksum for each of its chunks, so that what is in it can be trusted after a crash without an fsync.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import struct
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from edge_sdk.atomic import sync_to_disk, write_bytes
from edge_sdk.wire.frames import Buffer

INLINE = 256 * 1024  # bytes; a smaller body is faster as a value in the database
PART = ".part"


def checksum(chunk: Buffer) -> int:
    """Never 0, which means in a part's table that the chunk is not there."""
    return zlib.crc32(chunk) or 1


def checksums(body: Buffer, chunk: int) -> tuple[int, ...]:
    """Of its pieces."""
    view = memoryview(body)
    return tuple(checksum(view[start : start + chunk]) for start in range(0, len(view), chunk))


def digest(checksums: Sequence[int]) -> bytes:
    """By which a receiver knows that all chunks together are the body: each has been checked when it came."""
    return hashlib.sha256(struct.pack(f"<{len(checksums)}I", *checksums)).digest()[:16]


class Files:
    """A directory of bodies, made when it is needed."""

    def __init__(self, directory: Path, sync: bool):
        self.directory, self.sync = directory, sync

    def write(self, name: str, body: Buffer) -> None:
        self.directory.mkdir(exist_ok=True)
        write_bytes(self.directory / name, body)
        self.settle(name)

    def settle(self, name: str) -> None:
        """A row is about to name the file: where that is asked for, both are to survive a power cut."""
        if self.sync:
            sync_to_disk(self.directory / name, self.directory)

    def read(self, name: str) -> memoryview:
        """The body, mapped: it costs memory only where it is looked at, and outlives its file."""
        with (self.directory / name).open("rb") as file:
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            (self.directory / name).unlink(missing_ok=True)

    def sweep(self, used: set[str], parts: bool) -> None:
        """Delete what no row needs. `parts`: also what is still arriving."""
        if self.directory.exists():
            for path in self.directory.iterdir():
                if path.name not in used and (parts or path.suffix != PART):
                    path.unlink()

    def part(self, name: str, size: int, chunk: int) -> Part:
        self.directory.mkdir(exist_ok=True)
        return Part(self, name, size, chunk)


class Part:
    """A body that is arriving: its bytes, followed by a table with the checksum of each chunk.

    Attributes:
        have: bit i: chunk i is there and was right when it came.
    """

    def __init__(self, files: Files, name: str, size: int, chunk: int):
        self.files, self.name, self.size, self.chunk = files, name, size, chunk
        self.count = -(-size // chunk)
        self.path = files.directory / f"{name}.{size}.{chunk}{PART}"
        self.number = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        self.table = [0] * self.count
        self.have = self.verified()

    def verified(self) -> int:
        """The chunks that an earlier process has received, each checked."""
        table, have = os.pread(self.number, 4 * self.count, self.size), 0
        for i in range(len(table) // 4):
            (crc,) = struct.unpack_from("<I", table, 4 * i)
            if crc and checksum(os.pread(self.number, self.length(i), i * self.chunk)) == crc:
                have |= 1 << i
                self.table[i] = crc
        return have

    def length(self, i: int) -> int:
        return min(self.chunk, self.size - i * self.chunk)

    def put(self, i: int, data: Buffer, crc: int) -> str:
        """What came of it: "new", "duplicate" or "broken"."""
        if not 0 <= i < self.count or len(data) != self.length(i) or checksum(data) != crc:
            return "broken"
        if self.have >> i & 1:
            return "duplicate"
        os.pwrite(self.number, data, i * self.chunk)
        os.pwrite(self.number, struct.pack("<I", crc), self.size + 4 * i)
        self.have |= 1 << i
        self.table[i] = crc
        return "new"

    @property
    def complete(self) -> bool:
        return self.have == (1 << self.count) - 1

    def finish(self, expected: bytes) -> bool:
        """Give the file its name, or delete it if all chunks together are not the body."""
        right = digest(self.table) == expected
        if right:
            os.ftruncate(self.number, self.size)
            os.replace(self.path, self.files.directory / self.name)
        self.close()
        if not right:
            self.path.unlink()
        return right

    def close(self) -> None:
        os.close(self.number)
