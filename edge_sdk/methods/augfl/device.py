"""AugFL's device: one meta-gradient, then its primal and its dual step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from edge_sdk.algebra import lowrank
from edge_sdk.algebra.arrays import Theta
from edge_sdk.algebra.vectors import Vector
from edge_sdk.contract.method import OUT, UP, Send, Step
from edge_sdk.methods.augfl.equations import dual_step, meta_gradient, primal_step, weight_of
from edge_sdk.methods.augfl.messages import AugflModel, Census, Counted, Upload, has_diverged
from edge_sdk.methods.augfl.settings import BOTH, PLAIN, Env, U
from edge_sdk.methods.shared.aggregation import gather
from edge_sdk.methods.shared.aggregation.exact import bounded
from edge_sdk.methods.shared.aggregation.gather import Nobody
from edge_sdk.methods.shared.evaluation.reports import Diverged, training_scores
from edge_sdk.methods.shared.training import meta

SUMMAND = 2.0**-16
"""Share of the largest number that a device may send: so many of them can be added up."""


@dataclass(frozen=True)
class DeviceState:
    """What AugFL's device remembers.

    Attributes:
        y: the dual, if the upload of `round` was not counted.
        tried: the dual, if it was.
        round: the global round in which this device last took part; -1: it never did.
        counted: the round of its upload that `y` is of, as its hospital said last; -1: of none.
    """

    written_as: ClassVar[str] = "Device"

    y: Theta
    tried: Theta
    round: int = -1
    counted: int = -1


def device_start(env: Env) -> Step:
    y = np.zeros_like(env.theta0) if env.y_init is None else env.y_init
    return DeviceState(y, y), []


def device_receive(env: Env, s: DeviceState, sender: str, message: object) -> Step:
    m: Census | AugflModel = gather.expected(sender, message, Census, AugflModel)
    if env.samples < 2:
        return s, [Send(UP, Nobody())]
    if isinstance(m, Census):
        return s, [Send(UP, Counted(env.labelled))]
    theta, counted = lowrank.unpack(env.layout, m.model), m.counted.get(env.me, -1)
    y = s.tried if counted == s.round else s.y
    weight, rho = weight_of(env, m), env.settings.penalty_of(env.me)
    loss, g = meta_gradient(env, theta, m.round, weight)
    if env.settings.y_init == PLAIN and env.me not in m.counted:
        y = -weight * g
    if not env.settings.dual:
        y = np.zeros_like(theta)
    theta_i = primal_step(theta, y, g, weight, rho)
    after = dual_step(theta, y, theta_i, rho) if env.settings.dual else y
    if has_diverged(theta_i, after, share=SUMMAND):
        said = Diverged(m.round, "training diverged; its round is dropped")
        return s, [Send(OUT, said), Send(UP, Nobody())]
    scores = training_scores(env, loss, {"global": theta}) | measure_residuals(theta_i - theta, after - y)
    whole = counted not in (s.round, s.counted)  # its hospital holds another y_i^- than this, or none
    upload = make_upload(env, theta_i, after, rho, scores, BOTH if whole else env.settings.upload)
    return DeviceState(y, after, m.round, counted), [Send(UP, upload)]


def measure_residuals(primal: Vector, dual: Vector) -> dict[str, float]:
    """||theta_i - theta||^2 and ||y_i - y_i^-||^2."""
    return {"primal_residual": bounded(float(primal @ primal)), "dual_residual": bounded(float(dual @ dual))}


def make_upload(env: Env, theta_i: Vector, y: Vector, rho: float, scores: Mapping[str, float], sent: str) -> Upload:
    """What travels. `sent`: as of `Settings.upload`."""
    if sent == U:
        return Upload(env.labelled, u=y + rho * theta_i, scores=scores)
    return Upload(env.labelled, theta=theta_i if sent == BOTH else None, y=y, scores=scores)


def models(env: Env, s: DeviceState | None, m: AugflModel) -> dict[str, Vector]:
    theta = lowrank.unpack(env.layout, m.model)
    if s is None:
        return {"global": theta}
    return meta.evaluated_models(env, env.settings, theta, seen=s.round >= 0)
