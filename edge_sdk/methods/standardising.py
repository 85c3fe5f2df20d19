"""Statistics of the fleet around any method: before its first round, means and variances of features are added up.

    aggregator                        hospital                       device
      AskFeatures               ──>     all its devices        ──>    means and means of squares of its own features
      m = sum / devices         <──     adds them up           <──    FeatureSums, fixed-point integers
      s = sqrt(squares / devices - m^2)
      WithStatistics around a question  ──>  around the first one to each device  ──>  from then on standardises so

A model that standardises has two slots for them in theta (`slots`). No step changes them and what they hold does not
count: whatever a method, its integers or its noise make of these entries, a device writes m and log s there whenever it
uses a theta, and so does who shows or keeps one. So they are the same to the bit on all nodes, for the whole run, and a
part of every model that is saved, promoted or rolled out.

Each device counts once, however many windows it has: a week of one wearer does not outweigh a minute of another.

Leaves the device: means and means of squares of each feature over all its training windows, labelled or not, once in a
run; its hospital adds them up. Where a hospital has a single device, the sum is that device's own.
When few answer: the statistics are theirs; nobody: mean 0 and scale 1. A device that comes later is told them before
its first question. One that has lost its disk says so in place of an answer, and takes part again in the next round.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, make_dataclass, replace
from functools import cache
from typing import Any, get_type_hints

import numpy as np
import numpy.typing as npt

from edge_sdk.algebra.arrays import Values
from edge_sdk.algebra.ensemble import Ensemble
from edge_sdk.algebra.vectors import Layout, Slot, Vector
from edge_sdk.contract.method import DOWN, ME, UP, Method, NodeEnv, Role, Send, Step
from edge_sdk.errors import PeerError, UsageError
from edge_sdk.methods.shared.aggregation.gather import HIGH, LARGEST, LOW, Integers, expected, split
from edge_sdk.methods.shared.membership.riders import Rider, tell_all, tell_new

LAYER = "standardise"
"""Name of the layer that standardises; its two parameters are `mean` and `log_scale`, one number for each feature."""
SMALLEST = 1e-6
"""Least scale: of a feature that is the same everywhere."""


# Messages -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class AskFeatures:
    """Down: say what the means of your features are."""


@dataclass(frozen=True)
class FeatureSums:
    """Up: sums over devices of the means (F,), then the means of squares (F,), of their features.

    Attributes:
        high, low: (2 F,), multiples of 2**-20 and of 2**-70, as of `gather.split`.
        devices: how many devices these are.
    """

    high: Integers
    low: Integers
    devices: int = 0

    def check(self, layout: Layout) -> None:
        most = (self.devices + 1) * LARGEST * 2.0**HIGH
        if self.devices < 0 or self.high.shape != self.low.shape or not (np.abs(self.high.astype(float)) <= most).all():
            raise ValueError(f"means of {self.devices} devices: of each at most {LARGEST:.0f}, in pairs of numbers")


@dataclass(frozen=True)
class WithStatistics(Rider):
    """Down: a question, and what features are standardised by from here on.

    Attributes:
        values: means of the features (F,), then logarithms of their scales (F,).
    """

    message: Any
    values: Values


@dataclass(frozen=True)
class NeedStatistics:
    """Up, in place of an answer: this device has lost its disk, and does not know the statistics."""


@dataclass(frozen=True)
class Standardised:
    """Down: a model, as the method shows it, and the statistics that it standardises with; empty: none yet."""

    shown: Any
    statistics: Values


# Where they lie ----------------------------------------------------------------------------------------------------
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
    size = 2 * where[0].size if where else 0
    if not devices:
        return np.zeros(size, np.float32)
    mean, square = np.split((high * 2.0**-HIGH + low * 2.0**-LOW) / devices, 2)
    scale = np.sqrt(np.maximum(square - mean**2, 0))
    return np.concatenate([mean, np.log(np.maximum(scale, SMALLEST))]).astype(np.float32)


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
        return FeatureSums(np.zeros(0, np.int64), np.zeros(0, np.int64), 0)
    means, squares = env.feature_means()
    if len(means) != where[0].size:
        raise UsageError(f"device {env.me} has {len(means)} features, its model standardises {where[0].size}")
    whole = np.clip(np.nan_to_num(np.concatenate([means, squares])), -LARGEST, LARGEST)
    return FeatureSums(*split(whole), 1)


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
    names = {f.name for f in fields(env)}
    return replace(env, **changed, **wrapped({k: getattr(env, k) for k in wraps if k in names}))


# State ----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class StandardState:
    """A node's state around the method's own.

    Attributes:
        inner: the method's.
        statistics: as in `WithStatistics`; empty: they are not known yet.
        sums: what has been gathered of them; None: nothing is asked for.
        told: hospital: children that know them.
    """

    inner: Any
    statistics: Values = field(default_factory=lambda: np.zeros(0, np.float32))
    sums: FeatureSums | None = None
    told: tuple[str, ...] = ()


@cache
def state_around(inner: Any) -> type[StandardState]:
    """`StandardState` with the type of what is inside written down, for those who save it; the same class each time."""
    return make_dataclass("StandardState", [("inner", inner)], bases=(StandardState,), frozen=True)


def nothing(layout: Layout) -> FeatureSums:
    where = slots(layout)
    zero = np.zeros(2 * where[0].size if where else 0, np.int64)
    return FeatureSums(zero, zero, 0)


def noted(env: NodeEnv, s: StandardState, sender: str, message: Any) -> StandardState:
    """The state after a child's sums. Raises PeerError for sums of other features, or of more devices than it has."""
    m, old = expected(sender, message, FeatureSums), s.sums or nothing(env.layout)
    if m.devices > env.sizes.get(sender, 1):
        raise PeerError(f"{sender} counts {m.devices} devices, it has {env.sizes.get(sender, 1)}")
    if not m.devices:
        return s
    if m.high.shape != old.high.shape:
        raise PeerError(f"{sender} has {m.high.size // 2} features, this model standardises {old.high.size // 2}")
    return replace(s, sums=FeatureSums(old.high + m.high, old.low + m.low, old.devices + m.devices))


