"""A file that only its passphrase opens: pieces of AES-256-GCM, the key made of the passphrase by scrypt.

    magic | salt, 16 bytes | pieces

Each piece has PIECE bytes, the last one fewer or none, and 16 bytes of tag. Its nonce is its number and whether it is
the last one, so that no piece can be left out, repeated, moved or cut off without being noticed; each file has a salt,
and so a key, of its own.
"""

from __future__ import annotations

import hashlib
import secrets
from pathlib import Path
from typing import IO, Any

from edge_sdk.errors import UsageError

MAGIC = b"auscult sealed 1\n"
PIECE, TAG, SALT = 2**20, 16, 16  # bytes
SCRYPT = {"n": 2**16, "r": 8, "p": 1, "maxmem": 2**27}
"""Cost of a guess: 64 MB and a good tenth of a second, on a small computer about one."""
SHORTEST = 12  # characters of a passphrase


def read_passphrase(file: Path | None) -> str:
    """The passphrase in the first line of a file; "" where there is no file: nothing is encrypted.

    Raises:
        UsageError: it cannot be read, or is short.
    """
    if file is None:
        return ""
    try:
        found = file.read_text().partition("\n")[0]
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--passphrase-file {file}: {error}") from None
    if len(found) < SHORTEST:
        raise UsageError(f"--passphrase-file {file}: {len(found)} characters, expected at least {SHORTEST}")
    return found


def is_sealed(path: Path) -> bool:
    """True if the file begins as a sealed one does."""
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def make_cipher(passphrase: str, salt: bytes) -> Any:
    """AES-256-GCM with the key of a file. Raises UsageError where `cryptography` is not installed."""
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ModuleNotFoundError:
        raise UsageError("an encrypted backup needs the package cryptography: pip install 'auscult[secure]'") from None
    return AESGCM(hashlib.scrypt(passphrase.encode(), salt=salt, dklen=32, **SCRYPT))


def make_nonce(number: int, is_last: bool) -> bytes:
    return number.to_bytes(11, "big") + bytes([is_last])


class Sealer:
    """Writes into a file what is then only readable with the passphrase. To be closed; the file itself is not."""

    def __init__(self, file: IO[bytes], passphrase: str):
        salt = secrets.token_bytes(SALT)
        self.file, self.cipher, self.number, self.waiting = file, make_cipher(passphrase, salt), 0, bytearray()
        file.write(MAGIC + salt)

    def write(self, data: bytes) -> int:
        self.waiting += data
        while len(self.waiting) >= PIECE:
            self.seal(bytes(self.waiting[:PIECE]), False)
            del self.waiting[:PIECE]
        return len(data)

    def seal(self, piece: bytes, is_last: bool) -> None:
        self.file.write(self.cipher.encrypt(make_nonce(self.number, is_last), piece, MAGIC))
        self.number += 1

    def close(self) -> None:
        self.seal(bytes(self.waiting), True)


class Opener:
    """Reads from a sealed file what was written into it.

    Raises:
        UsageError: on reading: the passphrase is another one, or the file was changed or cut off.
    """

    def __init__(self, file: IO[bytes], passphrase: str):
        file.read(len(MAGIC))
        self.file, self.cipher = file, make_cipher(passphrase, file.read(SALT))
        self.number, self.waiting, self.ended = 0, bytearray(), False

    def read(self, size: int) -> bytes:
        while len(self.waiting) < size and not self.ended:
            self.waiting += self.open_piece(self.file.read(PIECE + TAG))
        found = bytes(self.waiting[:size])
        del self.waiting[:size]
        return found

    def open_piece(self, sealed: bytes) -> bytes:
        from cryptography.exceptions import InvalidTag

        self.ended = len(sealed) < PIECE + TAG
        try:
            piece: bytes = self.cipher.decrypt(make_nonce(self.number, self.ended), sealed, MAGIC)
        except (InvalidTag, ValueError):
            raise UsageError("the passphrase is another one, or the file was changed or cut off") from None
        self.number += 1
        return piece
