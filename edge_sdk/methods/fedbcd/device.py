"""FedBCD's device, which trains when it is asked; and FedBCD-I's, which also trains by its own clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

from edge_sdk.algebra import lowrank
from edge_sdk.algebra.arrays import Theta
from edge_sdk.algebra.vectors import Vector
from edge_sdk.contract.method import UP, Send, Step
from edge_sdk.methods.fedbcd.equations import (
    ABLE,
    BATCHES,
    common_start,
    draw_local_steps,
    draw_minibatches,
    edge_update,
    project,
    pull,
)
from edge_sdk.methods.fedbcd.messages import FedbcdModel
from edge_sdk.methods.fedbcd.settings import Env, OfflineEnv
from edge_sdk.methods.shared.aggregation import gather
from edge_sdk.methods.shared.aggregation.gather import Sum
from edge_sdk.methods.shared.evaluation.reports import loss_scores, training_scores
from edge_sdk.methods.shared.training.local import gradient


@dataclass(frozen=True)
class DeviceState:
    """What FedBCD's device remembers.

    Attributes:
        x: the personal model.
        before: the iterate before it. Both outlast rounds, and rounds without this device.
        offline: FedBCD-I: trainings since the last contact.
        trainings: FedBCD-I: all of them.
        steps: FedBCD-I: K of the last one, which the pull takes over.
        loss: FedBCD-I: of the last one.
        ticks: FedBCD-I: of its own clock.
        tried, tried_before: with selection = "fastest": the last two iterates if the answer of `round` was among the
            first ones, and so counted; otherwise x and before stand. None: nothing is undecided.
        round: see there.
    """

    written_as: ClassVar[str] = "Device"

    x: Theta
    before: Theta
    offline: int = 0
    trainings: int = 0
    steps: int = 0
    loss: float | None = None
    ticks: int = 0
    tried: Theta | None = None
    tried_before: Theta | None = None
    round: int = -1


def device_start(env: Env) -> Step:
    x0 = common_start(env)
    return DeviceState(x0, x0), []


def device_receive(env: Env, s: DeviceState, sender: str, message: object) -> Step:
    m: FedbcdModel = gather.expected(sender, message, FedbcdModel)
    h, z, gamma = env.settings, lowrank.unpack_shared(env.layout, m.model), env.settings.weight(env.me)
    old, old_before = confirmed_iterates(env, s, m)
    x, before, loss = take_steps(env, m.round, old, old_before, z)
    scores = training_scores(env, loss, {"global": z, "personal": old})
    sends = [Send(UP, Sum(gamma * x, gamma, 1, scores))]
    if h.selection == "fastest":
        return DeviceState(old, old_before, tried=x, tried_before=before, round=m.round), sends
    return DeviceState(x, before), sends


def confirmed_iterates(env: Env, s: DeviceState, m: FedbcdModel) -> tuple[Vector, Vector]:
    """The last two iterates as the hospital has them: those that were tried only if their answer was counted."""
    if s.tried is None or s.tried_before is None or m.counted.get(env.me, -1) != s.round:
        return s.x, s.before
    return s.tried, s.tried_before


def take_steps(env: Env, round: int, x: Vector, before: Vector, z: Vector) -> tuple[Vector, Vector, float | None]:
    """Eq. (4). A device without samples has g_i = 0, and eq. (2) is then least where x_i is nearest to z."""
    h = env.settings
    if env.samples == 0:
        return project(h, z), project(h, z), None
    steps = draw_minibatches(env, h, round, draw_local_steps(env, h, round))
    return edge_update(gradient(env, round, BATCHES), h, x, before, steps, z, h.weight(env.me))


def offline_device_receive(env: OfflineEnv, s: DeviceState, sender: str, message: object) -> Step:
    """Train, unless that was done offline; be pulled; send."""
    m: FedbcdModel = gather.expected(sender, message, FedbcdModel)
    h, z, gamma = env.settings, lowrank.unpack(env.layout, m.model), env.settings.weight(env.me)
    scores = training_scores(env, None, {"global": z, "personal": s.x})
    s = s if s.offline or not env.samples else train(env, s)
    x, before = pull(h, s.x, s.before, z, gamma, s.steps) if env.samples else (project(h, z), project(h, z))
    scores |= loss_scores(s.loss)
    s = replace(s, x=x, before=x if h.after_pull == "reset" else before, offline=0)
    return s, [Send(UP, Sum(gamma * x, gamma, 1, scores))]


def offline_device_close(env: OfflineEnv, s: DeviceState) -> Step:
    """The device's own clock (Policy.idle): nobody has called, so train, if it can, but not for ever."""
    able = env.samples > 0 and env.random(s.ticks, ABLE).random() < env.settings.offline_share
    s = replace(s, ticks=s.ticks + 1)
    return (train(env, s) if able and s.offline < env.settings.offline_limit else s), []


def train(env: OfflineEnv, s: DeviceState) -> DeviceState:
    """Algorithm 2: eq. (4) without the penalty."""
    steps = draw_local_steps(env, env.settings, s.trainings)
    drawn = draw_minibatches(env, env.settings, s.trainings, steps)
    x, before, loss = edge_update(gradient(env, s.trainings, BATCHES), env.settings, s.x, s.before, drawn)
    return DeviceState(x, before, s.offline + 1, s.trainings + 1, steps, loss, s.ticks)


def models(env: Env, s: DeviceState | None, m: FedbcdModel) -> dict[str, Vector]:
    z = lowrank.unpack(env.layout, m.model)
    if s is None:
        return {"global": z}
    return {"global": z, "personal": s.x if s.tried is None else s.tried}


def alone(env: Env, told: Callable[[int], None]) -> Vector:
    """Eq. (4) on g_i alone, without the penalty, round after round, with the same draws of K and of batches."""
    start = common_start(env)
    x, before = start, start
    for round in range(env.rounds):
        steps = draw_minibatches(env, env.settings, round, draw_local_steps(env, env.settings, round))
        x, before, _ = edge_update(gradient(env, round, BATCHES), env.settings, x, before, steps)
        told(round + 1)
    return x
