"""Who holds what: groups with a label mix of their own, and the devices of a group."""

from __future__ import annotations

from itertools import combinations
from math import comb

import numpy as np

from edge_sdk.datasets.table import Labels, Rows
from edge_sdk.errors import UsageError


def mixed(y: Labels, groups: int, majority: float, seed: int = 0) -> list[Rows]:
    """Groups of equal size that each take a share from two labels and the rest from the others, as in HSGD's paper.

    With as many groups as there are pairs of labels, every pair is one group's; otherwise each next group takes the two
    labels of which most is left. Where a label runs out, the other of the pair, and then whatever most is left of,
    fills up. What does not divide is left over.

    Args:
        y: labels of the training samples.
        groups: M.
        majority: share of a group's samples that are of its two labels: 700 / 920 (ESR), 3000 / 3458 (OrganAMNIST).

    Returns:
        Rows of each group, sorted; all of the same length.
    """
    if not 0 < groups <= len(y) or not 0 <= majority <= 1:
        raise UsageError(f"{groups} groups of {len(y)} samples, {majority} of two labels each: that is no division")
    stock, classes = stocks(y, seed), len(np.unique(y))
    size, every = len(y) // groups, groups == comb(classes, 2)
    taken: list[list[int]] = [[] for _ in range(groups)]
    rest = [dict.fromkeys(stock, 0) for _ in range(groups)]
    pairs: list[tuple[int, ...]] = list(combinations(sorted(stock), 2)) if every else []
    for m in range(groups):
        pair = pairs[m] if every else fullest(stock, 2)
        pairs += [] if every else [pair]
        for k in range(round(majority * size)):
            taken[m].append(take(stock, pair[k % len(pair) :] + pair[: k % len(pair)]))
    for _ in range(size - round(majority * size)):
        for m in range(groups):
            others = [c for c in stock if c not in pairs[m]]
            evenly = sorted(others, key=lambda c: (rest[m][c], -len(stock[c]), c))
            taken[m].append(take(stock, tuple(evenly)))
            rest[m][int(y[taken[m][-1]])] += 1
    return [np.sort(np.array(rows, np.int64)) for rows in taken]


def stocks(y: Labels, seed: int) -> dict[int, list[int]]:
    """Label -> its rows, shuffled."""
    random = np.random.default_rng([seed, 2])
    return {int(c): random.permutation(np.flatnonzero(y == c)).tolist() for c in np.unique(y)}


def fullest(stock: dict[int, list[int]], count: int) -> tuple[int, ...]:
    """The labels of which most is left."""
    return tuple(sorted(stock, key=lambda c: (-len(stock[c]), c))[:count])


def take(stock: dict[int, list[int]], wanted: tuple[int, ...]) -> int:
    """A row of the first wanted label that is left; else of the one of which most is left."""
    left = next((c for c in wanted if stock[c]), None)
    return stock[fullest(stock, 1)[0] if left is None else left].pop()


def diverse(y: Labels, devices: int, labels: int, seed: int = 0) -> list[Rows]:
    """Devices that each hold so many labels, as in FedBCD's experiments; the holders of a label share its rows."""
    classes = np.unique(y)
    if not 0 < labels <= len(classes) or devices * labels < len(classes):
        raise UsageError(f"{devices} devices of {labels} labels each: there are {len(classes)} labels to be held")
    random = np.random.default_rng([seed, 3])
    order = random.permutation(classes)
    held = [{int(order[(d * labels + k) % len(classes)]) for k in range(labels)} for d in range(devices)]
    random.shuffle(held)
    parts: list[list[int]] = [[] for _ in range(devices)]
    for c, rows in stocks(y, seed).items():
        owners = [d for d in range(devices) if c in held[d]]
        for d, part in zip(owners, np.array_split(np.array(rows), len(owners)), strict=True):
            parts[d] += part.tolist()
    return [np.sort(np.array(rows, np.int64)) for rows in parts]


def dealt(rows: Rows, devices: int) -> list[Rows]:
    """The rows of a group, dealt out to its devices like cards."""
    if not 0 < devices <= len(rows):
        raise UsageError(f"{devices} devices for {len(rows)} samples: each has at least one")
    return [rows[d::devices] for d in range(devices)]
