"""What the devices of a run hold, as arrays, and how much of it a neighbour takes."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Codes = npt.NDArray[np.int64]
Part = tuple[Array, Codes]
"""Inputs (N, ...) and class codes (N,)."""

MOST_OWN, MOST_POOLED = 5_000, 10_000
"""Training samples of one device, and of all in one place, that a neighbour learns from, at most: drawn."""
SHARE, WHOSE, POOL = 1, 2, 3
"""Purposes of the random streams."""


@dataclass(frozen=True)
class Holder:
    """The samples of one device.

    Attributes:
        train, validation, test: as every device of the run had them; a part may have no rows.
        newcomer: takes no part in training, and so neither in choices nor in what is pooled.
    """

    name: str
    train: Part
    validation: Part
    test: Part
    newcomer: bool = False


def number_of(name: str) -> int:
    """A number for a name, the same everywhere, for the random streams of a device."""
    return zlib.crc32(name.encode())


def draw_some(part: Part, most: int, seed: Sequence[int]) -> Part:
    """At most so many samples of a part, in their order."""
    x, y = part
    if len(y) <= most:
        return part
    rows = np.sort(np.random.default_rng(seed).permutation(len(y))[:most])
    return x[rows], y[rows]


def within_limits(holder: Holder, seed: int) -> Holder:
    """The holder with no more training samples than a neighbour learns from."""
    return replace(holder, train=draw_some(holder.train, MOST_OWN, [seed, SHARE, number_of(holder.name)]))


def draw_devices(names: Sequence[str], most: int, seed: int) -> tuple[str, ...]:
    """All names, or so many of them, drawn, in their order."""
    if len(names) <= most:
        return tuple(names)
    rows = np.sort(np.random.default_rng([seed, WHOSE]).permutation(len(names))[:most])
    return tuple(names[i] for i in rows)


def pool_samples(parts: Sequence[Part], seed: int) -> Part:
    """The samples of several parts in one."""
    x, y = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return draw_some((x, y), MOST_POOLED, [seed, POOL])
