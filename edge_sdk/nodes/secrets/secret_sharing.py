"""Secrets that the devices of a hospital share, so that these open its sums among themselves (methods/secret).

For each exchange a device draws three secrets, for one answer, and keeps them in the memory of its process alone:

    channel key   X25519    messages between devices; with the device's own key, by which they know each other
    mask key      X25519    masks that two devices share                     its private half is shared out
    seed          32 bytes  the mask that the device adds by itself          shared out

    pair          = X25519(own keys) and X25519(channel keys)
    sealed        = ChaCha20Poly1305(HKDF-SHA256(pair; the exchange, from, to))            RFC 8439, RFC 5869
    word          = HMAC-SHA256(HKDF-SHA256(pair; the exchange, from, to); the survivors)  RFC 2104
    mask of two   = ChaCha20(HKDF-SHA256(X25519(mask keys); the exchange, both, lengths))  RFC 8439
    own mask      = ChaCha20(HKDF-SHA256(seed; the exchange, the device, lengths))

"The exchange" is a digest of the roster with everybody's fresh keys. A key of `sealed` and of a mask is used once.
"Lengths" are how many words and steps a mask has, and the steps' bits. A lying hospital could have two devices use
others; if their bytes were of one stream, one's upper bytes, which hide zeros, would be masks of the other's numbers.

No secret of an exchange is ever written to a disk. So whoever puts a device's store back from a backup, or kills its
process, has a device that can reveal nothing of what was before, and mask nothing under the same keys again.
"""

from __future__ import annotations

import hmac
import os
import secrets
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from edge_sdk.algebra.secure_aggregation import shamir
from edge_sdk.contract.environment.sharing import TAG, Steps, Words
from edge_sdk.methods.secret.messages.masking import cut, ring_type
from edge_sdk.nodes.secrets.mask_keys import library
from edge_sdk.nodes.secrets.masks import zeros

KEY = 32
SEAL, WORD, PAIR, OWN = b"auscult shares 1", b"auscult survivors 1", b"auscult pair masks 1", b"auscult own masks 1"
Ring = npt.NDArray[np.unsignedinteger]


@cache
def cipher() -> Any:
    """ChaCha20Poly1305 of `cryptography`. Raises UsageError where it is not installed."""
    library()
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    return ChaCha20Poly1305


# Masks ----------------------------------------------------------------------------------------------------------
def derive(secret: bytes, purpose: bytes, *about: bytes) -> bytes:
    """A key for one purpose. Each part of what it is about has its length before it, so that no two read the same."""
    lib = library()
    info = purpose + b"".join(len(part).to_bytes(4, "big") + part for part in about)
    found: bytes = lib.HKDF(lib.hashes.SHA256(), KEY, None, info).derive(secret)
    return found


def stream(
    secret: bytes, purpose: bytes, about: tuple[bytes, ...], words: int, steps: int, width: int
) -> tuple[Ring, Words]:
    """A mask of so many steps, in integers of a ring type, and words; another one for other lengths or bits."""
    lib, kind = library(), np.dtype(ring_type(width))
    key = derive(secret, purpose, *about, *(n.to_bytes(8, "big") for n in (words, steps, width)))
    made = lib.Cipher(lib.algorithms.ChaCha20(key, bytes(16)), None).encryptor()
    octets = np.frombuffer(made.update(zeros(8 * words + kind.itemsize * steps)), np.uint8)
    return octets[8 * words :].view(kind), octets[: 8 * words].view("<u8")


def agreed(private: Any, public: bytes) -> bytes:
    """What two keys share. Raises ValueError for a public key that shares nothing."""
    found: bytes = private.exchange(library().x25519.X25519PublicKey.from_public_bytes(public))
    return found


def mask_key_in(public: bytes) -> bytes:
    """The key for masks in a device's PUBLIC bytes."""
    return public[KEY:]


def own_stream(seed: bytes, about: bytes, device: str, words: int, steps: int, width: int) -> tuple[Ring, Words]:
    """What a device adds to its answer by itself."""
    return stream(seed, OWN, (about, device.encode()), words, steps, width)


def pair_stream(
    private: Any, device: str, public: bytes, peer: str, about: bytes, words: int, steps: int, width: int
) -> tuple[Ring, Words]:
    """What two devices share. Raises ValueError for a public key that shares nothing."""
    one, other = sorted((device, peer))
    shared = agreed(private, mask_key_in(public))
    return stream(shared, PAIR, (about, one.encode(), other.encode()), words, steps, width)


def mask_reader() -> ToldMasks:
    """What a hospital reads its devices' sums with. Raises UsageError where `cryptography` is not installed."""
    cipher()
    return ToldMasks()


