"""The hash of the data that a replay reads, so that nobody goes on with others under the same name."""

from __future__ import annotations

import hashlib
from pathlib import Path

from edge_sdk.data.traces import find_traces

CHUNK = 1 << 20


def hash_data(data: str) -> str:
    """SHA-256 of the files behind DIR or NAME:PATH, in hexadecimal; "" for a data set that the package brings along.

    Of a folder it is that of its traces' names and bytes, in the order of their names.
    """
    if Path(data).is_dir():
        files, named = find_traces(data), True
    else:
        path = Path(data.partition(":")[2])
        files, named = [path] if path.is_file() else [], False
    found = hashlib.sha256()
    for file in files:
        found.update(f"{file.name}\0{file.stat().st_size}\0".encode() if named else b"")
        with file.open("rb") as opened:
            while part := opened.read(CHUNK):
                found.update(part)
    return found.hexdigest() if files else ""