# Around a method ------------------------------------------------------------------------------------------------
def standardised(method: Method) -> Method:
    """Add the fleet's statistics before a method's first round.

    Raises:
        UsageError: its devices do not train one whole model.
    """
    if method.kernels != "plain":
        raise UsageError(f"method {method.name!r}: statistics are for a model that every device has whole")
    kind = get_type_hints(method.show)["return"]

    def show(env: NodeEnv, s: StandardState) -> Standardised:
        return Standardised(method.show(env, s.inner), s.statistics)

    def models(env: NodeEnv, s: StandardState | None, m: Standardised) -> Mapping[str, Vector]:
        found = method.models(fitted(env, m.statistics), s and s.inner, expected(UP, m.shown, kind))
        whole = env.layout.size
        return {n: placed(env.layout, v, m.statistics) if len(v) == whole else v for n, v in found.items()}

    def predicts(env: NodeEnv, m: Standardised) -> Ensemble | None:
        return None if method.predicts is None else method.predicts(env, m.shown)

    return replace(
        method,
        device=device(method),
        hospital=hospital(method),
        aggregator=aggregator(method),
        messages=(*method.messages, AskFeatures, FeatureSums, WithStatistics, NeedStatistics, Standardised),
        show=show,
        models=models,
        predicts=None if method.predicts is None else predicts,
        rounds_over=None if method.rounds_over is None else lambda s: inner_rounds(method, s),
        alone=None,
    )


def inner_rounds(method: Method, s: StandardState) -> int:
    assert method.rounds_over is not None
    return method.rounds_over(s.inner)


def around(inner: Role, receive: Any, close: Any) -> Role:
    kind = state_around(inner.state)

    def start(env: NodeEnv) -> Step:
        state, sends = inner.start(env)
        return kind(state), sends

    return Role(start, receive, close, kind, inner.refuse)


def inside(inner: Role, env: NodeEnv, s: StandardState, sender: str, message: Any) -> Step:
    """A message for the method itself."""
    state, sends = inner.receive(env, s.inner, sender, message)
    return replace(s, inner=state), sends


def closed(inner: Role, env: NodeEnv, s: StandardState) -> Step:
    state, sends = inner.close(env, s.inner)
    return replace(s, inner=state), sends


# Roles ----------------------------------------------------------------------------------------------------------
def device(method: Method) -> Role:
    inner = method.device

    def receive(env: NodeEnv, s: StandardState, sender: str, m: Any) -> Step:
        if isinstance(m, AskFeatures):
            return s, [Send(UP, own_sums(env))]
        if isinstance(m, WithStatistics):
            s, m = replace(s, statistics=checked(env.layout, m.values)), m.message
        if not s.statistics.size and slots(env.layout) is not None:
            return s, [Send(UP, NeedStatistics())]
        return inside(inner, fitted(env, s.statistics), s, sender, m)

    def close(env: NodeEnv, s: StandardState) -> Step:
        return closed(inner, fitted(env, s.statistics), s)

    return around(inner, receive, close)


def hospital(method: Method) -> Role:
    inner = method.hospital

    def receive(env: NodeEnv, s: StandardState, sender: str, m: Any) -> Step:
        if sender == UP and isinstance(m, AskFeatures):
            return replace(s, sums=nothing(env.layout)), [Send(DOWN, m, all=True)]
        if sender == UP and isinstance(m, WithStatistics):
            s, m = replace(s, statistics=checked(env.layout, m.values)), m.message
        if isinstance(m, NeedStatistics):
            return replace(s, told=tuple(name for name in s.told if name != sender)), []
        if sender not in (UP, ME) and s.sums is not None:
            return noted(env, s, sender, m), []
        return told_before(env, *inside(inner, env, s, sender, m))

    def close(env: NodeEnv, s: StandardState) -> Step:
        if s.sums is not None:
            return replace(s, sums=None), [Send(UP, s.sums)]
        return told_before(env, *closed(inner, env, s))

    return around(inner, receive, close)


def told_before(env: NodeEnv, s: StandardState, sends: Sequence[Send]) -> Step:
    """What a hospital sends, with the statistics around a child's first question."""
    if not s.statistics.size:
        return s, sends
    told, sends = tell_new(env, s.told, sends, lambda message: WithStatistics(message, s.statistics))
    return replace(s, told=told), sends


def aggregator(method: Method) -> Role:
    inner = method.aggregator
    kind = state_around(inner.state)

    def start(env: NodeEnv) -> Step:
        state, _ = inner.start(env)
        return kind(state, sums=nothing(env.layout)), [Send(DOWN, AskFeatures(), all=True)]

    def receive(env: NodeEnv, s: StandardState, sender: str, m: Any) -> Step:
        if s.sums is not None and sender != ME:
            return noted(env, s, sender, m), []
        return inside(inner, env, s, sender, m)

    def close(env: NodeEnv, s: StandardState) -> Step:
        if s.sums is None:
            s, sends = closed(inner, env, s)
        else:
            state, sends = inner.start(env)
            found = statistics_of(env.layout, s.sums.high, s.sums.low, s.sums.devices)
            s = replace(s, inner=state, statistics=found, sums=None)
        return s, tell_all(sends, lambda message: WithStatistics(message, s.statistics)) if s.statistics.size else sends

    return Role(start, receive, close, kind, inner.refuse)
