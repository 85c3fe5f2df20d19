"""Messages of a method with companions beside it: one of each of the two methods in one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from edge_sdk.algebra.arrays import Rank, Values
from edge_sdk.algebra.lowrank import Packed
from edge_sdk.methods.shared.aggregation.guard import Measurable, Measure


@dataclass(frozen=True)
class Both:
    """Between hospital and aggregator, either way: a message of each method; None: of this one there is none."""

    shared: Any = None
    outputs: Any = None

    def measure(self) -> Measure | None:
        """Measures of the upload to the shared model or, where there is none, of the outputs."""
        part = self.outputs if self.shared is None else self.shared
        return part.measure() if isinstance(part, Measurable) else None

    @property
    def voids_round(self) -> bool:
        return bool(getattr(self.shared, "voids_round", False))


@dataclass(frozen=True)
class SharedModel:
    """The global model for evaluation, without a claim about the receiver's layout: companions have another one."""

    round: int
    ranks: tuple[Rank, ...]
    values: Values

    @property
    def model(self) -> Packed:
        return Packed(self.ranks, self.values)
