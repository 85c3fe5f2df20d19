"""What a FedSLR node remembers of its uploads, and the check that its parent remembers the same."""

from __future__ import annotations

from dataclasses import dataclass, replace

from edge_sdk.algebra import lowrank
from edge_sdk.algebra.vectors import Vector
from edge_sdk.contract.method import NodeEnv
from edge_sdk.methods.fedslr.messages import FedslrModel
from edge_sdk.methods.shared.aggregation.gather import Sum


@dataclass(frozen=True)
class Past:
    """What a node remembers of its uploads in an era.

    Attributes:
        era: which.
        round: of its last upload, or -1.
        counted: the round of the last one of which it knows that it entered w, or -1.
    """

    era: int = 0
    round: int = -1
    counted: int = -1


def recall(past: Past, me: str, m: FedslrModel) -> Past | None:
    """What this node remembers now that it has been told what was counted; None: something else than it is told."""
    past, told = past if past.era == m.era else Past(m.era), m.counted.get(me, -1)
    return replace(past, counted=told) if told in (past.round, past.counted) else None


def movement(env: NodeEnv, m: FedslrModel, upload: Sum) -> tuple[Vector, Vector]:
    """A `Movement`: by which -eta_g gamma_i (n,) moves, by eq. (5), and what of the model does: the same."""
    moved: Vector = upload.total - upload.count * lowrank.unpack(env.layout, m.model)
    return moved, moved
