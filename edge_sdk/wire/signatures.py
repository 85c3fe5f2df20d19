"""Ed25519 signatures of an operator under what its aggregator hands out: run descriptions and models.

A signature is over a statement: bytes that begin with what they are a statement of, so that one under a run is none
under a model. The statement of a run has all that says what is trained; how long is waited is each hospital's own
affair, may change while a run goes on, and is not in it. Fields that say nothing are left out, so that a later version
with further fields makes the same statement of a run that does not use them.

Each statement has a number that grows with each one, so that a node which has seen a later one takes no old one.

Keys are PEM files, as `openssl genpkey -algorithm ed25519` makes them. The work is done by the package cryptography
([secure]), which is loaded when a key is used.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from typing import Any

import msgpack  # type: ignore[import-untyped]

from edge_sdk.contract.run import Run
from edge_sdk.errors import UsageError

RUN, MODEL = "auscult run 1", "auscult model 1"
"""What a statement is of."""
UNSIGNED = ("deadline", "measured", "quorum", "signed")
"""Fields of a run that its signature is not over."""
FINGERPRINT = 16  # hexadecimal digits


class SignatureError(UsageError):
    """Something that is not signed as it should be, and why."""


class Signer:
    """An operator's private key.

    Args:
        pem: its file's content.

    Raises:
        UsageError: it is no private key for Ed25519, or the package cryptography is missing.
    """

    def __init__(self, pem: bytes):
        serialization, ed25519, _ = load_library("signing")
        try:
            key = serialization.load_pem_private_key(pem, None)
        except (ValueError, TypeError) as error:
            raise UsageError(f"signing key: is no PEM file of a private key: {error}") from None
        if not isinstance(key, ed25519.Ed25519PrivateKey):
            raise UsageError("signing key: expected one for Ed25519, as `openssl genpkey -algorithm ed25519` makes it")
        self.key = key
        encoding, form = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        self.public_pem: bytes = key.public_key().public_bytes(encoding, form)
        self.fingerprint = Verifier(self.public_pem).fingerprint

    def sign(self, statement: bytes) -> str:
        """The signature, in hexadecimal digits."""
        return str(self.key.sign(statement).hex())


class Verifier:
    """An operator's public key.

    Args:
        pem: its file's content.

    Attributes:
        fingerprint: names the key, for people.

    Raises:
        UsageError: it is no public key for Ed25519, or the package cryptography is missing.
    """

    def __init__(self, pem: bytes):
        serialization, ed25519, self.invalid = load_library("trusted_key")
        try:
            key = serialization.load_pem_public_key(pem)
        except (ValueError, TypeError) as error:
            raise UsageError(f"trusted_key: is no PEM file of a public key: {error}") from None
        if not isinstance(key, ed25519.Ed25519PublicKey):
            raise UsageError("trusted_key: expected the public half of a key for Ed25519")
        self.key = key
        raw = key.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
        self.fingerprint = hashlib.sha256(raw).hexdigest()[:FINGERPRINT]

    def check(self, what: str, statement: bytes, signed: Mapping[str, Any]) -> int:
        """Check a signature; returns the number of what was signed.

        Args:
            what: is signed, for people.
            signed: as `sign_run` makes it.

        Raises:
            SignatureError: it is not signed, by somebody else, or was changed since.
        """
        number, signature, by = signed.get("number"), signed.get("signature"), signed.get("key")
        if not signature:
            raise SignatureError(f"{what} is not signed; expected a signature of the key {self.fingerprint}")
        if by != self.fingerprint:
            raise SignatureError(f"{what} is signed by the key {str(by)[:40]!r}, trusted is {self.fingerprint} alone")
        try:
            if type(number) is not int or number < 1:
                raise ValueError("number")
            self.key.verify(bytes.fromhex(signature), statement)
        except (self.invalid, ValueError, TypeError):
            raise SignatureError(f"{what} was changed after the key {self.fingerprint} had signed it") from None
        return number


def load_library(key: str) -> tuple[Any, Any, type[Exception]]:
    """The modules of the package cryptography. `key`: what needs it, for the error."""
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ModuleNotFoundError as error:
        raise UsageError(f"{key}: signatures need a library: pip install cryptography") from error
    return serialization, ed25519, InvalidSignature


def make_private_key() -> bytes:
    """A new private key, as PEM."""
    serialization, ed25519, _ = load_library("signing")
    key = ed25519.Ed25519PrivateKey.generate()
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return bytes(key.private_bytes(encoding, form, serialization.NoEncryption()))


# Statements -----------------------------------------------------------------------------------------------------
def state_run(run: Run, number: int) -> bytes:
    """The statement of a run."""
    fields = {f.name: getattr(run, f.name) for f in dataclasses.fields(run) if f.name not in UNSIGNED}
    return write_statement(RUN, {name: value for name, value in fields.items() if value} | {"number": number})


def state_model(table: Mapping[str, Any], number: int) -> bytes:
    """The statement of a model: its hash and what else is said of it."""
    return write_statement(MODEL, {**table, "number": number})


def write_statement(kind: str, table: Mapping[str, Any]) -> bytes:
    packed: bytes = msgpack.packb([kind, in_order(table)])
    return packed


def in_order(value: Any) -> Any:
    """A value with the entries of all its tables sorted by their names."""
    if isinstance(value, Mapping):
        return {key: in_order(value[key]) for key in sorted(value)}
    return [in_order(v) for v in value] if isinstance(value, (list, tuple)) else value


def sign_run(run: Run, signer: Signer, number: int) -> Run:
    """The run with a signature. `number`: above those of all that was signed before."""
    signed = {"number": number, "key": signer.fingerprint, "signature": signer.sign(state_run(run, number))}
    return dataclasses.replace(run, signed=signed)


def check_run(run: Run, verifier: Verifier) -> int:
    """Check a run's signature, and return its number. Raises SignatureError."""
    number = run.signed.get("number", 0)
    return verifier.check(f"run {run.id}", state_run(run, number if type(number) is int else 0), run.signed)


def sign_model(table: Mapping[str, Any], signer: Signer, number: int) -> dict[str, Any]:
    """A signature under what is said of a model."""
    return {"number": number, "key": signer.fingerprint, "signature": signer.sign(state_model(table, number))}
