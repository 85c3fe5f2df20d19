"""Sums of gamma_i x_i over devices, of which those not heard yet count with the common start."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from edge_sdk.algebra.vectors import Vector
from edge_sdk.errors import PeerError
from edge_sdk.methods.fedbcd.settings import Env, OfflineSettings, Settings
from edge_sdk.methods.shared import gather
from edge_sdk.methods.shared.gather import Sum, Tally

ROUNDING = 1e-4  # of a sum of thousands of float32


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


def check_bound(s: Settings, sender: str, m: Sum) -> None:
    """Every x_i lies in X, so a sum of gamma_i x_i with weight G lies in G X.

    Raises:
        PeerError: it does not, up to rounding.
    """
    if s.feasible == "free":
        return
    length = float(np.abs(m.total).max(initial=0.0) if s.feasible == "box" else np.linalg.norm(m.total))
    limit = m.weight * s.bound
    if not length <= limit * (1 + ROUNDING):
        raise PeerError(
            f"{sender} sent gamma_i x_i of size {length:.6g}; within the {s.feasible} of {s.bound} it is at most "
            f"{limit:.6g}"
        )
