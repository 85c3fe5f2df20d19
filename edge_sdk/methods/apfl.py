"""APFL. Y. Deng, M. M. Kamani, M. Mahdavi: "Adaptive Personalized Federated Learning", 2020 (arXiv:2003.13461v3).

FedAvg trains a global model w (fedavg.py); beside it each device trains a model v_i so that the mixture of both,
v_bar_i = alpha_i v_i + (1 - alpha_i) w_i, is good on its own samples, and learns how much of each to take.

    Algorithm 1                                                 here
    a random part U of the devices                              draw.quotas, draw.chosen
    w_i <- w_i - eta grad f_i(w_i; batch)                       mixed_update
    v_i <- v_i - eta alpha_i grad f_i(v_bar_i; batch)           mixed_update, with the same batch
    v_bar_i = alpha_i v_i + (1 - alpha_i) w_i                   mixture
    eq. (10): alpha_i <- alpha_i - eta <v_i - w_i, grad f_i(v_bar_i; batch)>   adapted
    w <- mean of w_i                                            fedavg.average, not weighted

alpha_i is adapted once in a round, as in the authors' experiments: with the first batch, together with v_i and from
the same gradient, and kept within 0 and 1. Where the paper is silent: the first v_i is the w that a device receives
first, which in round 0 is the paper's w_0; weight_decay/2 ||.||^2 is added to f_i in w_i and in v_i; the personal
model of an evaluation mixes v_i with the w that is evaluated. The authors' step size is 0.1, decayed.
Their alpha starts at 0.5 as here, and is fixed by `adaptive = false`.

Leaves the device: w_i, summed by its hospital, and scores as sums. Never: v_i, alpha_i. Kind of upload: memoryless.
When few answer: the mean is over those who did. Nobody: the same w again, with a new draw. v_i and alpha_i move
whenever their device has trained, whether its upload was counted or not.
A lost disk: that device's v_i starts again at the next w it receives, alpha_i at its first value.
Devices that come or leave during a run: the draw is over those that there are; a new v_i begins at its first w.
Hospitals: the same, with all their devices, whose v_i they bring along when they return.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from edge_sdk.algebra import lowrank
from edge_sdk.algebra.arrays import Theta
from edge_sdk.algebra.vectors import Vector
from edge_sdk.contract.method import KEPT_BESIDE, UP, Role, Send, Step, unchanged
from edge_sdk.contract.search import OneOf, SearchSpace
from edge_sdk.errors import UsageError
from edge_sdk.methods import fedavg
from edge_sdk.methods.fedavg import FedavgModel
from edge_sdk.methods.shared.aggregation import gather
from edge_sdk.methods.shared.aggregation.gather import Nobody
from edge_sdk.methods.shared.training.local import TRAINING_SEARCH, batches, gradient

ONLY_FEDAVG = ("proximal", "momentum", "draw_epochs", "local_penalty", "fine_tune_epochs")


@dataclass(frozen=True, kw_only=True)
class Settings(fedavg.Settings):
    """Hyper-parameters: those of FedAvg that leave its local step as it is, and two of the mixture.

    Attributes:
        alpha: share of v_i in the personal model; where it is adapted, the first one.
        adaptive: each device learns its own alpha.
    """

    eta_l: float = 0.05
    weighting: str = "uniform"
    alpha: float = 0.5
    adaptive: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.alpha <= 1:
            raise UsageError(f"alpha = {self.alpha}: a share, from 0 to 1")
        plain = fedavg.Settings()
        for key in ONLY_FEDAVG:
            if getattr(self, key) != getattr(plain, key):
                raise UsageError(f"{key} = {getattr(self, key)!r}: the local steps of APFL are plain SGD; leave it out")


PAPER: Mapping[str, Any] = {"eta_l": 0.1}
RECOMMENDED: Mapping[str, Any] = {"eta_l": 0.1, "local_epochs": 5}
SEARCH: SearchSpace = {**TRAINING_SEARCH, "alpha": OneOf((0.25, 0.5, 0.75, 1.0)), "adaptive": OneOf((True, False))}


@dataclass(frozen=True, kw_only=True)
class Env(fedavg.Env):
    """What a node is given."""

    settings: Settings = field(default_factory=Settings)


# Equations ------------------------------------------------------------------------------------------------------
def mixture(alpha: float, v: Vector, w: Vector) -> Vector:
    """v_bar."""
    return alpha * v + (1 - alpha) * w


def adapted(alpha: float, v: Vector, w: Vector, gradient_of_mixture: Vector, eta: float) -> float:
    """Eq. (10), kept within 0 and 1."""
    slope = float(np.dot((v - w).astype(np.float64), gradient_of_mixture.astype(np.float64)))
    return min(max(alpha - eta * slope, 0.0), 1.0)


def mixed_update(
    env: Env, round: int, w: Vector, v: Vector, alpha: float
) -> tuple[Vector, Vector, float, float | None]:
    """Epochs of mini-batch SGD in w_i and v_i, each batch for both.

    Returns:
        w_i, v_i, alpha_i, and the mean loss of w_i on the batches (None where there was no batch).
    """
    s, eta, losses = env.settings, env.settings.eta(round), list[float]()
    grad_fn = gradient(env, round, fedavg.TRAINING)
    for batch in batches(env.random(round, fedavg.TRAINING), env.samples, s.batch, s.local_epochs, env.least):
        loss, g = grad_fn(w, batch)
        _, g_mixture = grad_fn(mixture(alpha, v, w), batch)
        next_alpha = adapted(alpha, v, w, g_mixture, eta) if s.adaptive and not losses else alpha
        w, v = w - eta * (g + s.weight_decay * w), v - eta * (alpha * g_mixture + s.weight_decay * v)
        alpha = next_alpha
        losses.append(loss)
    return w, v, alpha, sum(losses) / len(losses) if losses else None


# Device ---------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class DeviceState:
    """What a device remembers.

    Attributes:
        v: its own model; None until it has trained, here or in an earlier run.
        alpha: how much of it is in the mixture.
    """

    alpha: float
    v: Theta | None = None

    def personal(self, env: Env, w: Vector) -> Vector:
        return w if self.v is None else mixture(self.alpha, self.v, w)


def device_start(env: Env) -> Step:
    return DeviceState(env.settings.alpha, env.earlier.get("personal")), []


def device_receive(env: Env, s: DeviceState, sender: str, message: object) -> Step:
    m: FedavgModel = gather.expected(sender, message, FedavgModel)
    if env.samples == 0:
        return s, [Send(UP, Nobody())]
    w = lowrank.unpack(env.layout, m.model)
    w_local, v, alpha, loss = mixed_update(env, m.round, w, w if s.v is None else s.v, s.alpha)
    return DeviceState(alpha, v), [fedavg.answer_beside(env, w_local, loss, w, s.personal(env, w))]


APFL = replace(
    fedavg.FEDAVG,
    name="apfl",
    summary="a mixture of the shared and an own model",
    personal=KEPT_BESIDE,
    device=Role(device_start, device_receive, unchanged, DeviceState),
    settings=Settings,
    env=Env,
    models=fedavg.models_beside,
    paper=PAPER,
    recommended=RECOMMENDED,
    search=SEARCH,
    warms_up=True,
)
