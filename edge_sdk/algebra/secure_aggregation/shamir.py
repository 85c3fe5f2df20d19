"""Shamir's secret sharing over the prime field of 2^521 - 1: any `threshold` shares give the secret, fewer say nothing.

A secret is the value at 0 of a polynomial whose other coefficients are random; a share is its value at a place of its
holder. Plain arithmetic on integers, and no randomness of its own.

Source: A. Shamir, "How to share a secret", Communications of the ACM 22 (11), 1979.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256

PRIME = 2**521 - 1
"""A Mersenne prime, of which NIST's curve P-521 is made, too: large enough for a secret of 64 bytes."""
SHARE = 66
"""Bytes of a share."""
COMMITMENT = 32
"""Bytes by which a share is known before it is told."""


def commit(about: bytes, dealer: str, holder: str, which: int, share: bytes) -> bytes:
    """Hash of a share, with whose it is and for whom. Of a secret as random as a key, it says nothing of the share.

    Args:
        which: of a dealer's secrets.
    """
    return sha256(repr((about, dealer, holder, which, share)).encode()).digest()


def split(secret: int, others: Sequence[int], places: Iterable[int]) -> dict[int, int]:
    """The shares of a secret at these places.

    Args:
        secret: 0 <= secret < PRIME.
        others: coefficients of the higher powers, uniform in the field; one fewer than shares that are needed.
        places: different ones, none of them 0 modulo PRIME.

    Raises:
        ValueError: a number is outside the field, or a place is 0 or there twice.
    """
    places = tuple(places)
    if any(not 0 <= value < PRIME for value in (secret, *others)):
        raise ValueError("a number outside the field")
    check_places(places)
    found = {}
    for x in places:
        y = 0
        for coefficient in reversed((secret, *others)):
            y = (y * x + coefficient) % PRIME
        found[x] = y
    return found


def join(shares: Mapping[int, int]) -> int:
    """The secret of these shares, by place: the value at 0 of the polynomial through them.

    Raises:
        ValueError: there are none, or a place or a share is outside the field.
    """
    check_places(tuple(shares))
    if not shares or any(not 0 <= y < PRIME for y in shares.values()):
        raise ValueError("no shares, or one that is outside the field")
    total, below = 0, 1
    for x, y in shares.items():
        top, bottom = 1, 1
        for other in shares:
            if other != x:
                top, bottom = top * other % PRIME, bottom * (other - x) % PRIME
        total, below = (total * bottom + y * top * below) % PRIME, below * bottom % PRIME
    return total * pow(below, -1, PRIME) % PRIME


def check_places(places: Sequence[int]) -> None:
    """Raises ValueError for a place that is none, or that is there twice."""
    if len(set(places)) < len(places) or any(not 0 < x < PRIME for x in places):
        raise ValueError("places of shares are different, and above 0")
