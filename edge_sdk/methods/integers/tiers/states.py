"""What nodes remember around the method's own state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

from edge_sdk.algebra.arrays import ANY, Tensor, Values
from edge_sdk.contract.method import NodeEnv
from edge_sdk.contract.traffic import VectorTraffic
from edge_sdk.methods.integers.vectors.ledger import NoiseLedger
from edge_sdk.methods.integers.vectors.reference import Reference
from edge_sdk.methods.integers.vectors.uploads import Scale

Ring = Annotated[npt.NDArray[np.uint32], Tensor((ANY,), "uint32")]


@dataclass(frozen=True)
class Pending:
    """Uploads of a round, added up unopened.

    Attributes:
        there: paths of their vectors.
        terms: how many uploads.
        spread: of the largest of them.
        total: uint32 (k,), the sum of their integers.
    """

    there: tuple[str, ...]
    terms: int
    spread: float
    total: Ring


@dataclass(frozen=True)
class IntegersState:
    """A node's state around the method's own.

    Attributes:
        inner: the method's.
        reference: this node's copy of it.
        left: what rounding has left of this node's last upload.
        scale: of the answers to the question that is on; None: they are no integers.
        opened: how many uploads of the round that is on were opened here.
        pending: hospital: the others.
        behind: hospital: the question that is on could not be read.
        shown: aggregator: the model that the reference follows.
        spreads: aggregator: hospital -> the largest spread of an upload in this round.
        spread: aggregator: by which the next question's scale is chosen; 0: nothing is known yet.
    """

    inner: Any
    reference: Reference
    left: Values
    scale: Scale | None = None
    opened: int = 0
    pending: Pending | None = None
    behind: bool = False
    shown: Values = field(default_factory=lambda: np.zeros(0, np.float32))
    spreads: Mapping[str, float] = field(default_factory=dict)
    spread: float = 0.0


@dataclass(frozen=True)
class NoisyState(IntegersState):
    """An aggregator's state in a run with noise. `ledger`: what its sums have said so far."""

    ledger: NoiseLedger = field(default_factory=NoiseLedger)


@dataclass(frozen=True)
class BuildingState(IntegersState):
    """A device's state where uploads build on each other. `before`: what was left before its last upload."""

    before: Values = field(default_factory=lambda: np.zeros(0, np.float32))


def first_state(kind: type[IntegersState], env: NodeEnv, traffic: VectorTraffic, inner: Any) -> IntegersState:
    first = traffic.first(env)
    nothing = first[:0].copy()
    return kind(inner, Reference(first), nothing, shown=nothing)
