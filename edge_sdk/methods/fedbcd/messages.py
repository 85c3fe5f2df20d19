"""The message of FedBCD to devices. Between hospitals and aggregator: shared/consensus.py; uploads are `gather.Sum`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from edge_sdk.algebra.lowrank import Packed
from edge_sdk.algebra.vectors import Layout


@dataclass(frozen=True)
class FedbcdModel:
    """Down, to devices: z_n and the round that it belongs to."""

    written_as: ClassVar[str] = "Global"

    model: Packed
    round: int

    def check(self, layout: Layout) -> None:
        if self.round < 0:
            raise ValueError(f"round {self.round}, it is 0 or more")
