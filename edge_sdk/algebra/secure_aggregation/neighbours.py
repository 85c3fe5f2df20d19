"""Neighbours: which devices of a hospital share masks and secrets with each other in one exchange, and how many of them
must help.

All devices stand on a circle, in an order that follows from a public draw; each one's neighbours are half of `degree`
before it and as many behind it (a Harary graph, which stays in one piece unless so many devices are missing). The draw
is a hash of the whole roster, with fresh keys of every device in it.

Source: J. H. Bell, K. A. Bonawitz, A. Gascon, T. Lepoint, M. Raykova: "Secure Single-Server Aggregation with
(Poly)Logarithmic Overhead", CCS 2020: log n neighbours are enough.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import lru_cache
from hashlib import sha256
from math import ceil, log2

FACTOR = 8
"""Neighbours for each doubling of the number of devices. Up to 47 devices, all are neighbours of each other."""


def digest(data: bytes) -> bytes:
    """32 bytes by which all know the same data."""
    return sha256(data).digest()


def degree(devices: int) -> int:
    """Neighbours of each device: FACTOR log2 n, an even number, or all others where these are not more."""
    wanted = 2 * ceil(FACTOR * log2(max(2, devices)) / 2)
    return min(devices - 1, wanted)


def threshold(devices: int) -> int:
    """Holders of a device's shares, itself among them, of whom its secret is made: two of three.

    It is more than half, so that no two sets of so many holders could each be shown another set of survivors, unless a
    third of the holders tell the hospital both of what they hold.
    """
    return ceil(2 * (degree(devices) + 1) / 3)


@lru_cache(maxsize=8)
def neighbours(names: tuple[str, ...], draw: bytes) -> Mapping[str, tuple[str, ...]]:
    """Device -> its neighbours, both in the order of the names. `draw`: public, and equal for all. `names`: sorted."""
    circle = sorted(names, key=lambda name: sha256(draw + name.encode()).digest())
    n, k = len(circle), degree(len(circle))
    if k == n - 1:
        return {name: tuple(sorted(other for other in names if other != name)) for name in names}
    steps = [step for step in range(-k // 2, k // 2 + 1) if step]
    at = {name: i for i, name in enumerate(circle)}
    return {name: tuple(sorted(circle[(at[name] + step) % n] for step in steps)) for name in names}


def is_in_one_piece(graph: Mapping[str, Collection[str]], members: Collection[str]) -> bool:
    """True if each two members are joined by neighbours that are members: else parts of them had sums of their own."""
    left, edge = set(members), list(members)[:1]
    left -= {*edge}
    while edge:
        found = left & {*graph[edge.pop()]}
        left -= found
        edge += found
    return not left
