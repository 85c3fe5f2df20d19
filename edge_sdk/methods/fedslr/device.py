"""FedSLR's device: phase I on w and gamma, phase II on its personal component p."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from edge_sdk.algebra import lowrank
from edge_sdk.algebra.arrays import Theta
from edge_sdk.algebra.running_statistics import without_statistics
from edge_sdk.algebra.vectors import Vector
from edge_sdk.contract.method import OUT, UP, Send, Step
from edge_sdk.methods.fedslr.equations import local_fusion, local_phase, update_auxiliary
from edge_sdk.methods.fedslr.messages import FedslrModel, Forgotten
from edge_sdk.methods.fedslr.settings import Env
from edge_sdk.methods.fedslr.uploads import Past
from edge_sdk.methods.shared.aggregation import gather
from edge_sdk.methods.shared.aggregation.exact import has_diverged
from edge_sdk.methods.shared.aggregation.gather import Nobody, Sum
from edge_sdk.methods.shared.evaluation.reports import Diverged, training_scores
from edge_sdk.methods.shared.membership.mirror import own_vector, recalled


@dataclass(frozen=True)
class DeviceState:
    """What FedSLR's device remembers.

    Attributes:
        gamma: as the aggregator's mean has it, if the last upload was not counted.
        p: the personal component.
        tried: gamma, if that upload was counted.
        account: the global round in which this device last took part, and what became of it.
    """

    written_as: ClassVar[str] = "FedslrDevice"

    gamma: Theta
    p: Theta
    tried: Theta
    account: Past = field(default_factory=Past)


def device_start(env: Env) -> Step:
    zero = np.zeros_like(env.theta0)
    return DeviceState(zero, initial_component(env), zero), []


def initial_component(env: Env) -> Vector:
    """p_i at the start: what an earlier run's personal model has beyond the model of all, or as the settings say.

    gamma_i begins at zero in any case: the aggregator's mean of gamma does, and the two must agree.
    """
    if env.earlier.keys() >= {"personal", "global"}:
        return without_statistics(env.layout, env.earlier["personal"] - env.earlier["global"])
    return np.zeros_like(env.theta0) if env.settings.p_init == "zero" else zero_norms(env)


def zero_norms(env: Env) -> Vector:
    p = env.theta0.copy()
    for slot in env.layout.slots:
        if slot.kind == "norm":
            p[slot.span] = 0
    return p


def device_receive(env: Env, s: DeviceState, sender: str, message: object) -> Step:
    m: FedslrModel = gather.expected(sender, message, FedslrModel)
    account = recalled(s.account, env.me, m)
    if account is None:
        return s, [Send(UP, Forgotten())]
    gamma, w = own_vector(s.account, account, s.gamma, s.tried), lowrank.unpack_shared(env.layout, m.model)
    w_local, loss = local_phase(env, m.round, w, gamma)
    p, told = healed(m.round, local_fusion(env, m.round, w, s.p))
    if has_diverged(w_local):
        said = Send(OUT, Diverged(m.round, "phase I diverged; its round is dropped"))
        return DeviceState(gamma, p, gamma, account), [*told, said, Send(UP, Nobody())]
    tried = without_statistics(env.layout, update_auxiliary(gamma, w, w_local, env.settings.eta_g))
    upload = Sum(w_local, 1.0, 1, training_scores(env, loss, {"global": w, "personal": w + s.p}))
    return DeviceState(gamma, p, tried, replace(account, round=m.round)), [*told, Send(UP, upload)]


def healed(round: int, p: Vector) -> tuple[Vector, list[Send]]:
    """The personal component or, where it has diverged, zero, which the application is told.

    Nothing else would ever make it finite again: each phase begins where the one before has ended.
    """
    if not has_diverged(p):
        return p, []
    return np.zeros_like(p), [Send(OUT, Diverged(round, "the personal component diverged; it begins at zero again"))]


def models(env: Env, s: DeviceState | None, m: FedslrModel) -> dict[str, Vector]:
    w = lowrank.unpack(env.layout, m.model)
    return {"global": w} if s is None else {"global": w, "personal": w + settle_personal(env, m.round, w, s.p)}


def settle_personal(env: Env, round: int, w: Vector, p: Vector) -> Vector:
    """p_i as it is or, where w is final and settings ask for it, fitted to this w."""
    epochs = env.settings.settle_epochs if round >= env.rounds else 0
    return local_fusion(env, round, w, p, epochs) if epochs else p
