"""Who holds what in benchmarks/augfl.py: devices with two random classes each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from edge_sdk.errors import UsageError
from edge_sdk.replay.datasets.table import Table

DEVICES, TRAINING = 50, 40


@dataclass(frozen=True)
class Data:
    """The samples of all devices.

    Attributes:
        x, y: device -> its samples, and their classes.
        others, truth: device -> test samples of its classes, and their classes; of those devices that do not train.
    """

    x: Mapping[str, np.ndarray]
    y: Mapping[str, np.ndarray]
    others: Mapping[str, np.ndarray]
    truth: Mapping[str, np.ndarray]


def dealt(table: Table, rows: np.ndarray, test: np.ndarray, shape: tuple[int, ...], least: int, seed: int) -> Data:
    """Two random classes for each device, of D_i in [M, 2 M] samples as evenly as it goes; nobody shares a sample.

    Classes are drawn among those that have as many samples left as the device takes of one.

    Raises:
        UsageError: fewer than two classes have.
    """
    random, y = np.random.default_rng([seed, 50]), table.y[rows]
    stock = {c: random.permutation(rows[y == c]).tolist() for c in range(len(table.classes))}
    x, labels, others, truth = {}, {}, {}, {}
    for i in range(DEVICES):
        size = int(random.integers(least, 2 * least + 1))
        pair = two_classes(random, {c: len(left) for c, left in stock.items()}, size, i)
        mine = [stock[int(pair[k % 2])].pop() for k in range(size)]
        x[f"d{i:02d}"] = table.x[mine].reshape(size, *shape)
        labels[f"d{i:02d}"] = table.y[mine]
        if i >= TRAINING:
            alike = test[np.isin(table.y[test], pair)]
            others[f"d{i:02d}"], truth[f"d{i:02d}"] = table.x[alike].reshape(-1, *shape), table.y[alike]
    return Data(x, labels, others, truth)


def two_classes(random: np.random.Generator, left: Mapping[int, int], size: int, device: int) -> np.ndarray:
    """Two classes that can give half of a device's samples each. `left`: class -> its samples that nobody has yet."""
    each = -(-size // 2)
    enough = [c for c, n in left.items() if n >= each]
    if len(enough) < 2:
        raise UsageError(
            f"device {device + 1} of {DEVICES} takes {each} samples of each of two classes, and there are {left} left "
            f"(class: samples): take a smaller --samples, or a file with more of each class"
        )
    return random.choice(enough, 2, replace=False)
