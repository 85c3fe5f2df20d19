"""Paired differences of mean errors, and what else the scores of values and of windows share. Below 0 is better."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from edge_sdk.algebra.metrics.regression import MEAN
from edge_sdk.replay.metrics.scores import ALONE, LOCAL, NAMES, POOLED
from edge_sdk.replay.metrics.statistics import mean_interval

Device = Mapping[str, Any]
Sums = Mapping[str, Mapping[str, float]]
"""Model -> sums of errors on a device's test samples, and "samples"."""
ErrorOf = Callable[[Device, str], float | None]
"""(device, model) -> its mean error; None: the device has none."""
OWN = ("global", "personalised", "unseen")
"""Models of the run, which are compared with others."""


def test_sums(d: Device, more: Mapping[str, Sums]) -> dict[str, Mapping[str, float]]:
    """Model -> its sums on a device's test samples. `more`: device -> sums of further models."""
    written = d["sums"].get("test", {})
    return {n if n == LOCAL else NAMES.get(n, n): s for n, s in written.items()} | dict(more.get(d["device"], {}))


def order(models: Mapping[str, Any], neighbours: Sequence[str]) -> dict[str, Any]:
    """Models in the order of tables. `neighbours`: names of those without gradients; what is unknown comes late."""
    first = (MEAN, LOCAL, *neighbours, ALONE, "global", "personalised")
    last = [POOLED] if POOLED in models else []
    names = [*(n for n in first if n in models), *sorted({*models} - {*first, *last}), *last]
    return {n: models[n] for n in names}


def errors_of(devices: Iterable[Device], model: str, error_of: ErrorOf) -> dict[str, list[float]]:
    """Device that trained -> mean errors of a model, one for each seed in which it has one."""
    every: dict[str, list[float]] = {}
    for d in devices:
        if not d["newcomer"] and (error := error_of(d, model)) is not None:
            every.setdefault(d["device"], []).append(error)
    return every


def difference(own: Mapping[str, float], other: Mapping[str, float], key: str) -> dict[str, float]:
    """Paired difference of mean errors over the devices that have both, with an interval; empty: none has.

    Args:
        key: what the first mean error is called.
    """
    both = [device for device in own if device in other]
    return describe_difference([own[d] for d in both], [other[d] for d in both], key) if both else {}


def describe_difference(errors: Sequence[float], than: Sequence[float], key: str) -> dict[str, float]:
    """Paired difference of mean errors, one for each device, with an interval over devices."""
    own, others = np.asarray(errors, np.float64), np.asarray(than, np.float64)
    low, high = mean_interval(own - others)
    worse = int((own > others).sum())
    means = {key: float(own.mean()), "than": float(others.mean()), "mean": float((own - others).mean())}
    return {**means, "low": low, "high": high, "devices": len(own), "worse": worse}
