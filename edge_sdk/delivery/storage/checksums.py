"""Checksums of what is saved and of what travels in chunks, and what is raised when one is wrong."""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Sequence

import msgpack  # type: ignore[import-untyped]

from edge_sdk.errors import AuscultError
from edge_sdk.wire.frames import Buffer


class StoreDamaged(AuscultError):
    """What a store holds is not what was written. Its node's disk counts as lost."""


def checksum(data: Buffer) -> int:
    """CRC-32, but never 0, which means in a table of checksums that the chunk is not there."""
    return zlib.crc32(data) or 1


def checksums(body: Buffer, chunk: int) -> tuple[int, ...]:
    """Checksum of each chunk of a body."""
    view = memoryview(body)
    return tuple(checksum(view[start : start + chunk]) for start in range(0, len(view), chunk))


def make_digest(checksums: Sequence[int]) -> bytes:
    """Digest of a body, made of its chunks' checksums: each of these has been checked when the chunk came.

    Returns:
        16 bytes of SHA-256.
    """
    return hashlib.sha256(struct.pack(f"<{len(checksums)}I", *checksums)).digest()[:16]


def check_saved(what: str, body: Buffer, crc: int | None) -> None:
    """Compare what was read with the checksum that was saved beside it; None: an older version saved none.

    Raises:
        StoreDamaged: it is not what was written.
    """
    if crc is not None and checksum(body) != crc:
        raise StoreDamaged(f"{what}: {len(body)} bytes whose checksum is not the one that was saved with them")


def row_checksum(*values: object) -> int:
    """Checksum of the values of a row of a table, as SQLite gives them back: text, bytes, int, float or None."""
    return checksum(msgpack.packb(values))


def check_row(what: str, crc: int, *values: object) -> None:
    """Compare a row that was read with the checksum in its last column.

    Raises:
        StoreDamaged: it is not what was written.
    """
    if row_checksum(*values) != crc:
        raise StoreDamaged(f"{what}: a row whose checksum is not the one that was saved with it")
