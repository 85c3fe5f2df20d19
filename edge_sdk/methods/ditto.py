"""Ditto. T. Li, S. Hu, A. Beirami, V. Smith: "Ditto: Fair and Robust Federated Learning Through Personalization", ICML
2021 (arXiv:2012.04221v3).

FedAvg trains a global model w (fedavg.py); beside it each device trains a model v_i of its own that is held near w:
    min over v of h_i(v; w) = f_i(v) + lambda/2 ||v - w||^2                                             eq. (Ditto)

    Algorithm 1                                                 here
    line 2      a part S_t of the devices                       draw.quotas, draw.chosen
    line 4      UPDATE_GLOBAL: w_i from w_t, here FedAvg's      fedavg.client_update
    line 5      s steps v_i <- v_i - eta (grad f_i(v_i) + lambda (v_i - w_t))   personal_update
    line 7      AGGREGATE, here FedAvg's mean                   fedavg.average

The paper leaves open the solver of w (here FedAvg, and with FedAvg's settings FedProx and its other relatives) and the
first v_i: it is the w that a device receives first, which in round 0 is the paper's w_0. Means are weighted by samples,
as in FedAvg; weighting = "uniform" is the authors' code, which draws devices by their samples instead.
Settings are those of the authors' run on Fashion MNIST (lambda = 1, step size 0.05) where FedAvg has no other default.

Leaves the device: n_i w_i, summed by its hospital, and scores as sums. Never: v_i. Kind of upload: memoryless.
When few answer: the mean is over those who did. Nobody: the same w again, with a new draw. A v_i moves whenever its
device has trained, whether its upload was counted or not: nobody else's numbers depend on it.
A lost disk: that device's v_i starts again at the next w it receives; nothing else notices.
Devices that come or leave during a run: the draw is over those that there are; a new v_i begins at its first w.
Hospitals: the same, with all their devices, whose v_i they bring along when they return.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from edge_sdk.algebra import lowrank
from edge_sdk.algebra.arrays import Theta
from edge_sdk.algebra.vectors import Vector
from edge_sdk.contract.method import KEPT_BESIDE, UP, Role, Send, Step, unchanged
from edge_sdk.contract.search import OneOf, Range, SearchSpace
from edge_sdk.errors import UsageError
from edge_sdk.methods import fedavg
from edge_sdk.methods.fedavg import FedavgModel
from edge_sdk.methods.shared.aggregation import gather
from edge_sdk.methods.shared.aggregation.gather import Nobody
from edge_sdk.methods.shared.training.local import TRAINING_SEARCH, batches, descend, gradient, zero_or_more

PERSONAL = 2  # purpose of randomness: w must not depend on how v is trained


@dataclass(frozen=True, kw_only=True)
class Settings(fedavg.Settings):
    """Hyper-parameters: those of FedAvg for w, and two for v.

    Attributes:
        nearness: the paper's lambda, weight of 1/2 ||v - w||^2; 0: each device trains v alone.
        personal_epochs: passes over a device's samples per round that train v.
    """

    eta_l: float = 0.05
    nearness: float = 1.0
    personal_epochs: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        zero_or_more(self, "nearness", "personal_epochs")
        if self.fine_tune_epochs:
            raise UsageError(f"fine_tune_epochs = {self.fine_tune_epochs}: here v is the personal model")


RECOMMENDED: Mapping[str, Any] = {"eta_l": 0.1, "local_epochs": 5, "nearness": 0.1, "personal_epochs": 5}
SEARCH: SearchSpace = {**TRAINING_SEARCH, "nearness": Range(1e-2, 3.0), "personal_epochs": OneOf((1, 2, 5, 10))}


@dataclass(frozen=True, kw_only=True)
class Env(fedavg.Env):
    """What a node is given."""

    settings: Settings = field(default_factory=Settings)


# Equations ------------------------------------------------------------------------------------------------------
def personal_update(env: Env, round: int, v: Vector, w: Vector) -> Vector:
    """Line 5: mini-batch SGD on f_i(v) + weight_decay/2 ||v||^2 + lambda/2 ||v - w||^2, from the v of before."""
    s, v = env.settings, v.copy()
    steps = batches(env.random(round, PERSONAL), env.samples, s.batch, s.personal_epochs, env.least)
    damp, pull = s.weight_decay + s.nearness, s.nearness * w
    descend(gradient(env, round, PERSONAL), v, steps, s.eta(round), damp=damp, pull=pull)
    return v


# Device ---------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class DeviceState:
    """What a device remembers. `v`: its personal model; None until it has trained, here or in an earlier run."""

    v: Theta | None = None

    def personal(self, env: Env, w: Vector) -> Vector:
        return w if self.v is None else self.v


def device_start(env: Env) -> Step:
    return DeviceState(env.earlier.get("personal")), []


def device_receive(env: Env, s: DeviceState, sender: str, message: object) -> Step:
    m: FedavgModel = gather.expected(sender, message, FedavgModel)
    if env.samples == 0:
        return s, [Send(UP, Nobody())]
    w = lowrank.unpack(env.layout, m.model)
    w_local, loss = fedavg.client_update(env, m.round, w, env.settings.local_epochs, fedavg.TRAINING)
    v = s.personal(env, w)
    return DeviceState(personal_update(env, m.round, v, w)), [fedavg.answer_beside(env, w_local, loss, w, v)]


DITTO = replace(
    fedavg.FEDAVG,
    name="ditto",
    summary="an own model beside the shared one, held near to it",
    personal=KEPT_BESIDE,
    device=Role(device_start, device_receive, unchanged, DeviceState),
    settings=Settings,
    env=Env,
    models=fedavg.models_beside,
    recommended=RECOMMENDED,
    search=SEARCH,
    warms_up=True,
)
