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
    """A data set: n labelled samples.

    Attributes:
        name: of the data set.
        x: float32 (n, ...), the whole of each sample.
        y: int64 (n,), indices into `classes`.
        classes: names.
        source: int64 (n,), the recording that a sample was cut from; `hold_out` keeps recordings whole.
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
    """Samples whose features are divided: row k of each array belongs to the same sample.

    Attributes:
        x1: float32 (n, ...), what the hospital holds.
        x2: float32 (n, ...), what the device holds.
        y: int64 (n,), indices into `classes`.
    """

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
    """Chooses rows to train on and rows to test on, the same share of each class.

    Args:
        share: of each class's recordings, or samples, that is held out.
        by: "source": whole recordings, so that no neighbour of a test sample is trained on; "sample": single samples,
            as most papers do it. Where the data set has a split of its own, that one is taken.

    Raises:
        UsageError: the share or `by` is none.
    """
    if table.test is not None:
        return np.flatnonzero(~table.test), np.flatnonzero(table.test)
    if by not in ("source", "sample") or not 0 < share < 1:
        raise UsageError(f"held out: a share of {share} by {by!r}; it is between 0 and 1, by source or by sample")
    unit = table.source if by == "source" else np.arange(len(table))
    return choose_units(table, np.arange(len(table)), unit, share, np.random.default_rng([seed, 1]))


def hold_out_of(table: Table, rows: Rows, share: float, seed: int = 0) -> tuple[Rows, Rows]:
    """Divides some rows again, by whole recordings: rows that remain, and the same share of each class."""
    return choose_units(table, rows, table.source, share, np.random.default_rng([seed, 12]))


def choose_units(
    table: Table, rows: Rows, unit: Labels, share: float, random: np.random.Generator
) -> tuple[Rows, Rows]:
    """Rows that remain, and those of a share of each class's units, which are drawn."""
    y, unit = table.y[rows], unit[rows]
    test = np.zeros(len(rows), bool)
    for c in range(len(table.classes)):
        units = np.unique(unit[y == c])
        chosen = random.permutation(units)[: round(share * len(units))]
        test |= np.isin(unit, chosen) & (y == c)
    return rows[~test], rows[test]


def reserve_rows(table: Table, count: int) -> Rows:
    """Rows of the first `count` training samples, which an aggregator may have for itself; no device is given them.

    Raises:
        UsageError: none would remain.
    """
    rows = np.arange(len(table)) if table.test is None else np.flatnonzero(~table.test)
    if not 0 <= count < len(rows):
        raise UsageError(f"{count} samples for the aggregator: {table.name} has {len(rows)}, and some are for devices")
    return rows[:count]


def standardise(table: Table, train: Rows, together: bool = False) -> Table:
    """Scales to mean 0 and deviation 1 over the training rows: each feature, or all `together` (signals, images)."""
    axes = None if together else 0
    mean, spread = table.x[train].mean(axes, dtype=np.float64), table.x[train].std(axes, dtype=np.float64)
    x = (table.x - mean) / np.where(spread > 0, spread, 1)
    return replace(table, x=x.astype(np.float32))
