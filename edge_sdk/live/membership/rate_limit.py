"""Limits how often a peer is listened to: a bucket of tokens for each, from which every payload takes some.

A peer that keeps to the protocol never empties its bucket: nodes that do nothing else exchange some hundred messages in
a second, and chunks of large bodies cost nothing as long as they are new. What comes while the bucket is empty is
dropped before it is decoded, and counted. Nothing is lost by that: what must arrive is repeated until it is
acknowledged.
"""

from __future__ import annotations

RATE, BURST = 1000.0, 20_000.0
"""Tokens that come back in a second, and that there are at most."""
SIZE = 2**16  # bytes that cost a token more
LARGE = 2**12  # bytes from which on a new chunk costs nothing


class Frequency:
    """Buckets of all peers of one node.

    Attributes:
        left: peer -> tokens that it had, and when, in seconds of the caller's clock; who is not there has all.
        price: what the latest payload has cost.
    """

    def __init__(self, rate: float | None = None, burst: float | None = None):
        self.rate, self.burst = rate or RATE, burst or BURST
        self.left: dict[str, tuple[float, float]] = {}
        self.price = 0.0

    def admits(self, peer: str, size: int, now: float) -> bool:
        """Take the price of a payload from a peer's bucket; False: there is not that much in it."""
        tokens, at = self.left.get(peer, (self.burst, now))
        tokens = min(self.burst, tokens + (now - at) * self.rate)
        self.price = min(self.burst, 1 + size // SIZE)  # the largest payload has a chance too
        admitted = tokens >= self.price
        self.left[peer] = tokens - self.price if admitted else tokens, now
        return admitted

    def give_back(self, peer: str) -> None:
        """Give back what the latest payload has cost, which was of this peer and of use."""
        tokens, at = self.left[peer]
        self.left[peer] = tokens + self.price, at
