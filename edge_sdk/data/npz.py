"""Reads NPZ files from elsewhere: never pickled objects, never far more memory than the file has bytes."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from edge_sdk.errors import UsageError

RATIO, SMALL = 20, 64 * 2**20
"""Arrays may take up RATIO times the file's bytes, or SMALL bytes if that is more. Measurements compress far less."""


def read_npz(path: Path) -> dict[str, npt.NDArray[Any]]:
    """All arrays of a file.

    Raises:
        UsageError: it is no NPZ file, it is damaged, or it would unpack to far more than it is.
    """
    try:
        with path.open("rb") as opened:
            check_size(opened.name, path.stat().st_size, zipfile.ZipFile(opened).infolist())
            opened.seek(0)
            with np.load(opened, allow_pickle=False) as arrays:
                return {name: arrays[name] for name in arrays.files}
    except (OSError, ValueError, KeyError, EOFError, MemoryError, zipfile.BadZipFile, zlib.error) as error:
        raise UsageError(f"{path}: no NPZ file that can be read: {error}") from error


def check_size(name: str, size: int, members: list[zipfile.ZipInfo]) -> None:
    unpacked, most = sum(member.file_size for member in members), max(SMALL, RATIO * size)
    if unpacked > most:
        raise UsageError(f"{name}: {size} bytes that unpack to {unpacked}, at most {most} are believed")
