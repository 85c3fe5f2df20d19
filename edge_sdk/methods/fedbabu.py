"""FedBABU. J. Oh, S. Kim, S.-Y. Yun: "FedBABU: Toward Enhanced Representation for Federated Image Classification", ICLR
2022 (arXiv:2106.06042).

In training only the body of the model moves: the head stays as it was drawn, and is the same on all devices. For
evaluation each device makes a model of its own by fine-tuning.

    Algorithm 1                                                 here
    a random part of the clients                                draw.quotas, draw.chosen
    ClientUpdate: tau epochs of SGD on the body, head frozen    body_phase
    theta_ext <- sum of n_k / n theta_ext,k                     partial.step
    section 5.2: fine-tuning for evaluation, tau_f epochs       fine_tuned

The paper fine-tunes the whole model (`tune = "all"`; it compares "head" and "body") for tau_f = 5 epochs in most
tables; here fine-tuning takes the step size of the round. `PAPER` is what the authors' code has (jhoon-oh/FedBABU,
scripts/run_fedbabu.sh), with the middle one of its tau = 1, 4, 10. Devices here do not have its momentum of 0.9, nor a
step that falls to a tenth after half and three quarters of the rounds. Its code takes a plain mean, of equal shards.

Leaves the device: n_k times its body, summed by its hospital, and scores as sums. Never: what it has fine-tuned,
which it does not keep either: a device remembers nothing. Kind of upload: memoryless.
When few answer: the mean is over those who did. Nobody: the same body again, with a new draw.
A lost disk: nobody notices.
Devices that come or leave during a run: the draw is over those that there are, and the mean over who answers.
Hospitals: the same, with all their devices; the next draw shares its devices out among them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from edge_sdk.algebra.vectors import Vector
from edge_sdk.contract.method import UP, Method, Role, Send, Step, unchanged
from edge_sdk.contract.search import OneOf, SearchSpace
from edge_sdk.methods.shared.aggregation import gather
from edge_sdk.methods.shared.aggregation.gather import Nobody
from edge_sdk.methods.shared.evaluation.reports import training_scores
from edge_sdk.methods.shared.training import partial
from edge_sdk.methods.shared.training.local import FINE_TUNED, TRAINING_SEARCH, one_of, zero_or_more
from edge_sdk.methods.shared.training.partial import PartEnv, PartTraining, SharedPart

TRAINING, FINE_TUNING = 1, 2  # purposes of randomness


@dataclass(frozen=True, kw_only=True)
class Settings(PartTraining):
    """Hyper-parameters; personal_slots is the head that is frozen in training.

    Attributes:
        fine_tune_epochs: passes that make a device's personal model, for evaluation only.
        tune: what they train: "all", "head" or "body".
    """

    fine_tune_epochs: int = 5
    tune: str = "all"

    def __post_init__(self) -> None:
        super().__post_init__()
        zero_or_more(self, "fine_tune_epochs")
        one_of(self, ("all", "head", "body"), "tune")


PAPER: Mapping[str, Any] = {"eta_l": 0.1, "decay": 1.0, "weight_decay": 0.0, "batch": 50, "local_epochs": 4}
RECOMMENDED: Mapping[str, Any] = {"local_epochs": 5, "fine_tune_epochs": 20}
SEARCH: SearchSpace = {
    **TRAINING_SEARCH,
    "fine_tune_epochs": OneOf((1, 2, 5, 10, 20)),
    "tune": OneOf(("all", "head", "body")),
}


@dataclass(frozen=True, kw_only=True)
class Env(PartEnv):
    """What a node is given."""

    settings: Settings = field(default_factory=Settings)


# Equations ------------------------------------------------------------------------------------------------------
def body_phase(env: Env, round: int, theta: Vector) -> tuple[Vector, float | None]:
    """ClientUpdate: mini-batch SGD on the body."""
    return partial.descended(env, round, theta, env.parts.shared, env.settings.local_epochs, TRAINING)


def fine_tuned(env: Env, round: int, theta: Vector) -> Vector:
    """A device's personal model."""
    where = {"all": None, "head": env.parts.personal, "body": env.parts.shared}[env.settings.tune]
    return partial.descended(env, round, theta, where, env.settings.fine_tune_epochs, FINE_TUNING)[0]


# Device ---------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class DeviceState:
    """A device remembers nothing."""


def device_start(env: Env) -> Step:
    return DeviceState(), []


def device_receive(env: Env, s: DeviceState, sender: str, message: object) -> Step:
    m: SharedPart = gather.expected(sender, message, SharedPart)
    theta = received(env, m)
    if env.samples == 0:
        return s, [Send(UP, Nobody())]
    after, loss = body_phase(env, m.round, theta)
    return s, [Send(UP, partial.upload(env, after, training_scores(env, loss, {"global": theta})))]


def received(env: Env, m: SharedPart) -> Vector:
    return partial.whole(env, m, partial.initial(env))


# For evaluation -------------------------------------------------------------------------------------------------
def models(env: Env, s: DeviceState | None, m: SharedPart) -> dict[str, Vector]:
    theta = received(env, m)
    if s is None:
        return {"global": theta}
    return {"global": theta, "personal": fine_tuned(env, m.round, theta) if env.samples else theta}


FEDBABU = Method(
    name="fedbabu",
    summary="a shared body under a head that stays as it began",
    personal=FINE_TUNED,
    device=Role(device_start, device_receive, unchanged, DeviceState),
    hospital=partial.HOSPITAL,
    aggregator=partial.AGGREGATOR,
    messages=partial.MESSAGES,
    settings=Settings,
    env=Env,
    show=partial.show,
    models=models,
    traffic=partial.TRAFFIC,
    paper=PAPER,
    recommended=RECOMMENDED,
    search=SEARCH,
    adds_up=True,
)
