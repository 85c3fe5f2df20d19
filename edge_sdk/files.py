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
from collections.abc import Iterable
from pathlib import Path

from edge_sdk.frames import Buffer

INLINE = 256 * 1024  # bytes; a smaller body is faster as a value in the database
STRIDE = 1 << 20  # bytes read at once
PART = ".part"


def digest(body: Buffer) -> bytes:
    """By which a receiver knows that all chunks together are the body."""
    return hashlib.sha256(body).digest()[:16]


def checksum(chunk: Buffer) -> int:
    """Never 0, which means in a part's table that the chunk is not there."""
    return zlib.crc32(chunk) or 1


class Files:
    """A directory of bodies, made when it is needed."""

    def __init__(self, directory: Path, sync: bool):
        self.directory, self.sync = directory, sync

    def write(self, name: str, body: Buffer) -> None:
        self.directory.mkdir(exist_ok=True)
        unfinished = self.directory / f"{name}.new"
        with unfinished.open("wb") as file:
            file.write(body)
            self.settle(file.fileno())
        self.rename(unfinished, name)

    def settle(self, number: int) -> None:
        if self.sync:
            os.fsync(number)

    def rename(self, path: Path, name: str) -> None:
        os.replace(path, self.directory / name)
        if self.sync:
            directory = os.open(self.directory, os.O_RDONLY)
            os.fsync(directory)
            os.close(directory)

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
        self.have = self.verified()

    def verified(self) -> int:
        """The chunks that an earlier process has received, each checked."""
        table, have = os.pread(self.number, 4 * self.count, self.size), 0
        for i in range(len(table) // 4):
            (crc,) = struct.unpack_from("<I", table, 4 * i)
            if crc and checksum(os.pread(self.number, self.length(i), i * self.chunk)) == crc:
                have |= 1 << i
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
        return "new"

    @property
    def complete(self) -> bool:
        return self.have == (1 << self.count) - 1

    def finish(self, expected: bytes) -> bool:
        """Give the file its name, or delete it if all chunks together are not the body."""
        found = hashlib.sha256()
        for start in range(0, self.size, STRIDE):
            found.update(os.pread(self.number, min(STRIDE, self.size - start), start))
        right = found.digest()[:16] == expected
        if right:
            os.ftruncate(self.number, self.size)
            self.files.settle(self.number)
            self.files.rename(self.path, self.name)
        self.close()
        if not right:
            self.path.unlink()
        return right

    def close(self) -> None:
        os.close(self.number)
