"""Bundle files made for tests, with right hashes around anything."""

import hashlib
import json

from edge_sdk.model import bundle as b


def assembled(manifest, parts) -> bytes:
    """A file with right hashes, whatever is in it."""
    listed = [{"name": k, "size": len(v), "sha256": hashlib.sha256(v).hexdigest()} for k, v in parts.items()]
    text = json.dumps({"parts": listed, **{k: v for k, v in manifest.items() if k != "parts"}}).encode()
    head = b.HEADER.pack(b.MAGIC, b.VERSION, len(text), hashlib.sha256(text).digest())
    return head + text + b"".join(parts.values())


def repacked(kept, manifest=None, **parts) -> bytes:
    """The bundle with some parts changed (dots in names as __)."""
    changed = {k.replace("__", "."): v for k, v in parts.items()}
    return assembled({**kept.manifest, **(manifest or {})}, {**{k: bytes(v) for k, v in kept.parts.items()}, **changed})
