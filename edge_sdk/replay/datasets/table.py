"""Labelled samples, how they are held out, and how their features are divided between device and hospital."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from edge_sdk.errors import UsageError

Floats = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64]
Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Table:
    """Attributes:
    name: of the data set.
    x: float32 (n, ...), the whole of each sample.
    y: int64 (n,), indices into `classes`.
    classes: names.
    source: int64 (n,), what a sample was cut from; samples of one source are better not split by `held_out`.
    test: bool (n,), where the data set says itself what is held out.
    truth: float (n,), P(y = 1 | x), where the data are generated.
    """

    name: str
    x: Floats
    y: Labels
    classes: tuple[str, ...]
    source: Labels
    test: npt.NDArray[np.bool_] | None = None
    truth: npt.NDArray[np.float64] | None = None

    def __len__(self) -> int:
        return len(self.y)


@dataclass(frozen=True, eq=False)
class Vertical:
    """Samples of which the features are divided. Attributes: x1 (hospital), x2 (device), y, in matching rows."""

    x1: Floats
    x2: Floats
    y: Labels
    classes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.y)

    def rows(self, rows: Rows) -> Vertical:
        """Some of the samples."""
        return replace(self, x1=self.x1[rows], x2=self.x2[rows], y=self.y[rows])


def hold_out(table: Table, share: float = 0.2, seed: int = 0, by: str = "source") -> tuple[Rows, Rows]:
    """Rows to train on and rows to test on, the same share of each class.

    Args:
        by: "source": whole recordings, so that no neighbour of a test sample is trained on; "sample": as papers do it.
            A split that belongs to the data set goes before both.
    """
    if table.test is not None:
        return np.flatnonzero(~table.test), np.flatnonzero(table.test)
    if by not in ("source", "sample") or not 0 < share < 1:
        raise UsageError(f"held out: a share of {share} by {by!r}; it is between 0 and 1, by source or by sample")
    unit, random = table.source if by == "source" else np.arange(len(table)), np.random.default_rng([seed, 1])
    test = np.zeros(len(table), bool)
    for c in range(len(table.classes)):
        units = np.unique(unit[table.y == c])
        chosen = random.permutation(units)[: round(share * len(units))]
        test |= np.isin(unit, chosen) & (table.y == c)
    return np.flatnonzero(~test), np.flatnonzero(test)


def reserve_rows(table: Table, count: int) -> Rows:
    """The first samples, which are an aggregator's own where it has some; whatever the seed, no device is given them.

    Raises:
        UsageError: none would remain.
    """
    rows = np.arange(len(table)) if table.test is None else np.flatnonzero(~table.test)
    if not 0 <= count < len(rows):
        raise UsageError(f"{count} samples for the aggregator: {table.name} has {len(rows)}, and some are for devices")
    return rows[:count]


def standardise(table: Table, train: Rows, together: bool = False) -> Table:
    """Mean 0 and deviation 1 over the training rows: feature by feature, or all `together` (signals, images)."""
    axes = None if together else 0
    mean, spread = table.x[train].mean(axes, dtype=np.float64), table.x[train].std(axes, dtype=np.float64)
    x = (table.x - mean) / np.where(spread > 0, spread, 1)
    return replace(table, x=x.astype(np.float32))
