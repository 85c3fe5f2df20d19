"""SQLite's log, and signs that it has lost commits, which SQLite itself does not say.

SQLite reads its log (the file ending in -wal) up to the first page whose checksum is wrong, and takes that for the end:
after a power cut it is. So a single wrong bit makes it forget all later commits without a word. A node would then act
on what it was some rounds ago, while its peers have its acknowledgements of what came since. What lies behind the
supposed end tells the two apart: pages of this log that are not joined to it mean that the log was longer.

A process that is killed in the middle of a commit leaves half a page there, and what lay below is the other half. So a
node notes while it writes that it does: then only the last page of a later commit means that the log was longer.

The format of the log is described at https://www.sqlite.org/fileformat2.html#the_write_ahead_log.
"""

from __future__ import annotations

import os
import struct
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from edge_sdk.atomic import PRIVATE
from edge_sdk.delivery.storage.checksums import StoreDamaged

HEADER, FRAME = 32, 24  # bytes: of the log, and in front of each of its pages
MAGIC = (0x377F0682, 0x377F0683)  # words of checksums are little-endian, big-endian
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

Words = npt.NDArray[np.uint32]


def read_boot_id() -> bytes:
    """Drawn by Linux at each start of the machine; empty where it cannot be read."""
    try:
        return BOOT_ID.read_bytes().strip()
    except OSError:
        return b""


def check_header(path: Path) -> None:
    """Look at the first bytes of a database, before SQLite does: it would read some damaged ones in another way.

    Raises:
        StoreDamaged: the text is not UTF-8, or only later versions of SQLite may write to it.
    """
    try:
        with path.open("rb") as file:
            found = file.read(100)
    except FileNotFoundError:
        return
    if len(found) == 100 and (max(found[18:20]) > 2 or found[56:60] not in (bytes(4), b"\0\0\0\1")):
        raise StoreDamaged(f"{path}: the header of the database is not as SQLite wrote it")


class WritingMark:
    """A note that a transaction is open, which outlives the process and no power cut: a file of one byte.

    Where the disk does not take it, the process that comes next is more careful than it need be.

    Args:
        path: of the database.

    Attributes:
        found: the process before was killed within a transaction.
        torn: a commit has failed, and the log was not emptied since.
    """

    torn = False

    def __init__(self, path: Path):
        self.path = path.with_name(f"{path.name}-writing")
        try:
            self.file = os.open(self.path, os.O_RDWR | os.O_CREAT, PRIVATE)
            self.found = os.pread(self.file, 1, 0) == b"1"
        except OSError:
            self.file, self.found = -1, False

    def note(self, writing: bool) -> None:
        """Note that a transaction begins, or has ended."""
        with suppress(OSError):
            os.pwrite(self.file, b"1" if writing else b"0", 0)

    def close(self) -> None:
        if self.file >= 0:
            os.close(self.file)
        self.file = -1

    def remove(self) -> None:
        """Close it behind a database that is closed as it should be: no mark means that nothing is under way."""
        self.close()
        self.path.unlink(missing_ok=True)


def has_lost_commits(path: Path, writing: bool = False) -> bool:
    """Look through a log that no process has open. A file that is not there, or is empty, has lost nothing.

    Args:
        writing: a transaction was under way, so half of one may be at the end.
    """
    size = path.stat().st_size if path.exists() else 0
    if size < HEADER:
        return False
    with path.open("rb") as file:
        header = file.read(HEADER)
        magic, _, page, _, salt1, salt2, *sums = struct.unpack(">8I", header)
        if magic not in MAGIC or tuple(sums) != add_up(header[:24], (0, 0), magic):
            return True
        if not 512 <= page <= 65536:
            return True
        state, joined = (sums[0], sums[1]), True
        for start in range(HEADER, size - FRAME - page + 1, FRAME + page):
            head = os.pread(file.fileno(), FRAME, start)
            _, ends_commit, first, second, *sums = struct.unpack(">6I", head)
            before = joined
            if joined and (first, second) == (salt1, salt2):
                body = os.pread(file.fileno(), page, start + FRAME)
                state = add_up(body, add_up(head[:8], state, magic), magic)
                joined = tuple(sums) == state
            else:
                joined = False
            is_cut = before and not joined
            if not joined and (first == salt1 or second == salt2) and not (writing and (is_cut or not ends_commit)):
                return True
    return False


def add_up(data: bytes, state: tuple[int, int], magic: int) -> tuple[int, int]:
    """Go on with the log's checksum: two sums that grow by s0 += x[i] + s1; s1 += x[i + 1] + s0, modulo 2^32.

    Written as one sequence s0, s1, s0', s1', ... each number is the sum of the two before it and of one word. So each
    word counts in the end with a Fibonacci number, which depends on its place only.

    Args:
        data: a multiple of 8 bytes.
        state: the two sums before.
    """
    words = np.frombuffer(data, "<u4" if magic == MAGIC[0] else ">u4").astype(np.uint32)
    n, f = len(words), fibonacci(len(words) + 2)
    ours = int(f[:n][::-1] @ words), int(f[1 : n + 1][::-1] @ words)
    before = [int(f[i]) * state[0] + int(f[i + 1]) * state[1] for i in (n - 1, n)]
    return (ours[0] + before[0]) % 2**32, (ours[1] + before[1]) % 2**32


@lru_cache(8)
def fibonacci(count: int) -> Words:
    """The first Fibonacci numbers modulo 2^32."""
    found = [0, 1]
    for _ in range(count - 2):
        found.append((found[-1] + found[-2]) % 2**32)
    return np.array(found, np.uint32)
