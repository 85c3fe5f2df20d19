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
A hospital winsorises its devices' sums before it adds them up; so does the aggregator with a rule over hospitals
(`run.robust`). Where sums are secret or have noise nobody sees single ones, and they are added up as they are.
When few answer: the statistics are theirs; nobody: mean 0 and scale 1. A device that comes later, or with another
disk, is told them before its first question. One that was asked before it lost its disk says so in place of an answer,
and takes part again in the next round.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, get_type_hints

import numpy as np

from edge_sdk.algebra.arrays import Values
from edge_sdk.algebra.ensemble import Ensemble
from edge_sdk.algebra.vectors import Vector
from edge_sdk.contract.method import DOWN, ME, UP, Method, NodeEnv, Role, Send, Step
from edge_sdk.contract.versions import with_entry
from edge_sdk.contract.wrapping import closed, inside, role_around, state_around
from edge_sdk.errors import PeerError, UsageError
from edge_sdk.methods.shared.aggregation.gather import expected
from edge_sdk.methods.shared.evaluation.beside import BESIDE
from edge_sdk.methods.shared.membership.riders import tell_all, tell_new, told_again
from edge_sdk.methods.standardising.equations import (
    are_moments,
    checked,
    fitted,
    nothing,
    own_sums,
    placed,
    slots,
    statistics_of,
)
from edge_sdk.methods.standardising.messages import (
    AskFeatures,
    FeatureSums,
    NeedStatistics,
    Standardised,
    WithStatistics,
)
from edge_sdk.methods.standardising.winsorised import MAJORITY, USUAL, winsorised


# State ----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class StandardState:
    """A node's state around the method's own.

    Attributes:
        inner: the method's.
        statistics: as in `WithStatistics`; empty: they are not known yet.
        sums: what has been gathered of them; None: nothing is asked for.
        told: hospital: children that know them.
        apart: the sums of each child, which is looked at before they are added up.
    """

    inner: Any
    statistics: Values = field(default_factory=lambda: np.zeros(0, np.float32))
    sums: FeatureSums | None = None
    told: tuple[str, ...] = ()
    apart: Mapping[str, FeatureSums] = field(default_factory=dict)


def noted(env: NodeEnv, s: StandardState, sender: str, message: Any, apart: bool) -> StandardState:
    """The state after a child's sums, added to the others or kept `apart` from them.

    Raises:
        PeerError: sums of other features, of more devices than it has, or of what no samples have.
    """
    m, old = expected(sender, message, FeatureSums), s.sums or nothing(env.layout)
    if m.devices > env.sizes.get(sender, 1):
        raise PeerError(f"{sender} counts {m.devices} devices, it has {env.sizes.get(sender, 1)}")
    if not m.devices:
        return s
    if m.high.shape != old.high.shape:
        raise PeerError(f"{sender} has {m.high.size // 2} features, this model standardises {old.high.size // 2}")
    if not are_moments(m.high, m.low, m.devices):
        raise PeerError(f"{sender}: means of squares below the squares of means; no samples have such features")
    if apart:
        return replace(s, apart=with_entry(s.apart, sender, m))
    return replace(s, sums=plus(old, m))


def plus(a: FeatureSums, b: FeatureSums) -> FeatureSums:
    return FeatureSums(a.high + b.high, a.low + b.low, a.devices + b.devices)


def gathered(s: StandardState, least: int = MAJORITY) -> FeatureSums:
    """What a node adds up to, at the end of its round. `least`: children from which on they are winsorised."""
    assert s.sums is not None  # the caller has looked
    return reduce(plus, winsorised(s.apart, least).values(), s.sums)


# Around a method ------------------------------------------------------------------------------------------------
def standardised(method: Method, over_devices: bool = False, over_hospitals: bool = False) -> Method:
    """Add the fleet's statistics before a method's first round.

    Args:
        over_devices: hospitals winsorise sums of three devices, too (winsorised.py); of four or more they always do.
        over_hospitals: the aggregator does so with its hospitals'.

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
        return {n: v if n in BESIDE else placed(env.layout, v, m.statistics) for n, v in found.items()}

    def predicts(env: NodeEnv, m: Standardised) -> Ensemble | None:
        return None if method.predicts is None else method.predicts(env, m.shown)

    return replace(
        method,
        device=device(method),
        hospital=hospital(method, over_devices),
        aggregator=aggregator(method, over_hospitals),
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

    return role_around(inner, StandardState, receive, close)


def hospital(method: Method, robust: bool) -> Role:
    inner = method.hospital

    def receive(env: NodeEnv, s: StandardState, sender: str, m: Any) -> Step:
        if sender == UP and isinstance(m, AskFeatures):
            return replace(s, sums=nothing(env.layout), apart={}, told=()), [Send(DOWN, m, all=True)]
        if sender == UP:
            s = replace(
                s, sums=None, apart={}
            )  # the aggregator goes on: answers that are still to come are the method's
        if sender == UP and isinstance(m, WithStatistics):
            told = s.told if np.array_equal(s.statistics, m.values) else ()
            s, m = replace(s, statistics=checked(env.layout, m.values), told=told), m.message
        if isinstance(m, NeedStatistics):
            return replace(s, told=tuple(name for name in s.told if name != sender)), []
        if sender not in (UP, ME) and s.sums is not None:
            return noted(env, s, sender, m, apart=True), []
        return told_before(env, *inside(inner, env, s, sender, m))

    def close(env: NodeEnv, s: StandardState) -> Step:
        if s.sums is not None:
            return replace(s, sums=None, apart={}), [Send(UP, gathered(s, MAJORITY if robust else USUAL))]
        return told_before(env, *closed(inner, env, s))

    return role_around(inner, StandardState, receive, close, renew=told_again(inner))


def told_before(env: NodeEnv, s: StandardState, sends: Sequence[Send]) -> Step:
    """What a hospital sends, with the statistics around a child's first question."""
    if not s.statistics.size:
        return s, sends
    told, sends = tell_new(env, s.told, sends, lambda message: WithStatistics(message, s.statistics))
    return replace(s, told=told), sends


def aggregator(method: Method, robust: bool) -> Role:
    inner = method.aggregator
    kind = state_around(StandardState, inner.state)

    def start(env: NodeEnv) -> Step:
        state, _ = inner.start(env)
        return kind(state, sums=nothing(env.layout)), [Send(DOWN, AskFeatures(), all=True)]

    def receive(env: NodeEnv, s: StandardState, sender: str, m: Any) -> Step:
        if s.sums is not None and sender != ME:
            return noted(env, s, sender, m, robust), []
        return inside(inner, env, s, sender, m)

    def close(env: NodeEnv, s: StandardState) -> Step:
        if s.sums is None:
            s, sends = closed(inner, env, s)
        else:
            state, sends = inner.start(env)
            sums = gathered(s)
            found = statistics_of(env.layout, sums.high, sums.low, sums.devices)
            s = replace(s, inner=state, statistics=found, sums=None, apart={})
        return s, tell_all(sends, lambda message: WithStatistics(message, s.statistics)) if s.statistics.size else sends

    return Role(start, receive, close, kind)
