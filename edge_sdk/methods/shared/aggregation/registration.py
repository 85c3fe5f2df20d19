"""Registered samples: where uploads are weighted with samples, a child counts with no more than it has registered.

A FedAvg weight is a claim that nobody can check. A claim of 4e9 samples would make a mean out of one device. So a
claim is held against what is known of the child beforehand: what the node's settings say (`Limits`), or what it has
claimed in its first upload. An upload that claims more is not lost: it counts with the registered weight.
In a run whose devices weigh the same ("uniform"), the weight of a device is 1.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from typing import Any, Protocol, Self, runtime_checkable

from edge_sdk.contract.method import NodeEnv
from edge_sdk.methods.shared.aggregation.guard import Guard, measure_of

SAMPLES, UNIFORM = "samples", "uniform"


@runtime_checkable
class Weighted(Protocol):
    """An upload whose weight is a claim."""

    def weighing(self, weight: float) -> Self:
        """The upload with another weight, and in proportion what is weighted with it."""


WEIGHTED: dict[type, bool] = {}
"""Types of messages, and whether they are `Weighted`: to ask each message costs more than all that follows."""


def is_weighted(message: Any) -> bool:
    """True for an upload whose weight is a claim."""
    kind = type(message)
    if kind not in WEIGHTED:
        WEIGHTED[kind] = isinstance(message, Weighted)
    return WEIGHTED[kind]


@dataclass(frozen=True)
class Overclaimed:
    """To the application: a child's upload counts with less weight than it claims."""

    sender: str
    claimed: float
    counted: float

    def to_metrics(self) -> dict[str, Any]:
        return {"kind": "overclaimed", "sender": self.sender, "claimed": self.claimed, "counted": self.counted}

    def to_sentence(self) -> str:
        return (
            f"{self.sender} claims a weight of {self.claimed:g} and counts with {self.counted:g}, as registered; if it "
            f"has more samples by now, say so in limits.samples.{self.sender} of this node's settings file"
        )


def bound_claim(env: NodeEnv, guard: Guard, child: str, message: Any) -> tuple[Any, list[Overclaimed]]:
    """The upload as it counts, and what is to be said of it."""
    claimed, limit = claim_of(env, message), limit_of(env, guard, child, message)
    if claimed is None or claimed <= limit * (1 + 1e-9):
        return message, []
    return message.weighing(limit), [Overclaimed(child, claimed, limit)]


def note_claim(env: NodeEnv, guard: Guard, child: str, message: Any) -> Guard:
    """The guard after an upload that was counted: the first claim of a device stands for later ones."""
    if child in guard.claims or env.sizes.get(child, 1) > 1 or (claimed := claim_of(env, message)) is None:
        return guard
    return replace(guard, claims={**guard.claims, child: claimed})


def claim_of(env: NodeEnv, message: Any) -> float | None:
    """The weight that an upload claims; None: there is none, or it follows from no samples."""
    if getattr(env.settings, "weighting", "") not in (SAMPLES, UNIFORM) or not is_weighted(message):
        return None
    found = measure_of(message)
    return None if found is None else found.weight * getattr(message, "count", 1)


def limit_of(env: NodeEnv, guard: Guard, child: str, message: Any) -> float:
    """The largest weight that an upload may count with."""
    count = getattr(message, "count", 1)
    if env.settings is not None and getattr(env.settings, "weighting", "") == UNIFORM:
        return float(count)
    return min(registered(env, child, count), guard.claims.get(child, inf) if child not in env.limits.samples else inf)


def registered(env: NodeEnv, child: str, count: int = 1) -> float:
    """Most samples that so many devices behind a child count with, as this node's settings say."""
    cap = float(env.limits.most_samples * count) if env.limits.most_samples else inf
    return min(cap, float(env.limits.samples.get(child, inf)))
