"""Sums of gamma_i x_i over devices, of which those not heard yet count with the common start."""

from __future__ import annotations

from collections.abc import Mapping

from edge_sdk.methods.fedbcd.equations import common_start
from edge_sdk.methods.fedbcd.settings import Env, OfflineSettings
from edge_sdk.methods.shared import gather
from edge_sdk.methods.shared.gather import Sum, Tally


def keeps_latest(env: Env) -> bool:
    return not isinstance(env.settings, OfflineSettings)


def add_all(tally: Tally | None, parts: Mapping[str, Sum]) -> Tally | None:
    for name in sorted(parts):
        tally = gather.add(tally, name, parts[name])
    return tally


def add_unheard(env: Env, heard: Sum | None, weight: float, count: int) -> Sum | None:
    """A sum over `count` devices, of which some, with that weight, stand where all began."""
    if weight <= 0:
        return heard
    start = weight * common_start(env)
    return Sum(start, weight, count) if heard is None else Sum(heard.total + start, heard.weight + weight, count)
