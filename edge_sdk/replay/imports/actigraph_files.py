"""Files of actigraphs before a reader gets them: is it one, and has what it says of itself room in a memory?

The reader reserves memory by numbers in the file, and unpacks archives whatever they grow to.
"""

from __future__ import annotations

import gzip
import lzma
import re
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import BadZipFile, ZipFile

from edge_sdk.errors import UsageError

KINDS = {
    ".gt3x": "a GT3X file of an ActiGraph",
    ".bin": "a .bin file of a GENEActiv",
    ".cwa": "a CWA file of an Axivity",
}
FIRST = {".gt3x": b"PK\x03\x04", ".bin": b"Device Identity", ".cwa": b"MD"}
"""First bytes of each."""
MEMBERS = {"info.txt": 2**20, "log.bin": 2**31}
"""Files in an ActiGraph's archive, and bytes that each may have; 2 GiB are 55 days at 100 Hz."""
SAMPLES = 2 * 10**8
"""That a GENEActiv may say it has; its memory has room for 66 million."""
PACKED = ".cwa.gz"
MOST_UNPACKED = 2**32
"""Bytes of an Axivity's file that was packed: its memory has a quarter of them."""
HEAD_LINES, PAGE_LINES, LONGEST_LINE = 59, 10, 1 << 16
CHUNK = 1 << 20
UNREADABLE = (EOFError, RuntimeError, ValueError, struct.error, BadZipFile, zlib.error, lzma.LZMAError)
"""What an archive raises that is damaged, encrypted, packed in an unknown way, or has a name that is none."""


def is_actigraph_bin(path: Path) -> bool:
    """Does a file begin as those of a GENEActiv do? Many others are called .bin, too."""
    try:
        with open(path, "rb") as file:
            return file.read(len(FIRST[".bin"])) == FIRST[".bin"]
    except OSError:  # which is told when it is read
        return False


@contextmanager
def unpacked(path: Path, damaged: bool) -> Iterator[Path]:
    """A file, for as long as this lasts unpacked where it is packed by gzip.

    Args:
        damaged: what is whole of it is wanted.

    Raises:
        UsageError: it cannot be unpacked, or grows too large; or what reading it raises, with its own name.
    """
    if not path.name.lower().endswith(PACKED):
        yield path
        return
    with TemporaryDirectory() as folder:
        plain = Path(folder) / path.stem
        try:
            unpack(path, plain, damaged)
            yield plain
        except UsageError as error:
            raise UsageError(str(error).replace(str(plain), str(path))) from error


def unpack(path: Path, plain: Path, damaged: bool) -> None:
    """Writes what is in a file that is packed by gzip. `damaged`: as far as it can be unpacked."""
    size = 0
    try:
        with gzip.open(path) as source, plain.open("wb") as file:
            while part := source.read1(CHUNK):  # what is there, also of a file that is cut off
                if (size := size + len(part)) > MOST_UNPACKED:
                    raise UsageError(f"{path}: more than {MOST_UNPACKED:,} bytes unpacked, expected {KINDS['.cwa']}")
                file.write(part)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        if not damaged or not size:
            more = "" if damaged else "; --damaged takes what is whole"
            raise UsageError(f"{path}: damaged, it cannot be unpacked: {error}{more}") from error
    except OSError as error:
        raise UsageError(f"{path}: cannot be unpacked ({error.strerror or error})") from error


def check_file(path: Path, damaged: bool = False) -> None:
    """Looks at a file before it is read.

    Args:
        damaged: what is whole of it is wanted.

    Raises:
        UsageError: it is something else than its name says, damaged, or larger than it can be.
    """
    kind = path.suffix.lower()
    try:
        with open(path, "rb") as file:
            first = file.read(len(FIRST[kind]))
        if first != FIRST[kind]:
            raise UsageError(f"{path}: not {KINDS[kind]}: it begins with {first!r}, expected {FIRST[kind]!r}")
        if kind == ".gt3x":
            check_archive(path, damaged)
        elif kind == ".bin":
            check_pages(path)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror or error})") from error


def check_archive(path: Path, damaged: bool) -> None:
    """Unpacks an archive, keeping nothing: what it says of its members' sizes may be wrong."""
    try:
        with ZipFile(path) as archive:
            missing = [name for name in MEMBERS if name not in archive.namelist()]
            if missing:
                names = ", ".join(archive.namelist()[:8])
                more = (
                    "; firmware before 3.0 wrote another format, which is not read" if "activity.bin" in names else ""
                )
                raise UsageError(f"{path}: no {missing[0]} in it, but {names or 'nothing'}{more}")
            for name, most in MEMBERS.items():
                check_member(path, archive, name, most, damaged)
    except UNREADABLE as error:
        raise UsageError(f"{path}: a damaged archive, expected {KINDS['.gt3x']}: {error}") from error


def check_member(path: Path, archive: ZipFile, name: str, most: int, damaged: bool) -> None:
    member, size = archive.getinfo(name), 0
    member.file_size = most + 2 * CHUNK  # reads what is there, rather than as much as the archive says
    try:
        with archive.open(member) as file:
            while size <= most and (part := file.read(CHUNK)):
                size += len(part)
    except UNREADABLE as error:
        if not damaged:
            raise UsageError(f"{path}: {name} in it is damaged: {error}; --damaged takes what is whole") from error
    if size > most:
        raise UsageError(f"{path}: {name} in it has more than {most} bytes; expected the log of one recording")


def check_pages(path: Path) -> None:
    """Compares the samples that a GENEActiv's file says it has with what such a device can hold."""
    with open(path, "rb") as file:
        lines = list(islice(iter(lambda: file.readline(LONGEST_LINE), b""), HEAD_LINES + PAGE_LINES))
    if max(map(len, lines), default=0) == LONGEST_LINE:
        raise UsageError(f"{path}: a line of more than {LONGEST_LINE} bytes; a page has 300 samples")
    found = re.search(rb"^Number of Pages:\s*(\d+)", b"".join(lines[:HEAD_LINES]), re.MULTILINE)
    in_page = len(lines[-1]) // 12 if len(lines) == HEAD_LINES + PAGE_LINES else 0
    if found and (len(found[1]) > 9 or int(found[1]) * in_page > SAMPLES):
        pages = found[1].decode()[:20]
        raise UsageError(
            f"{path}: its head speaks of {pages} pages of {in_page} samples; expected {SAMPLES} samples at most"
        )
