"""Sums of AugFL's uploads, and how the half that an upload leaves out is computed from the other half.

The aggregator's step needs u_i = y_i + rho_i theta_i, its stopping rule needs y_i. As theta_i = theta + (y_i - y_i^-) /
rho_i, where y_i^- is the dual before, one of them gives the other:

    u_i = rho_i theta + 2 y_i - y_i^-        y_i = (u_i - rho_i theta + y_i^-) / 2

The same holds for sums, if all devices in them have answered the same question. So a device sends (theta_i, y_i), u_i
or y_i; its hospital has both, and sends both, or the one where the aggregator can do without the other. Where y_i^- may
be another above than below, as when a disk was lost on either side, both travel.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from edge_sdk.algebra.arrays import Theta
from edge_sdk.algebra.vectors import Vector
from edge_sdk.contract.traffic import VectorTraffic
from edge_sdk.methods.augfl.messages import AugflModel, Sums, Upload
from edge_sdk.methods.shared.aggregation import exact, gather
from edge_sdk.methods.shared.aggregation.gather import Sum


@dataclass(frozen=True)
class Contribution:
    """The latest of one device, or of one hospital.

    Attributes:
        u, y: see above; no y where there are no duals.
        weight: rho_i, or their sum.
        samples: behind it.
        round: that it was counted in.
    """

    written_as: ClassVar[str] = "Held"

    u: Theta
    y: Theta | None
    weight: float
    samples: int
    round: int


def infer_u(y: Vector, before: Vector, theta: Vector, rho: float) -> Vector:
    return rho * theta + 2 * y - before


def infer_y(u: Vector, before: Vector, theta: Vector, rho: float) -> Vector:
    return (u - rho * theta + before) / 2


def add_contributions(held: Mapping[str, Contribution], like: Vector) -> tuple[Vector, Vector | None, float]:
    """Sums of u, of y (None where there are no duals) and of weights; exact, so independent of who came when."""
    u, weight = add_vectors({n: Sum(h.u, h.weight) for n, h in held.items()}, like)
    duals = {n: Sum(h.y, h.weight) for n, h in held.items() if h.y is not None}
    return u, add_vectors(duals, like)[0] if len(duals) == len(held) else None, weight


def add_vectors(parts: Mapping[str, Sum], like: Vector) -> tuple[Vector, float]:
    tally = None
    for name in sorted(parts):
        tally = gather.add(tally, name, parts[name])
    if tally is None:
        return np.zeros_like(like), 0.0
    total = gather.total(tally, like)
    return total.total, total.weight


def traffic(settings: Any) -> VectorTraffic:
    """Vectors as integers. Hospitals open them: they keep each device's latest."""
    down: dict[type, tuple[str, ...]] = {AugflModel: ("model",)}
    up: dict[type, tuple[str, ...]] = {Upload: ("theta", "u", "y"), Sums: ("u", "y")}
    return VectorTraffic(down=down, up=up, anchor=near_model, adds=False)


def near_model(env: Any, who: str, upload: Any, path: str, theta: Vector) -> Vector | None:
    """What lies near a vector of an upload: theta times the weight that it counts with, and zero for a dual."""
    if path == "y":
        return None
    if path == "theta":
        return theta
    rho: float = upload.weight if hasattr(upload, "weight") else env.settings.penalty_of(who)
    return rho * theta


def add_scores(parts: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Name -> exact sum over those that have it."""
    found: dict[str, exact.Exact] = {}
    for scores in parts.values():
        found = gather.plus_scores(found, gather.split_scores(scores))
    return {name: exact.bounded(exact.number(value)) for name, value in found.items()}
