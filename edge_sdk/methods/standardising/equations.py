"""Where statistics lie in theta, how they follow from sums, and functions of theta with them: pure functions.

m = sum of means / devices,  s = sqrt(sum of means of squares / devices - m^2)                        statistics_of
theta <- theta with m and log s in the slots of the layer `standardise`, at each use                  placed, fitted
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from edge_sdk.algebra.vectors import Layout, Slot, Vector
from edge_sdk.contract.method import NodeEnv
from edge_sdk.errors import PeerError, UsageError
from edge_sdk.methods.shared.aggregation.exact import HIGH, LOW, Integers, split
from edge_sdk.methods.standardising.messages import FeatureSums

LAYER = "standardise"
"""Name of the layer that standardises; its two parameters are `mean` and `log_scale`, one number for each feature."""
SMALLEST, ROUNDING = 1e-9, 1e-5
"""Least scale, of a feature that is the same everywhere; and the same as a share of the feature's mean, which is what
remains of a variance after rounding."""
LIMIT, UNIT = 2.0**24, 2.0**-16
"""Largest mean of a feature that is told, and what a mean of squares is multiplied with to fit the same integers."""


def slots(layout: Layout) -> tuple[Slot, Slot] | None:
    """The slots of the means and of the logarithms of scales; None: the model standardises nothing."""
    found = {s.name.rpartition(".")[2]: s for s in layout.slots if LAYER in s.name.split(".")[:-1]}
    return (found["mean"], found["log_scale"]) if found.keys() >= {"mean", "log_scale"} else None


def placed(layout: Layout, theta: Vector, statistics: Vector) -> Vector:
    """theta with the statistics in their slots; theta itself where there are none."""
    where = slots(layout)
    if where is None or not statistics.size:
        return theta
    found = theta.copy()
    for slot, values in zip(where, np.split(statistics, 2), strict=True):
        found[slot.span] = values
    return found


def statistics_of(layout: Layout, high: Integers, low: Integers, devices: int) -> npt.NDArray[np.float32]:
    """Means and logarithms of scales of sums over devices; of none: zeros."""
    where = slots(layout)
    if where is None or not devices:
        return np.zeros(2 * where[0].size if where else 0, np.float32)
    mean, square = moments(high, low, devices)
    scale = np.sqrt(np.maximum(square - mean**2, 0))
    least = np.maximum(SMALLEST, ROUNDING * np.abs(mean))
    return np.concatenate([mean, np.log(np.maximum(scale, least))]).astype(np.float32)


def moments(high: Integers, low: Integers, devices: int) -> npt.NDArray[np.float64]:
    """Means (F,) and means of squares (F,) over so many devices, of their sums."""
    mean, square = np.split((high * 2.0**-HIGH + low * 2.0**-LOW) / devices, 2)
    return np.stack([mean, square / UNIT])


def are_moments(high: Integers, low: Integers, devices: int) -> bool:
    """True if some samples have such means: no mean of squares is below the square of the mean, but by rounding."""
    mean, square = moments(high, low, devices)
    return bool((square >= mean**2 * (1 - ROUNDING) - SMALLEST).all())


def nothing(layout: Layout) -> FeatureSums:
    """The sum over no devices; as many numbers as others have, as sums may be secret."""
    where = slots(layout)
    zero = np.zeros(2 * where[0].size if where else 0, np.int64)
    return FeatureSums(zero, zero, 0)


def checked(layout: Layout, values: Vector) -> Vector:
    """The statistics, if they are of as many features as the model standardises. Raises PeerError."""
    where = slots(layout)
    if values.size != (2 * where[0].size if where else 0) or not np.isfinite(values).all():
        raise PeerError(f"statistics of {values.size // 2} features: expected finite numbers of those of the model")
    return values


def own_sums(env: NodeEnv) -> FeatureSums:
    """A device's own means. Raises UsageError if they are of another number than the model standardises."""
    where = slots(env.layout)
    if where is None or env.feature_means is None:
        return nothing(env.layout)
    means, squares = env.feature_means()
    if not len(means):  # it has no sample
        return nothing(env.layout)
    if len(means) != where[0].size:
        raise UsageError(f"device {env.me} has {len(means)} features, its model standardises {where[0].size}")
    if not (np.isfinite(means).all() and np.isfinite(squares).all()):
        raise UsageError(f"device {env.me}: means of its features that are no finite numbers")
    means = np.clip(means, -LIMIT, LIMIT)
    squares = np.clip(squares, means**2, LIMIT**2)
    return FeatureSums(*split(np.concatenate([means, UNIT * squares])), 1)


def by_itself(env: Any) -> tuple[Any, Vector]:
    """The env of a device that standardises with statistics of its own samples only, and these: for training alone."""
    sums = own_sums(env)
    statistics = statistics_of(env.layout, sums.high, sums.low, sums.devices)
    return fitted(env, statistics), statistics


def fitted(env: Any, statistics: Vector) -> Any:
    """A device's env whose functions of theta write the statistics into it first, and leave them alone in gradients."""
    where = slots(env.layout)
    if where is None or not statistics.size:
        return env
    changed: dict[str, Any] = {}

    def at(theta: Vector) -> Vector:
        return placed(env.layout, theta, statistics)

    def slope(f: Callable[..., tuple[float, Vector]]) -> Callable[..., tuple[float, Vector]]:
        def gradient(theta: Vector, *rest: Any) -> tuple[float, Vector]:
            loss, found = f(at(theta), *rest)
            for slot in where:
                found[slot.span] = 0
            return loss, found

        return gradient

    def of_theta(f: Callable[[Vector], Any]) -> Callable[[Vector], Any]:
        return lambda theta: f(at(theta))

    wraps: Mapping[str, Callable[[Any], Any]] = {
        "grad_fn": slope,
        "augmented": slope,
        **dict.fromkeys(("score", "judge", "test"), of_theta),
        **dict.fromkeys(("validation", "held_out"), lambda s: replace(s, logits=of_theta(s.logits))),
        "fit": lambda f: lambda theta, asked: f(at(theta), asked),
    }

    def wrapped(given: Mapping[str, Any]) -> dict[str, Any]:
        return {k: wraps[k](v) if k in wraps and v is not None else v for k, v in given.items()}

    own = env.own
    if own is not None:
        teach = own.taught
        changed["own"] = replace(
            own, logits=of_theta(own.logits), taught=lambda rows, labels: wrapped(teach(rows, labels))
        )
    swap = env.swapped
    if swap is not None:
        changed["swapped"] = lambda env: fitted(swap(env), statistics)
    names = {f.name for f in fields(env)}
    return replace(env, **changed, **wrapped({k: getattr(env, k) for k in wraps if k in names}))
