"""Messages by which statistics of the fleet are added up, and told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from edge_sdk.algebra.arrays import Values
from edge_sdk.algebra.vectors import Layout
from edge_sdk.methods.shared.aggregation.exact import HIGH, LARGEST, LOW, Integers
from edge_sdk.methods.shared.membership.riders import Rider


@dataclass(frozen=True)
class AskFeatures:
    """Down: say what the means of your features are."""


@dataclass(frozen=True)
class FeatureSums:
    """Up: sums over devices of the means (F,), then the means of squares (F,), of their features.

    Attributes:
        high, low: (2 F,), multiples of 2**-20 and of 2**-70, as of `exact.split`.
        devices: how many devices these are.
    """

    high: Integers
    low: Integers
    devices: int = 0

    def check(self, layout: Layout) -> None:
        most, left = (self.devices + 1) * LARGEST * 2.0**HIGH, (self.devices + 1) * 2.0 ** (LOW - HIGH)
        fits = all((np.abs(part.astype(float)) <= limit).all() for part, limit in ((self.high, most), (self.low, left)))
        if self.devices < 0 or self.high.shape != self.low.shape or not fits:
            raise ValueError(f"means of {self.devices} devices: of each at most {LARGEST:.0f}, in pairs of numbers")


@dataclass(frozen=True)
class WithStatistics(Rider):
    """Down: a question, and what features are standardised by from here on.

    Attributes:
        values: means of the features (F,), then logarithms of their scales (F,).
    """

    message: Any
    values: Values


@dataclass(frozen=True)
class NeedStatistics:
    """Up, in place of an answer: this device has lost its disk, and does not know the statistics."""


@dataclass(frozen=True)
class Standardised:
    """Down: a model, as the method shows it, and the statistics that it standardises with; empty: none yet."""

    shown: Any
    statistics: Values
