"""The draw of some children out of all that are here: in the field, in the loopback and in a simulation the same."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np


class Ordered(tuple[str, ...]):
    """Names in their order. Whoever has a million of them sorts them once, and not for each draw."""

    __slots__ = ()


def in_order(names: Iterable[str]) -> Ordered:
    return names if isinstance(names, Ordered) else Ordered(sorted(names))


SHUFFLED = 10_000
"""Children up to whom all are shuffled for a draw, as published runs were drawn. Of more, no more are drawn than are
wanted: to shuffle a million for a thousand took longer than the training of these."""


def pick(here: Sequence[str], count: int, *seed: int) -> tuple[str, ...]:
    """`count` of the children that are here, uniformly, without replacement; the same for the same seed."""
    names, random = in_order(here), np.random.default_rng(seed)
    if len(names) <= SHUFFLED:
        chosen = random.permutation(len(names))[:count].tolist()
    else:
        chosen = sample(random, len(names), min(count, len(names)))
    return Ordered(names[i] for i in sorted(chosen))


def sample(random: np.random.Generator, among: int, count: int) -> set[int]:
    """`count` of the numbers below `among`, uniformly, without replacement.

    R. W. Floyd's algorithm (Bentley & Floyd, "A sample of brilliance", 1987): each step draws from one number more than
    the step before, and takes that one where what is drawn has been taken already.
    """
    tops, chosen = np.arange(among - count, among), set[int]()
    for top, drawn in zip(tops.tolist(), random.integers(0, tops, endpoint=True).tolist(), strict=True):
        chosen.add(top if drawn in chosen else drawn)
    return chosen
