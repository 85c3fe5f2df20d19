"""FedALA. J. Zhang, Y. Hua, H. Wang, T. Song, Z. Xue, R. Ma, H. Guan: "FedALA: Adaptive Local Aggregation for
Personalized Federated Learning", AAAI 2023 (arXiv:2212.01197).

FedAvg in which a device does not begin its local training at the global model w, but between w and its own last model
theta_i: in the highest layers, each parameter at a share W_i of the way, which the device learns.

    Algorithm 1                                                 here
    a random part of the clients                                draw.quotas, draw.chosen
    lines 6-8    a random share s of the samples                learned_weights
    line 9       W_i <- W_i - eta grad_W f_i, within 0 and 1    learned_weights
    eq. (4)      theta_hat = theta_i + (w - theta_i) W_i        aggregated
    line 11      theta_i: SGD from theta_hat                    fedavg.client_update
    line 13      w <- sum of k_i / sum of k theta_i             fedavg.average

In the lower layers theta_hat is w. W_i starts at 1. The first time a device learns it until the mean losses of its last
`window` epochs differ by less than `threshold` (standard deviation), at most `most_epochs` of them, a bound that the
paper does not have; afterwards one epoch in each round. In its first round a device has no theta_i and begins at w.
s = 0.8, eta = 1, one layer (two tensors) and window 10 are those of the authors' code (TsingZ0/FedALA, system/main.py
and system/utils/ALA.py). There the threshold is 0.1 if nothing is said, as here, and 0.01 in the paper's experiments
(README.md), and it is the loss of the last batch of each epoch that is looked at, here their mean. `PAPER` has these
values. In an evaluation a device is judged with theta_hat for the w that is evaluated and the W_i that it has.

Leaves the device: k_i theta_i, summed by its hospital, and scores as sums. Never: W_i. Kind of upload: memoryless.
When few answer: the mean is over those who did. Nobody: the same w again, with a new draw. theta_i and W_i move
whenever their device has trained, whether its upload was counted or not.
A lost disk: that device begins at w again, with W_i = 1; nothing else notices.
Devices that come or leave during a run: the draw is over those that there are; a new one begins as all have.
Hospitals: the same, with all their devices, whose W_i they bring along when they return.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from edge_sdk.algebra import lowrank
from edge_sdk.algebra.arrays import Theta, Values
from edge_sdk.algebra.vectors import Vector
from edge_sdk.contract.method import KEPT_BESIDE, UP, Role, Send, Step, unchanged
from edge_sdk.contract.search import OneOf, Range, SearchSpace
from edge_sdk.errors import UsageError
from edge_sdk.methods import fedavg
from edge_sdk.methods.fedavg import FedavgModel
from edge_sdk.methods.shared.aggregation import gather
from edge_sdk.methods.shared.aggregation.gather import Nobody
from edge_sdk.methods.shared.training import parts
from edge_sdk.methods.shared.training.local import TRAINING_SEARCH, above_zero, batches, gradient
from edge_sdk.methods.shared.training.parts import Spans

AGGREGATION = 2  # purpose of randomness


@dataclass(frozen=True, kw_only=True)
class Settings(fedavg.Settings):
    """Hyper-parameters: those of FedAvg, and of the aggregation on a device.

    Attributes:
        adaptive_slots: where W_i is learned, in the words of parts.py; everywhere else a device begins at w.
        eta_w: step size of W_i.
        share: of a device's samples, on which it learns W_i.
        threshold: spread of the mean losses of the last epochs at which the first learning ends.
        window: how many epochs these are.
        most_epochs: epochs after which the first learning ends in any case.
    """

    eta_l: float = 0.05
    adaptive_slots: str = parts.LAST
    eta_w: float = 1.0
    share: float = 0.8
    threshold: float = 0.1
    window: int = 10
    most_epochs: int = 50

    def __post_init__(self) -> None:
        super().__post_init__()
        above_zero(self, "eta_w", "threshold", "window", "most_epochs")
        if not 0 < self.share <= 1:
            raise UsageError(f"share = {self.share}: of a device's samples, above 0 and at most 1")
        if self.proximal or self.fine_tune_epochs:
            raise UsageError("proximal and fine_tune_epochs: FedALA has neither; leave them out")


PAPER: Mapping[str, Any] = {
    "eta_l": 0.005,
    "decay": 1.0,
    "weight_decay": 0.0,
    "batch": 10,
    "local_epochs": 1,
    "threshold": 0.01,
}
RECOMMENDED: Mapping[str, Any] = {"eta_l": 0.1, "local_epochs": 5}
SEARCH: SearchSpace = {
    **TRAINING_SEARCH,
    "eta_w": Range(0.1, 10.0),
    "share": OneOf((0.4, 0.8, 1.0)),
}


@dataclass(frozen=True, kw_only=True)
class Env(fedavg.Env):
    """What a node is given."""

    settings: Settings = field(default_factory=Settings)

    @property
    def adaptive(self) -> Spans:
        return parts.spans(parts.named(self.layout, self.settings.adaptive_slots, "adaptive_slots"))


# Equations ------------------------------------------------------------------------------------------------------
def aggregated(where: Spans, w: Vector, theta: Vector, weights: Vector) -> Vector:
    """Eq. (4): theta_hat. `weights`: W_i (k,), for the slots in `where`."""
    own, found = parts.taken(theta, where), w.copy()
    parts.put(found, where, own + (parts.taken(w, where) - own) * weights)
    return found


def learned_weights(env: Env, round: int, w: Vector, theta: Vector, weights: Vector, first: bool) -> Vector:
    """W_i after epochs of projected mini-batch SGD on a random share of the samples."""
    s, where, random = env.settings, env.adaptive, env.random(round, AGGREGATION)
    way = parts.taken(w, where) - parts.taken(theta, where)
    if not way.any():
        return weights
    along = parts.along(gradient(env, round, AGGREGATION), w, where)
    rows = random.permutation(env.samples)[: max(1, int(s.share * env.samples))]
    means: list[float] = []
    while len(means) < (s.most_epochs if first else 1) and not settled(means, s):
        losses = []
        for batch in batches(random, len(rows), s.batch, 1, env.least):
            at = parts.taken(theta, where) + way * weights
            loss, slope = along(at, rows if batch is None else rows[batch])
            weights = np.clip(weights - s.eta_w * slope * way, 0, 1)
            losses.append(loss)
        means.append(sum(losses) / len(losses))
    return weights


def settled(means: list[float], s: Settings) -> bool:
    """True if the mean losses of the last epochs are about the same; never before there are more than these."""
    return len(means) > s.window and float(np.std(means[-s.window :])) < s.threshold


# Device ---------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class DeviceState:
    """What a device remembers.

    Attributes:
        weights: W_i (k,).
        theta: its last local model; None until it has trained. In a new run the personal model of an earlier one is it.
        started: W_i has been learned for the first time.
    """

    weights: Values
    theta: Theta | None = None
    started: bool = False

    def personal(self, env: Env, w: Vector) -> Vector:
        return w if self.theta is None else aggregated(env.adaptive, w, self.theta, self.weights)


def device_start(env: Env) -> Step:
    return DeviceState(np.ones(parts.size(env.adaptive), env.theta0.dtype), env.earlier.get("personal")), []


def device_receive(env: Env, s: DeviceState, sender: str, message: object) -> Step:
    m: FedavgModel = gather.expected(sender, message, FedavgModel)
    if env.samples == 0:
        return s, [Send(UP, Nobody())]
    w = lowrank.unpack(env.layout, m.model)
    weights, begin = s.weights, w
    if s.theta is not None:
        weights = learned_weights(env, m.round, w, s.theta, weights, first=not s.started)
        begin = aggregated(env.adaptive, w, s.theta, weights)
    theta, loss = fedavg.client_update(env, m.round, begin, env.settings.local_epochs, fedavg.TRAINING)
    return DeviceState(weights, theta, s.theta is not None), [fedavg.answer_beside(env, theta, loss, w, begin)]


FEDALA = replace(
    fedavg.FEDAVG,
    name="fedala",
    summary="each device mixes the shared model into its own",
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
