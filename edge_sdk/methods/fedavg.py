"""FedAvg. B. McMahan, E. Moore, D. Ramage, S. Hampson, B. Aguera y Arcas: "Communication-Efficient Learning of Deep
Networks from Decentralized Data", AISTATS 2017.

    Algorithm 1                                                 here
    S_t, a random set of max(C K, 1) clients                    draw.quotas, draw.chosen
    ClientUpdate: E epochs of mini-batch SGD                    client_update
    w_{t+1} = sum over S_t of n_k / n w_k                       average

With `proximal` it is FedProx (Li et al., MLSys 2020): clients minimise f_k(w) + proximal/2 ||w - w_t||^2. With
`momentum` and `draw_epochs` too it is FedProx as FedBCD's experiments have it: FedBCD's own accelerated steps, from
v = v_prev = w, for a number of epochs that is drawn.
With a penalty it is one of the two alternatives that FedSLR's appendix A argues against: `server_penalty` is GPGD (one
proximal step after averaging), `local_penalty` is LPGD (one after every local step).

Leaves the device: n_k w_k, summed by its hospital, and scores as sums. Kind of upload: memoryless.
When few answer: the mean is over those who did. Nobody: the same w again, with a new draw.
Devices that come or leave during a run: the draw is over those that there are, and the mean over who answers.
Hospitals: the same, with all their devices; the next draw shares its devices out among them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from edge_sdk.algebra import lowrank, prox
from edge_sdk.algebra.lowrank import Packed
from edge_sdk.algebra.vectors import Layout, Vector
from edge_sdk.contract.method import UP, Method, NodeEnv, Role, Send, Step, ask_nobody, unchanged
from edge_sdk.contract.records import changed
from edge_sdk.contract.search import OneOf, SearchSpace
from edge_sdk.errors import UsageError
from edge_sdk.methods.shared.aggregation import draw, gather
from edge_sdk.methods.shared.aggregation.gather import Nobody, Sum, Tally
from edge_sdk.methods.shared.aggregation.server import PENALTIES, ServerTerms, Svt, penalty, server_step
from edge_sdk.methods.shared.aggregation.traffics import summed
from edge_sdk.methods.shared.evaluation.reports import progress, training_scores
from edge_sdk.methods.shared.training.local import (
    FINE_TUNED,
    TRAINING_SEARCH,
    Training,
    accelerate,
    batches,
    descend,
    gradient,
    local_prox,
    one_of,
    zero_or_more,
)

TRAINING, FINE_TUNING = 1, 2  # purposes of randomness


@dataclass(frozen=True, kw_only=True)
class Settings(Training):
    """Hyper-parameters.

    Attributes:
        weighting: of the mean: "samples" (n_k, as in the paper) or "uniform" (as FedSLR's comparisons have it).
        proximal: FedProx's mu; 0: FedAvg.
        momentum: weight of the last two iterates of a local phase (Nesterov); 0: there is none.
        draw_epochs: the epochs of each device and round are uniform on 1..local_epochs.
        lam: weight of the penalties below.
        server_penalty: "nuclear" or "l1" after averaging, with the local step size; "none".
        local_penalty: "nuclear" or "l1" after each local step; "none".
        fine_tune_epochs: passes that make a device's personal model out of w, for evaluation only; 0: there is none.
    """

    weighting: str = "samples"
    proximal: float = 0.0
    momentum: float = 0.0
    draw_epochs: bool = False
    lam: float = 0.0
    server_penalty: str = "none"
    local_penalty: str = "none"
    fine_tune_epochs: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        zero_or_more(self, "proximal", "lam", "fine_tune_epochs")
        one_of(self, ("samples", "uniform"), "weighting")
        one_of(self, PENALTIES, "server_penalty", "local_penalty")
        if not 0 <= self.momentum <= 1:
            raise UsageError(f"momentum = {self.momentum}: it lies between 0 and 1")
        if self.momentum and self.local_penalty != "none":
            raise UsageError(f"momentum = {self.momentum} with local_penalty = {self.local_penalty!r}: one of them")


EPOCHS: Mapping[str, Any] = {"local_epochs": 5}
RECOMMENDED: Mapping[str, Any] = {**EPOCHS, "fine_tune_epochs": 5}
SEARCH: SearchSpace = {**TRAINING_SEARCH, "fine_tune_epochs": OneOf((0, 1, 2, 5, 10))}


@dataclass(frozen=True, kw_only=True)
class Env(NodeEnv):
    """What a node is given.

    Attributes:
        svt: aggregator: prox.svt or its twin on a GPU.
        fit: device: (w_t, what the round asks) -> w_k, number of samples, mean loss or None: training code of the
            application in place of `client_update`; None: there is none.
    """

    settings: Settings = field(default_factory=Settings)
    svt: Svt = prox.svt
    fit: Callable[[Vector, Mapping[str, Any]], tuple[Vector, int, float | None]] | None = None


# Messages -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class FedavgModel:
    """Down: the model of a round.

    Attributes:
        model: w_t.
        round: t, global.
        pick: how many devices of the receiving hospital take part.
    """

    written_as: ClassVar[str] = "Global"

    model: Packed
    round: int
    pick: int

    def check(self, layout: Layout) -> None:
        if self.round < 0 or self.pick < 0:
            raise ValueError(f"round {self.round}, {self.pick} devices: both are 0 or more")


# Equations ------------------------------------------------------------------------------------------------------
def client_update(env: Env, round: int, w: Vector, epochs: int, purpose: int) -> tuple[Vector, float | None]:
    """Epochs of mini-batch SGD on f_k(v) + weight_decay/2 ||v||^2 + proximal/2 ||v - w||^2, from v = w.

    Returns:
        w_k, and the mean loss of the batches (None where there was no batch).
    """
    s, v = env.settings, w.copy()
    random = env.random(round, purpose)
    if s.draw_epochs and purpose == TRAINING:
        epochs = int(random.integers(1, epochs + 1))
    steps = batches(random, env.samples, s.batch, epochs, env.least)
    pull, damp = s.proximal * w if s.proximal else None, s.weight_decay + s.proximal
    slope = gradient(env, round, purpose)
    if s.momentum:
        return v, accelerate(slope, v, steps, s.eta(round), s.momentum, damp=damp, pull=pull)
    shrink = local_prox(s.local_penalty, env.layout, v, s.lam * s.eta(round))
    loss = descend(slope, v, steps, s.eta(round), damp=damp, pull=pull, prox=shrink)
    return v, loss


def average(env: Env, round: int, w: Vector, uploads: Sum) -> Packed:
    """w_{t+1} = prox_{eta lambda R}(sum of n_k w_k / sum of n_k)."""
    s = env.settings
    terms = ServerTerms(prox=penalty(s.server_penalty, s.lam, env.svt))
    return server_step(terms, env.layout, uploads.total / uploads.weight, at=w, step=s.eta(round))


# Device ---------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class DeviceState:
    """A device remembers nothing."""

    written_as: ClassVar[str] = "Device"


def device_start(env: Env) -> Step:
    return DeviceState(), []


def train(env: Env, round: int, w: Vector) -> tuple[Vector, int, float | None]:
    """w_k, the number of samples that it counts with, and their mean loss, by the application's code if it has any."""
    s = env.settings
    if env.fit is not None:
        asked = {"local_epochs": s.local_epochs, "batch": s.batch, "weight_decay": s.weight_decay}
        return env.fit(w.copy(), {"round": round, "eta_l": s.eta(round), **asked})
    w_local, loss = client_update(env, round, w, s.local_epochs, TRAINING)
    return w_local, env.labelled, loss


def device_receive(env: Env, s: DeviceState, sender: str, message: object) -> Step:
    m: FedavgModel = gather.expected(sender, message, FedavgModel)
    w = lowrank.unpack_shared(env.layout, m.model)
    w_local, samples, loss = train(env, m.round, w)
    weight = float(samples) if env.settings.weighting == "samples" else 1.0
    if weight == 0:
        return s, [Send(UP, Nobody())]
    total = w_local if weight == 1.0 else weight * w_local
    return s, [Send(UP, Sum(total, weight, 1, training_scores(env, loss, {"global": w})))]


# Hospital -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class HospitalState:
    """`tally`: the uploads of the latest question."""

    written_as: ClassVar[str] = "Hospital"

    tally: Tally | None = None


def hospital_start(env: Env) -> Step:
    return HospitalState(), []


def hospital_receive(env: Env, s: HospitalState, sender: str, message: object) -> Step:
    if sender != UP:
        return changed(s, tally=gather.gathered(env, s.tally, sender, message)), []
    m: FedavgModel = gather.expected(sender, message, FedavgModel)
    return HospitalState(), [Send(draw.chosen(env, m.round, m.pick), m)]


def hospital_close(env: Env, s: HospitalState) -> Step:
    return HospitalState(), [Send(UP, gather.answer(s.tally, env.theta0))]


# Aggregator -----------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class AggregatorState:
    """What FedAvg's aggregator remembers.

    Attributes:
        model: w_t as it is sent; the first one is dense.
        round: t.
        tally: the uploads of this round.
    """

    written_as: ClassVar[str] = "Aggregator"

    model: Packed
    round: int = 0
    tally: Tally | None = None


def aggregator_start(env: Env) -> Step:
    if env.devices < 1:
        raise UsageError("the aggregator knows of no device: sizes names each hospital with its number of devices")
    s = AggregatorState(lowrank.dense(env.layout, env.theta0))
    return s, questions(env, s)


def questions(env: Env, s: AggregatorState) -> list[Send]:
    quotas = draw.quotas(env, s.round, env.settings.participation, env.settings.selection)
    return [Send(h, FedavgModel(s.model, s.round, k)) for h, k in quotas.items()] or [ask_nobody(show(env, s))]


def aggregator_receive(env: Env, s: AggregatorState, sender: str, message: object) -> Step:
    return replace(s, tally=gather.gathered(env, s.tally, sender, message)), []


def aggregator_close(env: Env, s: AggregatorState) -> Step:
    done = progress(s.round + 1, s.tally)
    s = step(env, s)
    return s, [done] if s.round >= env.rounds else [done, *questions(env, s)]


def step(env: Env, s: AggregatorState) -> AggregatorState:
    """Nobody answered: the same model again, with a new draw."""
    if s.tally is None:
        return replace(s, round=s.round + 1)
    w = lowrank.unpack(env.layout, s.model)
    return AggregatorState(average(env, s.round, w, gather.total(s.tally, env.theta0)), s.round + 1)


# For evaluation -------------------------------------------------------------------------------------------------
def show(env: Env, s: AggregatorState) -> FedavgModel:
    return FedavgModel(s.model, s.round, 0)


def models(env: Env, s: DeviceState | None, m: FedavgModel) -> dict[str, Vector]:
    w = lowrank.unpack(env.layout, m.model)
    if s is None or env.settings.fine_tune_epochs == 0:
        return {"global": w}
    return {"global": w, "personal": client_update(env, m.round, w, env.settings.fine_tune_epochs, FINE_TUNING)[0]}


# For methods whose devices keep a model of their own beside w: `replace(FEDAVG, ...)` says what differs ----------
def answer_beside(env: Env, w_local: Vector, loss: float | None, w: Vector, personal: Vector) -> Send:
    """The upload of a device that trained w_local from w, with the scores of w and of its personal model."""
    weight = float(env.labelled) if env.settings.weighting == "samples" else 1.0
    scores = training_scores(env, loss, {"global": w, "personal": personal})
    return Send(UP, Sum(weight * w_local, weight, 1, scores))


def models_beside(env: Any, s: Any, m: FedavgModel) -> dict[str, Vector]:
    """w and, of a device, what its state makes of it: `personal(env, w)`."""
    w = lowrank.unpack(env.layout, m.model)
    return {"global": w} if s is None else {"global": w, "personal": s.personal(env, w)}


FEDAVG = Method(
    name="fedavg",
    summary="one model for all: the mean of what devices have learned",
    personal=FINE_TUNED,
    device=Role(device_start, device_receive, unchanged, DeviceState),
    hospital=Role(hospital_start, hospital_receive, hospital_close, HospitalState),
    aggregator=Role(aggregator_start, aggregator_receive, aggregator_close, AggregatorState),
    messages=(FedavgModel, Sum, Nobody),
    settings=Settings,
    env=Env,
    show=show,
    models=models,
    traffic=summed(FedavgModel, "model"),
    recommended=RECOMMENDED,
    search=SEARCH,
    adds_up=True,
)
