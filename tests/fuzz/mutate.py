"""Seeded changes of an input: what the tests use where nothing guides the search."""

from __future__ import annotations

import random
from collections.abc import Sequence

STRANGE = (
    b"",
    b"\0",
    b"\xff" * 8,
    b"\x7f" * 4,
    b"nan",
    b"-1",
    b"1e999",
    b"[" * 300,
    b"{",
    b'"',
    b"\n",
    b"\x1b[2J",
    b"9" * 400,
)


def mutate(seeds: Sequence[bytes], random: random.Random) -> bytes:
    """One of the seeds after one to four changes: bits, cuts, repetitions, strange words, pieces of another seed."""
    data = bytearray(random.choice(seeds))
    for _ in range(random.randint(1, 4)):
        a, b = sorted(random.randrange(len(data) + 1) for _ in range(2))
        b = min(b, a + 64)
        match random.randrange(6):
            case 0 if data:
                data[random.randrange(len(data))] ^= 1 << random.randrange(8)
            case 1:
                del data[a:b]
            case 2:
                data[a:a] = data[a:b] * random.randint(1, 8)
            case 3:
                data[a : random.choice((a, b))] = random.choice(STRANGE)
            case 4:
                other = random.choice(seeds)
                at = random.randrange(len(other) + 1)
                data[a:b] = other[at : at + random.randint(0, 64)]
            case _:
                del data[random.randrange(len(data) + 1) :]
    return bytes(data)
