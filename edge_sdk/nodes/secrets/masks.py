"""Keystreams of secret sums, which device and aggregator derive from their keys.

    shared        = X25519(own private key, the other's public key)            RFC 7748
    key           = HKDF-SHA256(shared; both public keys, the run)             RFC 5869
    tag key       = HKDF-SHA256(own private key; both public keys, the run)
    tag           = HMAC-SHA256(tag key; context, value), its first bytes      RFC 2104
    stream        = ChaCha20(HKDF-SHA256(key; context, tag))                   RFC 8439

Tags travel, so their key is one that nobody shares: with it the aggregator could try out what a device has sent, guess
by guess. It needs no tag key, since it makes masks of the tags that came.

All of it is the package `cryptography`'s (extra `secure`). A private key is a PEM file (PKCS #8) for its owner alone;
public keys are lines of a text file, a name and 32 bytes in base64.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from edge_sdk.contract.environment.masks import TAG
from edge_sdk.contract.method import UP
from edge_sdk.errors import PeerError, UsageError
from edge_sdk.nodes.configuration.mask_tables import DeviceKeys, HospitalKeys
from edge_sdk.nodes.secrets.mask_keys import (
    KEY,
    AggregatorKeys,
    library,
    read_private,
    read_public,
)

MINE, TAGS = b"auscult secret sums 1", b"auscult tags 1"
ZEROS = 1 << 20  # bytes; longer streams are made in one piece of their own
Peers = Callable[[], Mapping[str, bytes]]
Stamps = tuple[tuple[int, int, int], ...]
"""When each file was written, its size, and which one it is."""


@dataclass
class RunMasks:
    """Keystreams that one node shares with its peers in one run.

    Attributes:
        private: this node's key.
        peers: reads the public keys of peers.
        run: id of the run.
        keys: peer -> key of the streams, which it has too, and of tags, which it has not; as far as they are known.
        drawn: question -> the nonce that this process has drawn for it, and on what it was spent. In memory only: a
            store that is put back has no nonce that was spent before.
    """

    private: Any
    peers: Peers
    run: str
    keys: dict[str, tuple[bytes, bytes]] = field(default_factory=dict)
    drawn: dict[int, tuple[bytes, bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.public = self.private.public_key().public_bytes_raw()
        self.seen = self.peers()
        self.known = dict(self.seen)

    def knows(self, peer: str) -> bool:
        """Says if there is a key of that peer, and takes over what has changed in the files since.

        A peer that is in no file now, or in none that can be read, keeps its key in this process: its answers may be on
        their way in a sum.

        Raises:
            PeerError: no key of it is known, and the files cannot be read.
        """
        try:
            found = self.peers()
        except UsageError as error:
            if peer not in self.known:
                raise PeerError(f"no key of {peer} is known: {error}") from None
            return True
        for name, key in found.items() if found is not self.seen else ():
            if self.known.get(name) != key:
                self.known[name] = key
                self.keys.pop(name, None)
        self.seen = found
        return peer in self.known

    def derive(self, peer: str) -> tuple[bytes, bytes]:
        """The key that is shared with a peer, as good as the public one on file, and this node's own for tags."""
        if peer not in self.keys:
            lib, other = library(), self.known[peer]
            try:
                shared = self.private.exchange(lib.x25519.X25519PublicKey.from_public_bytes(other))
            except ValueError as error:
                raise UsageError(f"the public key of {peer} is none: {error}") from None
            about = b"".join(sorted((self.public, other))) + self.run.encode()
            key, tag_key = (
                lib.HKDF(lib.hashes.SHA256(), KEY, None, start + about).derive(secret)
                for start, secret in ((MINE, shared), (TAGS, self.private.private_bytes_raw()))
            )
            self.keys[peer] = key, tag_key
        return self.keys[peer]

    def tag(self, peer: str, context: bytes, value: bytes) -> bytes:
        inner = hashlib.sha256(context).digest()  # of one length, so that no context is the beginning of another
        found = hmac.new(self.derive(peer)[1], inner, "sha256")
        found.update(value)
        return found.digest()[:TAG]

    def stream(self, peer: str, context: bytes, tag: bytes, size: int) -> npt.NDArray[np.uint8]:
        lib = library()
        key = lib.HKDFExpand(lib.hashes.SHA256(), KEY, context + tag).derive(self.derive(peer)[0])
        made = lib.Cipher(lib.algorithms.ChaCha20(key, bytes(16)), None).encryptor().update(zeros(size))
        return np.frombuffer(made, np.uint8)

    def draw(self, ticket: int) -> bytes:
        nonce = os.urandom(TAG)
        self.drawn = {ticket: (nonce, b"")}  # a hospital answers one question at a time
        return nonce

    def spend(self, ticket: int, nonce: bytes, on: bytes) -> bool:
        mine, spent = self.drawn.get(ticket, (b"", b""))
        on = hashlib.sha256(on).digest()
        if not mine or not hmac.compare_digest(mine, nonce) or spent not in (b"", on):
            return False
        self.drawn[ticket] = mine, on
        return True


