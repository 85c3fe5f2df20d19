"""What a FedSLR node remembers of its uploads, and by what an upload moves gamma.

gamma_i is a vector of which device and aggregator hold two ends: the head of shared/membership/mirror.py says how these
stay together. FedSLR has roles of its own for that, as it sends whole models and adds them up as `Sum`s, and its states
and messages are written under names that were there before mirror.py: `Past` and `Forgotten`.
"""

from __future__ import annotations

from dataclasses import dataclass

from edge_sdk.algebra import lowrank
from edge_sdk.algebra.running_statistics import without_statistics
from edge_sdk.algebra.vectors import Vector
from edge_sdk.contract.method import NodeEnv
from edge_sdk.methods.fedslr.messages import FedslrModel
from edge_sdk.methods.shared.aggregation.gather import Sum
from edge_sdk.methods.shared.membership.mirror import Account


@dataclass(frozen=True)
class Past(Account):
    """The account of a FedSLR node: an upload is counted if it entered w."""


def movement(env: NodeEnv, m: FedslrModel, upload: Sum) -> tuple[Vector, Vector]:
    """A `Movement`: by which -eta_g gamma_i (n,) moves, by eq. (5), and what of the model does."""
    moved: Vector = upload.total - upload.count * lowrank.unpack(env.layout, m.model)
    return without_statistics(env.layout, moved.copy()), moved
