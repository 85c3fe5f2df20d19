"""MNIST for fedbcd.py: 10 hospitals of 10 devices, each of which holds images of so many labels only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from edge_sdk.replay import datasets
from edge_sdk.replay.datasets.partition import deal_rows, draw_some

HOSPITALS, DEVICES, TESTS = 10, 10, 1000
VALIDATION = 0.2


@dataclass(frozen=True)
class Data:
    """The images of all devices.

    Attributes:
        train, validation: device -> (x, y).
        x, y: test images and their labels.
        labels: device -> the labels that it holds.
    """

    train: Mapping[str, tuple[Any, Any]]
    validation: Mapping[str, tuple[Any, Any]]
    x: Any
    y: Any
    labels: Mapping[str, Any]


TREE = {f"h{h}": tuple(f"h{h}-{d}" for d in range(DEVICES)) for h in range(HOSPITALS)}
NAMES = [d for devices in TREE.values() for d in devices]


@cache
def images_of(path: Path) -> datasets.Table:
    return datasets.load(f"mnist:{path}")


def dealt(path: Path, diversity: int, samples: int, seed: int) -> Data:
    table = images_of(path)
    train, test = datasets.hold_out(table)
    shares = deal_rows(table.y[train], f"classes={diversity}", HOSPITALS, DEVICES, 0.0, seed)
    flat = [train[draw_some(rows, samples, seed, i)] for i, rows in enumerate(r for d in shares for r in d)]
    tests = draw_some(test, TESTS, seed)
    parts = {d: np.random.default_rng([seed, 8]).permutation(rows) for d, rows in zip(NAMES, flat, strict=True)}
    cut = round(VALIDATION * samples)

    def images(rows: Any) -> tuple[Any, Any]:
        return table.x[rows].reshape(len(rows), -1), table.y[rows]

    labels = {d: np.unique(table.y[rows]) for d, rows in parts.items()}
    own = {d: images(rows[cut:]) for d, rows in parts.items()}
    return Data(own, {d: images(rows[:cut]) for d, rows in parts.items()}, *images(tests), labels)
