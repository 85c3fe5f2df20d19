"""The hash of the data that a replay reads, so that nobody goes on with others under the same name."""

from __future__ import annotations

import hashlib
from pathlib import Path

from edge_sdk.data.traces.folder import ENDINGS

CHUNK = 1 << 20


def hash_data(data: str) -> str:
    """SHA-256 of the files behind DIR or NAME:PATH, in hexadecimal; "" for a data set that the package brings along.

    Of a folder it is that of its traces, files of availability and NPZ files: names and bytes, in the order of the
    names.
    """
    folder, path = Path(data), Path(data.partition(":")[2])
    found = hashlib.sha256()
    if folder.is_dir():
        for file in sorted(file for file in folder.iterdir() if file.name.endswith((*ENDINGS, ".npz"))):
            found.update(f"{file.name}\0{file.stat().st_size}\0".encode())
            add_file(found, file)
    elif path.is_file():
        add_file(found, path)
    else:
        return ""
    return found.hexdigest()


def add_file(found: hashlib._Hash, path: Path) -> None:
    """Go on with the bytes of a file."""
    with path.open("rb") as file:
        while part := file.read(CHUNK):
            found.update(part)
