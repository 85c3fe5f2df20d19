"""Reads NPZ files from elsewhere: never pickled objects, never far more memory than the file has bytes."""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from edge_sdk.errors import UsageError

RATIO, SMALL = 20, 64 * 2**20
"""Arrays may take up RATIO times the file's bytes, or SMALL bytes if that is more. Measurements compress far less."""

UNREADABLE: tuple[type[Exception], ...] = (
    *(OSError, ValueError, KeyError, EOFError, MemoryError, OverflowError, SyntaxError, RecursionError),
    *(NotImplementedError, struct.error, zipfile.BadZipFile, zlib.error),
)
"""What zipfile and numpy raise at a file that is not as it says."""


def read_npz(path: Path, wanted: Callable[[str], bool] = lambda name: True) -> dict[str, npt.NDArray[Any]]:
    """All arrays of a file, or those whose name is wanted: others are not unpacked.

    Raises:
        UsageError: it is no NPZ file, it is damaged, or it would unpack to far more than it is.
    """
    try:
        with path.open("rb") as opened:
            members = zipfile.ZipFile(opened).infolist()
            check_size(opened.name, path.stat().st_size, members)
            check_packing(opened.name, members)
            opened.seek(0)
            with np.load(opened, allow_pickle=False) as arrays:
                return {name: arrays[name] for name in arrays.files if wanted(name)}
    except UNREADABLE as error:
        raise UsageError(f"{path}: no NPZ file that can be read: {error}") from error


def check_size(name: str, size: int, members: list[zipfile.ZipInfo]) -> None:
    unpacked, most = sum(member.file_size for member in members), max(SMALL, RATIO * size)
    if unpacked > most:
        raise UsageError(f"{name}: {size} bytes that unpack to {unpacked}, at most {most} are believed")


def check_packing(name: str, members: list[zipfile.ZipInfo]) -> None:
    """Refuses what numpy never writes: encryption, and compression other than deflate."""
    for member in members:
        if member.flag_bits & 1 or member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise UsageError(f"{name}: {member.filename!r} is encrypted or packed in a way that NPZ files are not")
