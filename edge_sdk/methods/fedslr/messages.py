"""Messages of FedSLR: the model of a round, and the answer of a node that has lost its memory (uploads: gather.py)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from edge_sdk.algebra.lowrank import Packed
from edge_sdk.algebra.vectors import Layout


@dataclass(frozen=True)
class FedslrModel:
    """Down: the model of a round.

    Attributes:
        model: w_t; factors where they are smaller.
        round: t, global.
        pick: how many devices of the receiving hospital take part.
        counted: receiver -> the last round of this era in which its upload entered w.
        era: how often gamma has begun at zero again.
    """

    written_as: ClassVar[str] = "Global"

    model: Packed
    round: int
    pick: int
    counted: Mapping[str, int]
    era: int = 0

    def check(self, layout: Layout) -> None:
        if min(self.round, self.pick, self.era) < 0:
            raise ValueError(f"round {self.round}, {self.pick} devices, era {self.era}: all are 0 or more")


@dataclass(frozen=True)
class Forgotten:
    """Up, in place of an upload: this node has lost its memory, so the aggregator counts another gamma_i for it. It is
    what mirror.py calls `Unremembered`."""

    voids_round: ClassVar[bool] = True
