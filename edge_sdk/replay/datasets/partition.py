"""Who holds which samples: rules that deal the rows of a data set out to hospitals and devices."""

from __future__ import annotations

from itertools import combinations
from math import comb

import numpy as np

from edge_sdk.errors import UsageError
from edge_sdk.replay.datasets.table import Labels, Rows


def deal_mixed(y: Labels, groups: int, majority: float, seed: int = 0) -> list[Rows]:
    """Deals out groups of equal size: a share from two labels, the rest from the others, as in HSGD's paper.

    With as many groups as there are pairs of labels, every pair is one group's; otherwise each next group takes the two
    labels of which most is left. Where a label runs out, the other of the pair, and then whatever most is left of,
    fills up. What does not divide is left over.

    Args:
        y: labels of the training samples.
        groups: M.
        majority: share of a group's samples that are of its two labels: 700 / 920 (ESR), 3000 / 3458 (OrganAMNIST);
            0: the groups are alike.

    Returns:
        Rows of each group, sorted; all of the same length.
    """
    if not 0 < groups <= len(y) or not 0 <= majority <= 1:
        raise UsageError(f"{groups} groups of {len(y)} samples, {majority} of two labels each: that is no division")
    if not majority:
        order = np.random.default_rng([seed, 8]).permutation(len(y))[: len(y) // groups * groups]
        return [np.sort(rows) for rows in np.split(order, groups)]
    stock, classes = shuffle_by_label(y, seed), len(np.unique(y))
    size, every = len(y) // groups, groups == comb(classes, 2)
    taken: list[list[int]] = [[] for _ in range(groups)]
    rest = [dict.fromkeys(stock, 0) for _ in range(groups)]
    pairs: list[tuple[int, ...]] = list(combinations(sorted(stock), 2)) if every else []
    for m in range(groups):
        pair = pairs[m] if every else find_fullest(stock, 2)
        pairs += [] if every else [pair]
        for k in range(round(majority * size)):
            taken[m].append(take_row(stock, pair[k % len(pair) :] + pair[: k % len(pair)]))
    for _ in range(size - round(majority * size)):
        for m in range(groups):
            others = [c for c in stock if c not in pairs[m]]
            evenly = sorted(others, key=lambda c: (rest[m][c], -len(stock[c]), c))
            taken[m].append(take_row(stock, tuple(evenly)))
            rest[m][int(y[taken[m][-1]])] += 1
    return [np.sort(np.array(rows, np.int64)) for rows in taken]


def shuffle_by_label(y: Labels, seed: int) -> dict[int, list[int]]:
    """Groups the rows: label -> its rows, shuffled."""
    random = np.random.default_rng([seed, 2])
    return {int(c): random.permutation(np.flatnonzero(y == c)).tolist() for c in np.unique(y)}


def find_fullest(stock: dict[int, list[int]], count: int) -> tuple[int, ...]:
    """Finds the labels of which most rows are left."""
    return tuple(sorted(stock, key=lambda c: (-len(stock[c]), c))[:count])


def take_row(stock: dict[int, list[int]], wanted: tuple[int, ...]) -> int:
    """Takes a row of the first wanted label that is left; else of the one of which most is left."""
    left = next((c for c in wanted if stock[c]), None)
    return stock[find_fullest(stock, 1)[0] if left is None else left].pop()


def deal_labels(y: Labels, devices: int, labels: int, seed: int = 0) -> list[Rows]:
    """Deals so many labels to each device, as in FedBCD's experiments; the holders of a label share its rows."""
    classes = np.unique(y)
    if not 0 < labels <= len(classes) or devices * labels < len(classes):
        raise UsageError(f"{devices} devices of {labels} labels each: there are {len(classes)} labels to be held")
    random = np.random.default_rng([seed, 3])
    order = random.permutation(classes)
    held = [{int(order[(d * labels + k) % len(classes)]) for k in range(labels)} for d in range(devices)]
    random.shuffle(held)
    parts: list[list[int]] = [[] for _ in range(devices)]
    for c, rows in shuffle_by_label(y, seed).items():
        owners = [d for d in range(devices) if c in held[d]]
        for d, part in zip(owners, np.array_split(np.array(rows), len(owners)), strict=True):
            parts[d] += part.tolist()
    return [np.sort(np.array(rows, np.int64)) for rows in parts]


def deal_group(rows: Rows, devices: int) -> list[Rows]:
    """Deals the rows of a group out to its devices like cards."""
    if not 0 < devices <= len(rows):
        raise UsageError(f"{devices} devices for {len(rows)} samples: each has at least one")
    return [rows[d::devices] for d in range(devices)]


# By rule --------------------------------------------------------------------------------------------------------
RULES = (
    "iid, classes=K (labels of a device), dirichlet=A (each label's shares), mixes=A (each device's shares of labels), "
    "mixed (the data set's own mix of a hospital)"
)


def deal_rows(y: Labels, rule: str, hospitals: int, devices: int, majority: float, seed: int = 0) -> list[list[Rows]]:
    """Deals training samples out to all devices by a rule.

    Args:
        y: their labels.
        rule: one of RULES.
        devices: of each hospital.
        majority: for `mixed`.

    Returns:
        hospital -> device -> rows.

    Raises:
        UsageError: there is no such rule, or it cannot be kept with so many devices.
    """
    name, _, value = rule.partition("=")
    if min(hospitals, devices) < 1 or hospitals * devices > len(y):
        raise UsageError(f"{hospitals} hospitals of {devices} devices each for {len(y)} samples: each has at least one")
    if rule == "mixed":
        return [deal_group(rows, devices) for rows in deal_mixed(y, hospitals, majority, seed)]
    if rule == "iid":
        order = np.random.default_rng([seed, 4]).permutation(len(y))
        parts = [np.sort(rows) for rows in np.array_split(order, hospitals * devices)]
    elif name == "classes":
        parts = deal_labels(y, hospitals * devices, int(parse_number(rule, value)), seed)
    elif name == "dirichlet":
        parts = deal_dirichlet(y, hospitals * devices, parse_number(rule, value), seed)
    elif name == "mixes":
        parts = deal_mixes(y, hospitals * devices, parse_number(rule, value), seed)
    else:
        raise UsageError(f"deal = {rule!r}: one of {RULES}")
    if empty := sum(not len(part) for part in parts):
        raise UsageError(f"deal = {rule!r}: {empty} of {len(parts)} devices would have no sample")
    return [parts[h * devices : (h + 1) * devices] for h in range(hospitals)]


def parse_number(rule: str, value: str) -> float:
    """Reads the number of a rule; a whole one for `classes`.

    Raises:
        UsageError: it is no number, or not above 0.
    """
    try:
        number = float(int(value)) if rule.startswith("classes") else float(value)
    except ValueError as error:
        raise UsageError(f"deal = {rule!r}: one of {RULES}") from error
    if not 0 < number < float("inf"):
        raise UsageError(f"deal = {rule!r}: a number above 0")
    return number


def deal_dirichlet(y: Labels, devices: int, alpha: float, seed: int = 0) -> list[Rows]:
    """Divides each label's samples by a draw of Dir(alpha): the smaller alpha, the fewer devices hold a label.

    T.-M. H. Hsu, H. Qi, M. Brown, 2019. A device without any sample is given one by the one that has most.
    """
    random = np.random.default_rng([seed, 6])
    parts: list[list[int]] = [[] for _ in range(devices)]
    for rows in shuffle_by_label(y, seed).values():
        ends = np.round(np.cumsum(random.dirichlet(np.full(devices, alpha))) * len(rows)).astype(int)
        for part, taken in zip(parts, np.split(np.array(rows), ends[:-1]), strict=True):
            part += taken.tolist()
    for part in parts:
        if not part:
            part.append(max(parts, key=len).pop())
    return [np.sort(np.array(rows, np.int64)) for rows in parts]


def deal_mixes(y: Labels, devices: int, alpha: float, seed: int = 0) -> list[Rows]:
    """Deals equal shares whose label mixes are draws of Dir(alpha), one for each device, as in FedAL's experiments.

    Devices take one sample each in turns. Where a label has run out, the others keep their proportions. What does not
    divide is left over.
    """
    random, stock = np.random.default_rng([seed, 11]), shuffle_by_label(y, seed)
    labels = list(stock)
    shares = random.dirichlet(np.full(len(labels), alpha), size=devices)
    parts: list[list[int]] = [[] for _ in range(devices)]
    for draw in random.random((len(y) // devices, devices)):
        for part, share, u in zip(parts, shares, draw, strict=True):
            left = np.array([len(stock[c]) > 0 for c in labels])
            weight = np.cumsum(np.maximum(share, np.finfo(float).tiny) * left)
            part.append(stock[labels[int(np.searchsorted(weight, u * weight[-1], side="right"))]].pop())
    return [np.sort(np.array(rows, np.int64)) for rows in parts]


def match_tests(y: Labels, test: Labels, parts: list[Rows], seed: int = 0) -> list[Rows]:
    """Deals out what each device is judged on: test samples of its own labels, as often as among its training samples.

    Args:
        y: labels of the training samples. test: labels of the test samples. parts: the devices' training rows.

    Returns:
        Rows of the test samples; no two devices have one in common.
    """
    counts = {int(c): [int((y[rows] == c).sum()) for rows in parts] for c in np.unique(y)}
    found: list[list[int]] = [[] for _ in parts]
    for c, rows in shuffle_by_label(test, seed).items():
        held = np.cumsum(counts.get(c, [0] * len(parts)))
        if held[-1]:
            ends = np.round(held * (len(rows) / held[-1])).astype(int)
            for mine, taken in zip(found, np.split(np.array(rows), ends[:-1]), strict=True):
                mine += taken.tolist()
    return [np.sort(np.array(rows, np.int64)) for rows in found]


def draw_some(rows: Rows, count: int, *seed: int) -> Rows:
    """Draws at most so many of the rows; 0: all."""
    if not 0 < count < len(rows):
        return rows
    return np.sort(np.random.default_rng([*seed, 7]).permutation(rows)[:count])
