"""Keys of secret sums, and the files that hold them.

All of it is the package `cryptography`'s (extra `secure`). A private key is a PEM file (PKCS #8) for its owner alone;
public keys are lines of a text file, a name and 32 bytes in base64.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from edge_sdk.atomic import write_text
from edge_sdk.errors import UsageError
from edge_sdk.wire.options import take_paths

KEY = 32  # bytes of a key


@cache
def library() -> Any:
    """The parts of `cryptography` that are used here. Raises UsageError where it is not installed."""
    try:
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import x25519
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF, HKDFExpand
    except ModuleNotFoundError as error:
        raise UsageError("secret sums need a library: pip install cryptography") from error
    return Library(hashes, serialization, x25519, Cipher, algorithms, HKDF, HKDFExpand)


@dataclass(frozen=True)
class Library:
    """Parts of `cryptography`, which is imported when it is asked for."""

    hashes: Any
    serialization: Any
    x25519: Any
    Cipher: Any
    algorithms: Any
    HKDF: Any
    HKDFExpand: Any


@dataclass(frozen=True, kw_only=True)
class AggregatorKeys:
    """The [masks] table of an aggregator's file.

    Attributes:
        key: its private key.
        devices: file with the public keys of all devices. It is read again when it has changed.
        enrolled: file with more of them, which a service writes; a name in both has the key that is in `devices`.
    """

    key: Path
    devices: Path
    enrolled: Path | None = None

    def __post_init__(self) -> None:
        take_paths(self, "key", "devices", "enrolled")

    def public_keys(self) -> dict[str, bytes]:
        """Device -> public key, of both files. Raises UsageError as of `read_public`."""
        return (read_public(self.enrolled) if self.enrolled is not None else {}) | read_public(self.devices)

    @property
    def lists(self) -> list[Path]:
        """The files with devices' keys."""
        return [path for path in (self.devices, self.enrolled) if path is not None]


def make_key(path: Path) -> str:
    """Draws a private key, writes it into a file for its owner alone, and returns the public key as base64."""
    lib = library()
    private = lib.x25519.X25519PrivateKey.generate()
    how = lib.serialization
    pem = private.private_bytes(how.Encoding.PEM, how.PrivateFormat.PKCS8, how.NoEncryption())
    write_text(path, pem.decode())
    path.chmod(0o600)
    return base64.b64encode(private.public_key().public_bytes_raw()).decode()


def read_private(path: Path) -> Any:
    """The private key in a PEM file.

    Raises:
        UsageError: it cannot be read, is no X25519 key, or other users can read it.
    """
    lib = library()
    try:
        if path.stat().st_mode & 0o077:
            raise UsageError(f"{path} can be used by other users of this machine: chmod 600 {path}")
        found = lib.serialization.load_pem_private_key(path.read_bytes(), None)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, TypeError) as error:
        raise UsageError(f"{path}: is no private key without a passphrase (PEM): {error}") from None
    if not isinstance(found, lib.x25519.X25519PrivateKey):
        raise UsageError(f"{path}: expected a private key of X25519")
    return found


def read_public(path: Path) -> dict[str, bytes]:
    """Name -> public key, of all lines of a file.

    Raises:
        UsageError: it cannot be read, a line is none, or a name is there with two keys.
    """
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: public keys cannot be read: {error}") from error
    found: dict[str, bytes] = {}
    for i, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, key = read_line(line, f"{path}, line {i}")
        if found.setdefault(name, key) != key:
            raise UsageError(f"{path}, line {i}: a second key of {name}")
    return found


def read_line(line: str, where: str) -> tuple[str, bytes]:
    """A name and its public key. Raises UsageError for a line that is none."""
    name, _, text = line.strip().partition(" ")
    try:
        key = base64.b64decode(text.strip(), validate=True)
    except ValueError:
        key = b""
    if len(key) != KEY:
        raise UsageError(f"{where}: expected a name, a blank and {KEY} bytes in base64")
    if not is_public_key(key):
        raise UsageError(f"{where}: the key of {name} is a point of X25519 that shares nothing with any other key")
    return name, key


def is_public_key(key: bytes) -> bool:
    """True if this public key of KEY bytes shares a secret. A point of small order shares zeros, with everybody."""
    kinds = library().x25519
    try:
        kinds.X25519PrivateKey.from_private_bytes(bytes(KEY)).exchange(kinds.X25519PublicKey.from_public_bytes(key))
    except ValueError:
        return False
    return True
