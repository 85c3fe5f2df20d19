"""Writes a bundle file. models/README.md describes the format; edge_sdk/model/bundle.py reads it.

8 bytes   b"AUSCULT\\0"
u32       format version          u32   length of the manifest          32 bytes   sha256 of the manifest
manifest  JSON, sorted keys; `parts` names every part in order, with size and sha256
parts     one after the other, nothing between, nothing after
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edge_sdk.atomic import SHARED, write_bytes

MAGIC = b"AUSCULT\0"
VERSION = 1
HEADER = struct.Struct("<8sII32s")


def join_bundle(manifest: Mapping[str, Any], parts: Mapping[str, bytes]) -> bytes:
    """The whole file. `parts` keep their order."""
    listed = [{"name": k, "size": len(v), "sha256": hashlib.sha256(v).hexdigest()} for k, v in parts.items()]
    text = write_json({**manifest, "parts": listed})
    head = HEADER.pack(MAGIC, VERSION, len(text), hashlib.sha256(text).digest())
    return b"".join([head, text, *parts.values()])


def write_json(value: Any) -> bytes:
    """Canonical JSON: equal values give equal bytes."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def write_file(path: Path, data: bytes) -> None:
    """Write a file in one step: a reader sees either the old one or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, data, SHARED)
