"""The message of FedBCD to devices. Between hospitals and aggregator: shared/consensus/consensus.py; uploads are
`gather.Sum`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from edge_sdk.algebra.lowrank import Packed
from edge_sdk.algebra.vectors import Layout


@dataclass(frozen=True)
class FedbcdModel:
    """Down, to devices: z_n and the round that it belongs to.

    Attributes:
        model: z_n.
        round: its number, which the draws of steps and batches depend on.
        counted: with selection = "fastest": receiver -> the round in which its answer was last among the first ones.
    """

    written_as: ClassVar[str] = "Global"

    model: Packed
    round: int
    counted: Mapping[str, int] = field(default_factory=dict)

    def check(self, layout: Layout) -> None:
        if self.round < 0:
            raise ValueError(f"round {self.round}, it is 0 or more")