class ToldMasks:
    """What a hospital makes of secrets that enough devices have told it."""

    def is_usable(self, public: bytes) -> bool:
        probe = library().x25519.X25519PrivateKey.generate()
        try:
            return all(agreed(probe, key) for key in (public[:KEY], mask_key_in(public)))
        except ValueError:
            return False

    def is_key_of(self, secret: bytes, public: bytes) -> bool:
        return bool(private_of(secret).public_key().public_bytes_raw() == mask_key_in(public))

    def own_mask(
        self, seed: bytes, about: bytes, device: str, words: int, steps: int, width: int
    ) -> tuple[Ring, Words]:
        return own_stream(seed, about, device, words, steps, width)

    def pair_mask(
        self, secret: bytes, device: str, public: bytes, peer: str, about: bytes, words: int, steps: int, width: int
    ) -> tuple[Ring, Words]:
        return pair_stream(private_of(secret), device, public, peer, about, words, steps, width)


def private_of(secret: bytes) -> Any:
    return library().x25519.X25519PrivateKey.from_private_bytes(secret)


# A device's secrets ---------------------------------------------------------------------------------------------
@dataclass
class Secrets:
    """Secrets of one device in one exchange, and how far it is.

    Attributes:
        ticket: number of the exchange.
        steps, words: the answer that they were drawn for.
        channel, mask: private keys.
        seed: of the device's own mask.
        about: digest of the roster, once it was shown.
        me, roster, threshold: as of `deal`.
        pairs: peer -> what it shares with this device, as far as it was needed.
        sealed: peer -> this device's shares for it.
        own: this device's shares of its own secrets.
        commitments: holder -> what this device has committed itself to.
        shares: peer -> its shares: of its seed, and of its mask key; of those whose shares were as they had said.
        dealers: peers with whom masks are shared.
        covered: width of the ring, and the masked answer.
        members: devices in the sum, as this device has confirmed them to others.
    """

    ticket: int
    steps: Steps
    words: Words
    channel: Any
    mask: Any
    seed: bytes
    about: bytes = b""
    me: str = ""
    roster: Mapping[str, bytes] = field(default_factory=dict)
    threshold: int = 0
    pairs: dict[str, bytes] = field(default_factory=dict)
    sealed: Mapping[str, bytes] | None = None
    own: bytes = b""
    commitments: Mapping[str, bytes] = field(default_factory=dict)
    shares: Mapping[str, tuple[bytes, bytes]] = field(default_factory=dict)
    dealers: frozenset[str] = frozenset()
    covered: tuple[int, Steps, Words] | None = None
    members: frozenset[str] = frozenset()

    def public(self) -> bytes:
        keys = (self.channel, self.mask)
        return b"".join(key.public_key().public_bytes_raw() for key in keys)


