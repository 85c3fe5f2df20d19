"""FedRep. L. Collins, H. Hassani, A. Mokhtari, S. Shakkottai: "Exploiting Shared Representations for Personalized
Federated Learning", ICML 2021 (arXiv:2102.07078).

All devices share a representation phi, the body of a model; each has a head h_i of its own. Many steps on the head with
the representation frozen, then few on the representation with the new head frozen.

    Algorithm 1                                                 here
    a part of the clients                                       draw.quotas, draw.chosen
    tau steps h_i <- GRD(f_i(h_i, phi_t), h_i, alpha)           alternating_phase, its first half
    phi_i <- GRD(f_i(h_i, phi_t), phi_t, alpha)                 alternating_phase, its second half
    phi_{t+1} <- mean of phi_i                                  partial.step

GRD is mini-batch SGD, counted in epochs as in the paper's experiments: 10 on the head and 1 on the representation in
each round. The means of Algorithm 1 are not weighted: `weighting` is "uniform" here. Each h_i begins as in the model
that the run begins with. `PAPER` is what the authors' code has for CIFAR-10 (lgcollins/FedRep,
scripts/FedRep_cifar10_2shards.sh and models/Update.py), but for its momentum of 0.5, which devices here do not have.
With head_epochs = 0 heads are never trained.

Leaves the device: phi_i, summed by its hospital, and scores as sums. Never: h_i. Kind of upload: memoryless.
When few answer: the mean is over those who did. Nobody: the same phi again, with a new draw. h_i moves whenever its
device has trained, whether its upload was counted or not.
A lost disk: that device's h_i starts again from the run's first model; nothing else notices.
"global" in reports is phi with the head that the run began with: no classifier, but what a newcomer starts from.
Devices that come or leave during a run: the draw is over those that there are; a new head begins as in round 0.
Hospitals: the same, with all their devices, whose heads they bring along when they return.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from edge_sdk.algebra.vectors import Vector
from edge_sdk.contract.search import OneOf, SearchSpace
from edge_sdk.methods.shared.training import partial
from edge_sdk.methods.shared.training.local import TRAINING_SEARCH, zero_or_more
from edge_sdk.methods.shared.training.partial import PartEnv, PartTraining

BODY, HEAD = 1, 2  # purposes of randomness


@dataclass(frozen=True, kw_only=True)
class Settings(PartTraining):
    """Hyper-parameters.

    Attributes:
        head_epochs: passes over a device's samples per round that train its head.
        local_epochs: passes that train the representation, after them.
    """

    weighting: str = "uniform"
    head_epochs: int = 10
    local_epochs: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        zero_or_more(self, "head_epochs")


PAPER: Mapping[str, Any] = {"eta_l": 0.01, "decay": 1.0, "weight_decay": 1e-4, "batch": 10}
RECOMMENDED: Mapping[str, Any] = {"eta_l": 0.1, "head_epochs": 5, "local_epochs": 5}
SEARCH: SearchSpace = {**TRAINING_SEARCH, "head_epochs": OneOf((1, 2, 5, 10))}


@dataclass(frozen=True, kw_only=True)
class Env(PartEnv):
    """What a node is given."""

    settings: Settings = field(default_factory=Settings)


def alternating_phase(env: Env, round: int, theta: Vector) -> tuple[Vector, float | None]:
    """The head with the representation frozen, then the representation with the new head frozen."""
    s, p = env.settings, env.parts
    theta, loss = partial.descended(env, round, theta, p.personal, s.head_epochs, HEAD)
    theta, later = partial.descended(env, round, theta, p.shared, s.local_epochs, BODY)
    return theta, later if loss is None else loss


FEDREP = replace(
    partial.method("fedrep", alternating_phase, Settings, Env),
    summary="shared body and own last layers, trained in turns",
    paper=PAPER,
    recommended=RECOMMENDED,
    search=SEARCH,
)
