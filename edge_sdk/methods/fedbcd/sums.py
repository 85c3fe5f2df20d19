"""Sums of gamma_i x_i over devices, of which those not heard yet count with the common start."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from edge_sdk.algebra.vectors import Vector, length
from edge_sdk.errors import PeerError
from edge_sdk.methods.fedbcd.equations import project
from edge_sdk.methods.fedbcd.settings import Env, OfflineSettings
from edge_sdk.methods.shared.aggregation import gather
from edge_sdk.methods.shared.aggregation.gather import Sum, Tally
from edge_sdk.methods.shared.consensus.consensus import Ready

ROUNDING = 1e-5  # of float32: a sum of gamma_i x_i is divided by the sum of gamma_i


def keeps_latest(env: Env) -> bool:
    """FedBCD counts silent devices with their last answer; FedBCD-I leaves them out."""
    return not isinstance(env.settings, OfflineSettings)


def add_all(tally: Tally | None, parts: Mapping[str, Sum]) -> Tally | None:
    for name in sorted(parts):
        tally = gather.add(tally, name, parts[name])
    return tally


def add_unheard(heard: Sum | None, weight: float, at: Vector, count: int) -> Sum | None:
    """The sum over `count` devices, of which those not heard, with that weight, have the model `at`."""
    if weight <= 0:
        return heard
    rest = weight * at
    return Sum(rest, weight, count) if heard is None else Sum(heard.total + rest, heard.weight + weight, count)


def check_feasible(env: Env, sender: str, x: Vector) -> None:
    """Raises PeerError if x is outside the feasible set X, in which each x_i ends, and so each mean of several."""
    found, limit = distance(env.settings.feasible, x), env.settings.bound * (1 + ROUNDING)
    if found > limit:
        kind = env.settings.feasible
        raise PeerError(f"{sender} sent a model that reaches {found:.3g}, the {kind} ends at {env.settings.bound:g}")


def feasible(env: Env, who: str, upload: Sum | Ready) -> Sum | Ready:
    """The upload with a mean in X again: each x_i was, and rounding may lead out of it."""
    mean = upload.contribution()
    return upload if mean is None else upload.contributing(project(env.settings, mean))


def distance(feasible: str, x: Vector) -> float:
    """Length of x in the norm of the set: the largest parameter for a box, the Euclidean norm for a ball."""
    if feasible == "box":
        return float(np.abs(x).max(initial=0.0))
    return length(x) if feasible == "ball" else 0.0
