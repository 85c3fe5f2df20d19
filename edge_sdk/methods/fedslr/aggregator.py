"""FedSLR's aggregator: the mean of gamma, the proximal step, and the questions of a round."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from edge_sdk.algebra import lowrank
from edge_sdk.algebra.arrays import Theta
from edge_sdk.algebra.lowrank import Packed
from edge_sdk.algebra.running_statistics import without_statistics
from edge_sdk.contract.method import Send, Step, ask_nobody
from edge_sdk.errors import UsageError
from edge_sdk.methods.fedslr.equations import aggregate, update_auxiliary
from edge_sdk.methods.fedslr.messages import FedslrModel, Forgotten
from edge_sdk.methods.fedslr.settings import Env
from edge_sdk.methods.shared.aggregation import draw, gather
from edge_sdk.methods.shared.aggregation.gather import Tally
from edge_sdk.methods.shared.evaluation.reports import progress
from edge_sdk.methods.shared.membership.changing import departed, mean_over


@dataclass(frozen=True)
class SharedState:
    """What FedSLR's step begins with, at the aggregator or in a hospital.

    Attributes:
        model: w_t as it is sent; the first one is dense.
        gamma_mean: mean of gamma_i over all devices.
        round: t.
        tally: the uploads of this round.
        counted: hospital -> the last round of this era in which its sum entered w.
        era: how often gamma has begun at zero again.
        forgotten: a node has lost its memory.
    """

    model: Packed
    gamma_mean: Theta
    round: int = 0
    tally: Tally | None = None
    counted: Mapping[str, int] = field(default_factory=dict)
    era: int = 0
    forgotten: bool = False


@dataclass(frozen=True)
class AggregatorState(SharedState):
    """What FedSLR's aggregator remembers.

    Attributes:
        devices: M, over which gamma_mean was when it was moved last; 0: it is zero, or that was not noted.
    """

    written_as: ClassVar[str] = "FedslrAggregator"

    devices: int = 0


def aggregator_start(env: Env) -> Step:
    if env.devices < 1:
        raise UsageError("the aggregator knows of no device: sizes names each hospital with its number of devices")
    s = AggregatorState(lowrank.dense(env.layout, env.theta0), np.zeros_like(env.theta0))
    return s, ask_hospitals(env, s)


def ask_hospitals(env: Env, s: SharedState) -> list[Send]:
    quotas = draw.quotas(env, s.round, env.settings.participation, env.settings.selection)
    return [Send(h, make_question(s, h, k)) for h, k in quotas.items()] or [ask_nobody(show(env, s))]


def make_question(s: SharedState, hospital: str, devices: int) -> FedslrModel:
    return FedslrModel(s.model, s.round, devices, {h: r for h, r in s.counted.items() if h == hospital}, s.era)


def show(env: Env, s: SharedState) -> FedslrModel:
    return FedslrModel(s.model, s.round, 0, {})


def aggregator_receive(env: Env, s: AggregatorState, sender: str, message: object) -> Step:
    if isinstance(message, Forgotten):
        return replace(s, forgotten=True), []
    return replace(s, tally=gather.gathered(env, s.tally, sender, message)), []


def aggregator_close(env: Env, s: AggregatorState) -> Step:
    done = progress(s.round + 1, s.tally)
    s = step(env, s)
    return s, [done] if s.round >= env.rounds else [done, *ask_hospitals(env, s)]


def step(env: Env, s: Any) -> AggregatorState:
    """The state after a round. Nobody answered: the same model again, with a new draw. Nor does a round count that
    begins an era. `s`: a SharedState with `devices`."""
    heard = () if s.tally is None else s.tally.heard  # of a child that has left since, too
    if s.forgotten or departed(env, {*s.counted, *heard}):
        return AggregatorState(s.model, np.zeros_like(s.gamma_mean), s.round + 1, era=s.era + 1)
    if s.tally is None:
        return replace(s, round=s.round + 1)  # type: ignore[no-any-return]
    uploads, w = gather.total(s.tally, env.theta0), lowrank.unpack(env.layout, s.model)
    w_mean = uploads.total / uploads.count
    share = uploads.count / env.devices
    before = mean_over(s.gamma_mean, s.devices, env.devices)
    gamma_mean = without_statistics(env.layout, update_auxiliary(before, w, w_mean, env.settings.eta_g, share))
    counted = {**s.counted, **dict.fromkeys(s.tally.heard, s.round)}
    model, t = aggregate(env, w, w_mean, gamma_mean), s.round + 1
    return AggregatorState(model, gamma_mean, t, None, counted, s.era, devices=env.devices)