@cache
def some_zeros() -> bytes:
    return bytes(ZEROS)


def zeros(size: int) -> memoryview:
    """So many zeros, for the cipher to make a keystream of."""
    return memoryview(some_zeros() if size <= ZEROS else bytes(size))[:size]


def device_masks(files: DeviceKeys, run: str) -> RunMasks:
    """Keystreams of a device, whose only peer is the aggregator.

    Raises:
        UsageError: a key cannot be read, or the aggregator's file has not exactly one.
    """

    def peers() -> Mapping[str, bytes]:
        found = read_public(files.aggregator)
        if len(found) != 1:
            raise UsageError(f"{files.aggregator}: {len(found)} public keys, expected the aggregator's only")
        return {UP: next(iter(found.values()))}

    return RunMasks(read_private(files.key), peers, run)


def aggregator_masks(files: AggregatorKeys, run: str) -> RunMasks:
    """Keystreams of the aggregator, which shares one with each device. Raises UsageError for a file without keys."""
    return RunMasks(read_private(files.key), reading_again(files.lists, files.public_keys), run)


def hospital_masks(files: HospitalKeys, run: str, me: str) -> RunMasks:
    """Keystreams of a hospital, which shares one with each other.

    Raises:
        UsageError: a key cannot be used, its own is not the listed one, or there is none of another hospital.
    """
    private = read_private(files.key)
    found = read_public(files.hospitals)
    if found.get(me, private.public_key().public_bytes_raw()) != private.public_key().public_bytes_raw():
        raise UsageError(f"{files.hospitals}: the key of {me} there is not the public half of {files.key}")
    others = {name: key for name, key in found.items() if name != me}
    if not others:
        raise UsageError(f"{files.hospitals}: no key of another hospital")
    return RunMasks(private, lambda: others, run)


def reading_again(files: Sequence[Path], read: Callable[[], Mapping[str, bytes]]) -> Peers:
    """A reader of public keys that reads their files again when these have changed: the same mapping as long as not."""
    seen: tuple[Stamps, Mapping[str, bytes]] | None = None

    def peers() -> Mapping[str, bytes]:
        nonlocal seen
        stamps = stamps_of(files)
        if seen is None or seen[0] != stamps:
            seen = stamps, read()
        return seen[1]

    return peers


def stamps_of(files: Sequence[Path]) -> Stamps:
    """What is different when a file has been written since. Raises UsageError for one that is not there."""
    try:
        found = [path.stat() for path in files]
    except OSError as error:
        raise UsageError(f"{error.filename}: public keys cannot be read: {error.strerror}") from error
    return tuple((stat.st_mtime_ns, stat.st_size, stat.st_ino) for stat in found)
