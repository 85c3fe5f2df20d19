"""Windows at rest: as they are or, with a key, encrypted with ChaCha20-Poly1305 (RFC 8439), each under its own nonce.

What is encrypted is the signal. Times, labels and sizes are not: whoever has the disk sees when something was recorded
and what it was called.
"""

from __future__ import annotations

import os
import stat
import struct
import zlib
from pathlib import Path
from secrets import token_hex
from typing import Protocol

from edge_sdk.atomic import ASIDE
from edge_sdk.errors import UsageError

KEY_BYTES, NONCE_BYTES = 32, 12
CRC = struct.Struct("<I")


class DamagedWindow(Exception):
    """A saved window is not what was written, or not under this key."""


class Cipher(Protocol):
    """Writes windows as bytes and reads them back. `about`: bytes that must be the same when they are read."""

    name: str

    def seal(self, data: bytes, about: bytes) -> bytes: ...
    def open(self, sealed: bytes, about: bytes) -> bytes:
        """Raises DamagedWindow if they are not what was written."""


class PlainWindows:
    """Bytes as they are, with a checksum against damage."""

    name = "plain"

    def seal(self, data: bytes, about: bytes) -> bytes:
        return data + CRC.pack(zlib.crc32(about + data))

    def open(self, sealed: bytes, about: bytes) -> bytes:
        data = sealed[: -CRC.size]
        if len(sealed) < CRC.size or CRC.unpack(sealed[-CRC.size :])[0] != zlib.crc32(about + data):
            raise DamagedWindow("its checksum is wrong")
        return data


class SealedWindows:
    """Encrypted bytes.

    Args:
        key: 32 random bytes.

    Raises:
        UsageError: the key has another length, or the library is not installed.
    """

    name = "chacha20-poly1305"

    def __init__(self, key: bytes) -> None:
        if len(key) != KEY_BYTES:
            raise UsageError(f"key: {len(key)} bytes, expected {KEY_BYTES} random ones")
        try:
            from cryptography.exceptions import InvalidTag
            from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
        except ModuleNotFoundError as error:
            raise UsageError("encryption at rest needs a library: pip install cryptography") from error
        self.invalid, self.box = InvalidTag, ChaCha20Poly1305(key)

    def seal(self, data: bytes, about: bytes) -> bytes:
        nonce = os.urandom(NONCE_BYTES)
        return nonce + bytes(self.box.encrypt(nonce, data, about))

    def open(self, sealed: bytes, about: bytes) -> bytes:
        try:
            return bytes(self.box.decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], about))
        except (self.invalid, ValueError) as error:
            raise DamagedWindow("it was changed, or sealed with another key") from error


def read_key(key: bytes | str | Path | None) -> Cipher:
    """The cipher of a key: 32 bytes, or a file with them, which is made where there is none; None: no encryption.

    Raises:
        UsageError: the file has another length, or others than its owner may read it.
    """
    if key is None:
        return PlainWindows()
    if isinstance(key, bytes):
        return SealedWindows(key)
    path = Path(key)
    if not path.exists():
        make_key(path)
    if mode := stat.S_IMODE(path.stat().st_mode) & 0o077:
        raise UsageError(f"{path}: others may use it (mode ...{mode:02o}); a key is its owner's alone: chmod 600")
    return SealedWindows(path.read_bytes())


def make_key(path: Path) -> None:
    """Make a file of a key in one piece: none is half written, and of two processes that make one the first one counts.

    Raises:
        OSError: it cannot be made here.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f"{path.name}.{token_hex(4)}{ASIDE}")  # swept like what `replace_file` leaves
    try:
        with open(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(os.urandom(KEY_BYTES))
            os.fsync(file.fileno())
        try:
            os.link(aside, path)
        except FileExistsError:  # another process has made one meanwhile
            return
        except OSError:  # FAT and exFAT know no hard links: there a second process that makes one at this moment wins
            os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)
