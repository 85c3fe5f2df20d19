"""Large bodies as files beside the database, and bodies that are arriving in pieces.

A body that is arriving is a `.part` file, with a checksum for each chunk behind the bytes. After a crash each chunk is
read and checked against that, so no fsync is needed while it arrives: what the disk has lost is asked for again. The
file gets the body's name when all of it is there, and only then a row of the database may name it. A file that no row
names is what a crash has left between the two steps; it is swept away at the next start.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from edge_sdk.atomic import sync_to_disk, write_bytes
from edge_sdk.delivery.storage.checksums import StoreDamaged, checksum, make_digest
from edge_sdk.wire.frames import Buffer

INLINE = 256 * 1024  # bytes; a smaller body is faster as a value in the database
PART = ".part"  # how the name of a file ends whose body is still arriving


class Files:
    """A directory of bodies, made when it is needed."""

    def __init__(self, directory: Path):
        self.directory = directory

    def write(self, name: str, body: Buffer) -> None:
        """Write a whole body, in one piece."""
        self.directory.mkdir(mode=0o700, exist_ok=True)
        write_bytes(self.directory / name, body)
        self.sync_body(name)

    def sync_body(self, name: str) -> None:
        """Bring file and directory to the disk: a row is about to name the file, which must survive what the row does.

        Rows that a power cut takes away are missed by nobody: peers say again what they do not see acknowledged. A row
        that names a file of zeros would cost the node all that it has learned.
        """
        sync_to_disk(self.directory / name, self.directory)

    def read(self, name: str) -> memoryview:
        """Map a body into memory: it costs memory only where it is looked at, and outlives its file."""
        with (self.directory / name).open("rb") as file:
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))

    def read_saved(self, name: str) -> memoryview:
        """Map the body that a row names.

        Raises:
            StoreDamaged: there is no such file, or nothing in it.
        """
        try:
            return self.read(name)
        except (FileNotFoundError, ValueError) as e:
            raise StoreDamaged(f"{self.directory / name}: {e}") from None

    def count_bytes(self, names: Iterable[str]) -> int:
        """Size of these files together; those that are gone count nothing."""
        paths = [self.directory / name for name in names]
        return sum(path.stat().st_size for path in paths if path.exists())

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            (self.directory / name).unlink(missing_ok=True)

    def sweep(self, used: set[str], parts: bool) -> None:
        """Delete the files that no row needs. `parts`: also bodies that are still arriving."""
        if self.directory.exists():
            for path in self.directory.iterdir():
                if path.name not in used and (parts or path.suffix != PART):
                    path.unlink()

    def list_partials(self) -> list[tuple[tuple[str, int, int], Path]]:
        """Bodies that are still arriving: (sender, epoch, seq) and the file of each, the oldest first."""
        found = []
        for path in self.directory.glob(f"*{PART}") if self.directory.exists() else ():
            name = path.name.rsplit(".", 5)
            if len(name) == 6 and name[1].isdigit() and name[2].isdigit():
                found.append((path.stat().st_mtime, (name[0], int(name[1]), int(name[2])), path))
        return [(key, path) for _, key, path in sorted(found)]

    def open_partial(self, name: str, size: int, chunk: int) -> PartialBody:
        """Open what there is of a body that is arriving; nothing of it at first."""
        self.directory.mkdir(mode=0o700, exist_ok=True)
        return PartialBody(self, name, size, chunk)


class PartialBody:
    """A body that is arriving: a file of its bytes, followed by a table with the checksum of each chunk.

    There is no file before the first chunk, and it is open only while it is read or written: a peer that offers much
    and sends little costs next to nothing.

    Args:
        size: of the body, in bytes.
        chunk: bytes of each chunk but the last.

    Attributes:
        have: bitmap; bit i: chunk i is there and was right when it came.
    """

    def __init__(self, files: Files, name: str, size: int, chunk: int):
        self.files, self.name, self.size, self.chunk = files, name, size, chunk
        self.count = -(-size // chunk)
        self.path = files.directory / f"{name}.{size}.{chunk}{PART}"
        self.have = self.verify_chunks() if self.path.exists() else 0

    @contextmanager
    def opened(self) -> Iterator[int]:
        """The file's descriptor, in a `with`."""
        number = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            yield number
        finally:
            os.close(number)

    def verify_chunks(self) -> int:
        """Bitmap of the chunks that an earlier process has received, each of them read and checked."""
        have = 0
        with self.opened() as number:
            table = os.pread(number, 4 * self.count, self.size)
            for i in range(len(table) // 4):
                (crc,) = struct.unpack_from("<I", table, 4 * i)
                if crc and checksum(os.pread(number, self.length(i), i * self.chunk)) == crc:
                    have |= 1 << i
        return have

    def length(self, i: int) -> int:
        """Bytes of chunk i: the last one may be shorter."""
        return min(self.chunk, self.size - i * self.chunk)

    def put_chunk(self, i: int, data: Buffer, crc: int) -> str:
        """Write a chunk that has come; returns "new", "duplicate" or "broken".

        The bytes are written before their checksum, so that a crash between the two leaves a chunk that counts as not
        there.
        """
        if not 0 <= i < self.count or len(data) != self.length(i) or checksum(data) != crc:
            return "broken"
        if self.have >> i & 1:
            return "duplicate"
        with self.opened() as number:
            os.pwrite(number, data, i * self.chunk)
            os.pwrite(number, struct.pack("<I", crc), self.size + 4 * i)
        self.have |= 1 << i
        return "new"

    @property
    def complete(self) -> bool:
        return self.have == (1 << self.count) - 1

    def finish_body(self, expected: bytes) -> bool:
        """Give the file the body's name; False, and the file deleted, if all chunks together are not the body."""
        with self.opened() as number:
            table = struct.unpack(f"<{self.count}I", os.pread(number, 4 * self.count, self.size))
            right = make_digest(table) == expected
            if right:
                os.ftruncate(number, self.size)
                os.replace(self.path, self.files.directory / self.name)
        if not right:
            self.discard()
        return right

    def discard(self) -> None:
        """Delete what has come of it."""
        self.path.unlink(missing_ok=True)
