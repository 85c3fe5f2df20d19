"""What a role is given to hide a value and to uncover a sum: keystreams that two nodes share (see methods/secret).

The functions behind this are made of keys that a role never sees (nodes/secrets/masks.py).
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt


class Masks(Protocol):
    """Keystreams of one run that this node shares with each of its peers in it.

    A peer is named as the node itself knows it: a device's only one is the aggregator, which is UP.
    """

    def knows(self, peer: str) -> bool:
        """Says if there is a key of that peer. Raises PeerError where that cannot be looked up now."""

    def tag(self, peer: str, context: bytes, value: bytes) -> bytes:
        """A short name (TAG bytes) of a value in a context, by a key that the peer does not have either.

        So it tells nobody anything of the value. The same value has the same name, also after a restart. Two different
        values have two different names, so a stream that depends on the name hides one value only.
        """

    def stream(self, peer: str, context: bytes, tag: bytes, size: int) -> npt.NDArray[np.uint8]:
        """Bytes (size,) that are random for everybody but the two nodes."""

    def draw(self, ticket: int) -> bytes:
        """A nonce (TAG bytes) for this node's sum of a question; it is kept by this process alone."""

    def spend(self, ticket: int, nonce: bytes, on: bytes) -> bool:
        """Says if this process has drawn that nonce for that question, and has spent it on nothing but that use."""


TAG = 16
"""Bytes of a tag."""
