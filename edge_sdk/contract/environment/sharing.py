"""What roles are given for sums that devices open among themselves (see methods/secret/among_devices/among_device.py):
a device's keeper of secrets, and a hospital's reader of what devices have revealed. What is behind them is in
nodes/secrets/secret_sharing.py.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

PUBLIC = 64
"""Bytes of the public keys of one exchange: for messages between devices, and for masks."""
SEALED = 148
"""Bytes of two shares, for one device's eyes only."""
COMMITTED = 64
"""Bytes of two shares' commitments (algebra/secure_aggregation/shamir.py: commit)."""
TAG = 16
"""Bytes of a device's word to another one that it knows the same survivors."""

Words = npt.NDArray[np.uint64]
Steps = npt.NDArray[np.uint32]


class SecretKeeper(Protocol):
    """Secrets of one device in one exchange, which are in the memory of one process and nowhere else.

    They are drawn for one answer and hide nothing else; and of another device at most one of two secrets is told. All
    methods give None where that would be broken, or where this process does not have what it needs, as after a
    restart. The same call again gives the same.
    """

    def strangers(self, names: Iterable[str]) -> list[str]:
        """Names those of these devices of whom there is no key on file."""

    def begin(self, ticket: int, steps: Steps, words: Words) -> bytes:
        """Draws secrets for an answer, in place of those before, and gives their PUBLIC bytes."""

    def deal(
        self, ticket: int, about: bytes, me: str, roster: Mapping[str, bytes], peers: Sequence[str], threshold: int
    ) -> Mapping[str, bytes] | None:
        """Shares of the secrets, sealed (SEALED bytes) for each peer.

        Args:
            about: digest of all that is known of the exchange.
            roster: device -> its PUBLIC bytes, in an order that is the same for all.
            threshold: shares of which a secret is made.
        """

    def commitments(self, ticket: int) -> Mapping[str, bytes]:
        """Holder of this device's shares, itself among them -> the COMMITTED bytes of both."""

    def exchange(self, ticket: int) -> tuple[bytes, Mapping[str, bytes]] | None:
        """The digest and the roster of an exchange in which this device has dealt."""

    def cover(
        self, ticket: int, sealed: Mapping[str, bytes], committed: Mapping[str, bytes], width: int
    ) -> tuple[Steps, Words, tuple[str, ...]] | None:
        """The answer under its masks, in rings of `width` and 64 bits, and those peers whose shares are not what they
        have committed themselves to; None, too, where more of them are than may be missing.

        Args:
            sealed: peer -> the shares that it has sealed for this device; masks are shared with these peers.
            committed: peer -> the COMMITTED bytes of these.
        """

    def confirm(self, ticket: int, members: Collection[str], peers: Sequence[str]) -> Mapping[str, bytes] | None:
        """This device's word to these peers that it was shown exactly these members of the sum, of which it is one. It
        is given for one set only."""

    def reveal(self, ticket: int, words: Mapping[str, bytes], enough: int) -> Mapping[str, bytes] | None:
        """Device -> the share of it that this one tells, this device's own among them: of the seed of its own mask if
        it is a member of the set that was confirmed, else of its key. Of whose shares were false, none.

        Args:
            words: peer -> what it has confirmed to this device.
            enough: devices, this one among them, that must have been shown the same.
        """


class MaskReader(Protocol):
    """Masks that follow from secrets of which enough shares were told."""

    def is_usable(self, public: bytes) -> bool:
        """Says if both keys in a device's PUBLIC bytes share something with others' keys."""

    def is_key_of(self, secret: bytes, public: bytes) -> bool:
        """Says if a key is the private half of that in a device's PUBLIC bytes."""

    def own_mask(
        self, seed: bytes, about: bytes, device: str, words: int, steps: int, width: int
    ) -> tuple[npt.NDArray[np.unsignedinteger], Words]:
        """What a device has added to its answer by itself: so many steps, in integers of a ring type, and words."""

    def pair_mask(
        self, secret: bytes, device: str, public: bytes, peer: str, about: bytes, words: int, steps: int, width: int
    ) -> tuple[npt.NDArray[np.unsignedinteger], Words]:
        """What `device`, whose key is known, and a peer with these PUBLIC bytes share: the lesser name adds it. Raises
        ValueError for a peer's key that shares nothing with anybody."""
