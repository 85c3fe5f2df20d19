"""HSGD's aggregator: the average over the groups, and the plan (P, Q, eta) of the next global round."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isfinite, nan, sqrt
from typing import ClassVar

import numpy as np

from edge_sdk.algebra.arrays import Theta
from edge_sdk.algebra.vectors import Vector
from edge_sdk.contract.method import DOWN, OUT, Send, Step
from edge_sdk.errors import UsageError
from edge_sdk.methods.hsgd import plan as hsgd_plan
from edge_sdk.methods.hsgd.messages import HsgdModel
from edge_sdk.methods.hsgd.plan import (
    CONTRIBUTORS,
    NOISE,
    Constants,
    Estimate,
    Planned,
    square,
)
from edge_sdk.methods.hsgd.settings import Env, Plan, Settings
from edge_sdk.methods.shared.aggregation import gather
from edge_sdk.methods.shared.aggregation.gather import Sum, Tally
from edge_sdk.methods.shared.evaluation.reports import progress

NOTHING = Estimate()


@dataclass(frozen=True)
class AggregatorState:
    """What HSGD's aggregator remembers.

    Attributes:
        theta: the global model.
        plan: of this round.
        round, t: as in Global.
        tally: the groups of this round.
        estimate: of the constants.
        gradient: ||grad F|| in the round before; nan: not known.
    """

    written_as: ClassVar[str] = "Aggregator"

    theta: Theta
    plan: Plan
    round: int = 0
    t: int = 0
    tally: Tally | None = None
    estimate: Estimate = NOTHING
    gradient: float = nan


def aggregator_start(env: Env) -> Step:
    if env.devices < 1:
        raise UsageError("the aggregator knows of no device: sizes names each hospital with its number of devices")
    if env.split.blocks[2].stop != env.layout.size:
        raise UsageError(f"{env.split} makes {env.split.blocks[2].stop} parameters, the model has {env.layout.size}")
    if env.settings.pretraining >= env.rounds:
        raise UsageError(f"pretraining = {env.settings.pretraining} of {env.rounds} rounds: none is left to train")
    return ask_round(env, AggregatorState(env.theta0, env.settings.plan))


def ask_round(env: Env, s: AggregatorState) -> Step:
    """The next global round, with a plan of its own."""
    told: list[Send] = []
    if is_pretraining(env, s):
        s = replace(s, plan=Plan(1, 1, env.settings.pretraining_eta))
    elif env.settings.strategies:
        planned = plan_round(env, s)
        s, told = replace(s, plan=planned.plan), [Send(OUT, planned)]
    else:
        s = replace(s, plan=env.settings.plan)
    return s, [*told, Send(DOWN, show(env, s))]


def is_pretraining(env: Env, s: AggregatorState) -> bool:
    return s.round < env.settings.pretraining


def plan_round(env: Env, s: AggregatorState) -> Planned:
    """Applies S1, S2 and S3 with the constants as they are known now."""
    settings = env.settings
    T = settings.iterations or (env.rounds - settings.pretraining) * settings.P
    return hsgd_plan.choose_plan(
        settings.strategies, settings.plan, choose_constants(settings, s), s.round, T, settings.target, settings.printed
    )


def choose_constants(settings: Settings, s: AggregatorState) -> Constants:
    """Constants from the settings where they are given there, otherwise the estimates."""
    e = s.estimate.constants
    f0, rho, delta = (a if a is not None else b for a, b in zip(
        (settings.f0, settings.rho, settings.delta), (e.f0, e.rho, e.delta), strict=True
    ))  # fmt: skip
    known = s.gradient if isfinite(s.gradient) or not s.estimate.steps else e.gradient
    return Constants(f0, rho, delta, known)


def aggregator_receive(env: Env, s: AggregatorState, sender: str, message: object) -> Step:
    return replace(s, tally=gather.gathered(env, s.tally, sender, message)), []


def aggregator_close(env: Env, s: AggregatorState) -> Step:
    done = progress(s.round + 1, s.tally)
    s = aggregate(env, s)
    if s.round >= env.rounds or 0 < env.settings.iterations <= s.t:
        return s, [done]
    s, sends = ask_round(env, s)
    return s, [done, *sends]


def aggregate(env: Env, s: AggregatorState) -> AggregatorState:
    """Eq. (2) over the groups that answered; with none, the same model again. A measured round leads nowhere."""
    after = replace(s, round=s.round + 1, tally=None)
    if s.tally is not None and is_pretraining(env, s):
        after = add_to_estimate(env, s, after, gather.total(s.tally, np.zeros(0)))
    elif s.tally is not None:
        uploads = gather.total(s.tally, env.theta0)
        after = move_model(env, s, after, uploads.total / uploads.total.dtype.type(uploads.weight))
    if is_pretraining(env, s) and not is_pretraining(env, after):
        after = replace(after, theta=env.theta0, t=0)
    return after


def add_to_estimate(env: Env, s: AggregatorState, after: AggregatorState, uploads: Sum) -> AggregatorState:
    """The state after a round of pretraining, whose uploads are gradients in double precision: one step along them."""
    scores = {name: uploads.scores.get(name, 0.0) / uploads.weight for name in (*NOISE, "value")}
    gradient, who = uploads.total / uploads.weight, uploads.scores.get(CONTRIBUTORS, 0.0)
    e = hsgd_plan.update_estimate(s.estimate, s.theta, gradient, env.split.blocks, scores, who)
    return replace(after, theta=(s.theta - s.plan.eta * gradient).astype(s.theta.dtype), estimate=e)


def move_model(env: Env, s: AggregatorState, after: AggregatorState, theta: Vector) -> AggregatorState:
    """The state after P iterations. Their mean gradient stands for the gradient at the start of the next round."""
    way = sum(env.settings.eta_at(s.plan, t) for t in range(s.t, s.t + s.plan.P))
    gradient = sqrt(square(s.theta - theta)) / way if way > 0 else nan
    return replace(after, theta=theta, t=s.t + s.plan.P, gradient=gradient)


def show(env: Env, s: AggregatorState) -> HsgdModel:
    return HsgdModel(s.theta, s.round, s.t, s.plan, is_pretraining(env, s))