@dataclass
class DeviceSecrets:
    """The keeper of one device's secrets in one run: of the exchange that is on, and of none before.

    Attributes:
        private: the device's own key.
        peers: reads the public keys of all devices of its hospital.
        run: id of the run.
    """

    private: Any
    peers: Callable[[], Mapping[str, bytes]]
    run: str
    now: Secrets | None = None

    def strangers(self, names: Iterable[str]) -> list[str]:
        return sorted({*names} - {*self.peers()})

    def begin(self, ticket: int, steps: Steps, words: Words) -> bytes:
        draw = library().x25519.X25519PrivateKey.generate
        self.now = Secrets(ticket, steps, words, draw(), draw(), os.urandom(KEY))
        return self.now.public()

    def of(self, ticket: int) -> Secrets | None:
        """Secrets of that exchange; None: there are none here, or of another one."""
        return self.now if self.now is not None and self.now.ticket == ticket else None

    def deal(
        self, ticket: int, about: bytes, me: str, roster: Mapping[str, bytes], peers: Sequence[str], threshold: int
    ) -> Mapping[str, bytes] | None:
        now = self.of(ticket)
        if now is None or roster.get(me) != now.public():
            return None
        if now.sealed is not None:  # two polynomials of one secret would be too many shares of it
            return now.sealed if now.about == about else None
        now.about, now.me, now.roster, now.threshold = about, me, dict(roster), threshold
        places = {name: i for i, name in enumerate(roster, 1) if name in peers or name == me}
        seeds, keys = (self.split(secret, places.values()) for secret in (now.seed, now.mask.private_bytes_raw()))
        shares = {name: (seeds[place], keys[place]) for name, place in places.items()}
        now.own = shares[me][0]
        now.commitments = {name: committed_to(about, me, name, pair) for name, pair in shares.items()}
        try:
            now.sealed = {peer: self.seal(now, peer, b"".join(shares[peer])) for peer in peers}
        except ValueError:  # a key that shares nothing with anybody
            return None
        return now.sealed

    def split(self, secret: bytes, places: Iterable[int]) -> dict[int, bytes]:
        assert self.now is not None
        others = [secrets.randbelow(shamir.PRIME) for _ in range(self.now.threshold - 1)]
        found = shamir.split(int.from_bytes(secret, "big"), others, places)
        return {place: share.to_bytes(shamir.SHARE, "big") for place, share in found.items()}

    def pair(self, now: Secrets, peer: str) -> bytes:
        """What this device and a peer share: by their own keys, and by those of the exchange."""
        if peer not in now.pairs:
            channel = now.roster[peer][:KEY]
            now.pairs[peer] = agreed(self.private, self.peers()[peer]) + agreed(now.channel, channel)
        return now.pairs[peer]

    def seal(self, now: Secrets, peer: str, value: bytes) -> bytes:
        key = derive(self.pair(now, peer), SEAL, self.run.encode(), now.about, now.me.encode(), peer.encode())
        found: bytes = cipher()(key).encrypt(bytes(12), value, None)
        return found

    def unseal(self, now: Secrets, peer: str, value: bytes) -> tuple[bytes, bytes]:
        """A peer's shares. Raises ValueError where it has not sealed them for this device, in this exchange."""
        from cryptography.exceptions import InvalidTag

        key = derive(self.pair(now, peer), SEAL, self.run.encode(), now.about, peer.encode(), now.me.encode())
        try:
            found = cipher()(key).decrypt(bytes(12), value, None)
        except InvalidTag:
            raise ValueError(f"{peer} has not sealed this") from None
        return found[: shamir.SHARE], found[shamir.SHARE :]

    def exchange(self, ticket: int) -> tuple[bytes, Mapping[str, bytes]] | None:
        now = self.of(ticket)
        return None if now is None or now.sealed is None else (now.about, now.roster)

    def commitments(self, ticket: int) -> Mapping[str, bytes]:
        now = self.of(ticket)
        return {} if now is None else now.commitments

    def cover(
        self, ticket: int, sealed: Mapping[str, bytes], committed: Mapping[str, bytes], width: int
    ) -> tuple[Steps, Words, tuple[str, ...]] | None:
        now = self.of(ticket)
        if now is None or now.sealed is None or not {*sealed} <= {*now.sealed}:
            return None
        if now.covered is None:  # one answer leaves, under one set of masks
            now.shares, now.dealers = self.read_shares(now, sealed, committed), frozenset(sealed)
            if 1 + len(now.shares) < now.threshold:
                return None
            try:
                now.covered = width, *self.masked(now, tuple(sealed), width)
            except ValueError:
                return None
        if now.covered[0] != width or {*sealed} != now.dealers:
            return None
        return *now.covered[1:], tuple(sorted(now.dealers - {*now.shares}))

    def read_shares(
        self, now: Secrets, sealed: Mapping[str, bytes], committed: Mapping[str, bytes]
    ) -> dict[str, tuple[bytes, bytes]]:
        """Shares of those peers that have sealed what they have committed themselves to."""
        found = dict[str, tuple[bytes, bytes]]()
        for peer, value in sealed.items():
            try:
                pair = self.unseal(now, peer, value)
            except ValueError:
                continue
            if committed[peer] == committed_to(now.about, peer, now.me, pair):
                found[peer] = pair
        return found

    def masked(self, now: Secrets, peers: Sequence[str], width: int) -> tuple[Steps, Words]:
        """The answer, the device's own mask, and those that it shares: it adds them where its name is the lesser."""
        size = (now.words.size, now.steps.size, width)
        steps, words = own_stream(now.seed, now.about, now.me, *size)
        steps, words = steps + now.steps.astype(ring_type(width)), words + now.words
        for peer in peers:
            mask, word_mask = pair_stream(now.mask, now.me, now.roster[peer], peer, now.about, *size)
            if now.me < peer:
                steps, words = steps + mask, words + word_mask
            else:
                steps, words = steps - mask, words - word_mask
        return cut(steps, width), words

    def word(self, now: Secrets, sender: str, receiver: str) -> bytes:
        peer = receiver if sender == now.me else sender
        key = derive(self.pair(now, peer), WORD, self.run.encode(), now.about, sender.encode(), receiver.encode())
        return hmac.digest(key, "\n".join(sorted(now.members)).encode(), "sha256")[:TAG]

    def confirm(self, ticket: int, members: Collection[str], peers: Sequence[str]) -> Mapping[str, bytes] | None:
        now = self.of(ticket)
        if now is None or now.covered is None or now.me not in members or not {*peers} <= now.dealers:
            return None
        if now.members not in (frozenset(), frozenset(members)):
            return None
        now.members = frozenset(members)
        return {peer: self.word(now, now.me, peer) for peer in peers}

    def reveal(self, ticket: int, words: Mapping[str, bytes], enough: int) -> Mapping[str, bytes] | None:
        now = self.of(ticket)
        if now is None or not now.members or not {*words} <= now.dealers:
            return None
        same = [peer for peer, word in words.items() if hmac.compare_digest(word, self.word(now, peer, now.me))]
        if 1 + len(same) < enough:
            return None
        told = {peer: pair[0 if peer in now.members else 1] for peer, pair in now.shares.items()}
        return {now.me: now.own, **told}


def committed_to(about: bytes, dealer: str, holder: str, pair: tuple[bytes, bytes]) -> bytes:
    """The COMMITTED bytes of a dealer's two shares for one holder."""
    return b"".join(shamir.commit(about, dealer, holder, which, share) for which, share in enumerate(pair))
