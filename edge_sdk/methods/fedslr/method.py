"""FedSLR. T. Huang, L. Shen, Y. Sun, W. Lin, D. Tao: "Fusion of Global and Local Knowledge for Personalized Federated
Learning", Transactions on Machine Learning Research, 2023.

All devices share one low-rank model w; each adds a sparse component p_i of its own and predicts with w + p_i.

    Algorithm 2 (partial participation)                         here
    3        a part S_t of the clients                          draw.quotas, draw.chosen
    4        factors of w_t, by the SVD of line 10              lowrank.balanced, lowrank.pack
    5-6, 12  send them, rebuild w_t                             questions, lowrank.unpack
    17       w_{i,t+1}, phase I, eq. (4)                        local_phase
    7, 18    gamma_{i,t+1}, eq. (5)                             update_auxiliary
    21-23    p_{i,t,K}, phase II, eq. (7)                       local_fusion
    10       w_{t+1}, eq. (6)                                   aggregate
    Algorithm 3, line 6: one mean of gamma at the server        update_auxiliary, with the share of devices counted

Where the paper contradicts itself or is silent: eta_g * gamma, not the gamma / eta_g of Algorithm 2; w is averaged over
S_t, gamma over all devices; the threshold of phase II is mu times the current, decayed step size; phase II starts where
this device last stopped; gamma and p start at zero; w_t is what its factors give, on every tier.

Leaves the device: w_i, summed by its hospital, and scores as sums. Never: p_i, gamma_i.
Kind of upload: mirrored. The aggregator's mean of gamma assumes that gamma_i has moved if and only if w_i was counted.
So a device keeps `gamma` and `tried`, and each question says which upload of each receiver was counted last. A hospital
asks all that it has drawn with one message, so these read each other's names and rounds.
A node whose disk was lost remembers another round than it is told, and says so. Nobody knows its gamma_i any more, so
the mean cannot be mended: a new era begins, in which gamma is zero everywhere, as in the first round; w stays.
When few answer: S_t is those that were counted. Nobody: the same w again, with a new draw.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from edge_sdk.algebra import lowrank, prox
from edge_sdk.algebra.arrays import Theta
from edge_sdk.algebra.lowrank import Packed
from edge_sdk.algebra.vectors import Layout, Vector
from edge_sdk.contract.method import UP, Method, NodeEnv, Role, Send, Step, unchanged
from edge_sdk.errors import UsageError
from edge_sdk.methods.shared import draw, gather
from edge_sdk.methods.shared.gather import Nobody, Sum, Tally
from edge_sdk.methods.shared.local import (
    Training,
    above_zero,
    batches,
    descend,
    gradient,
    local_prox,
    one_of,
    zero_or_more,
)
from edge_sdk.methods.shared.reports import progress, training_scores
from edge_sdk.methods.shared.server import PENALTIES, ServerTerms, Svt, penalty, server_step

PHASE_I, PHASE_II = 1, 2  # purposes of randomness: w and gamma must not depend on phase II


@dataclass(frozen=True, kw_only=True)
class Settings(Training):
    """Hyper-parameters; the defaults are the paper's.

    Attributes:
        eta_g: global step size; 1 / (2 eta_g) weighs the pull to the global model.
        lam: weight of the global penalty (lambda).
        mu: weight of the personal penalty.
        personal_epochs: passes of phase II per round.
        settle_epochs: passes of phase II on the final w, before a device hands its personal model over. Problem (3) is
            stated at the final w; the paper's algorithm (0) ends with a p_i that was fitted to the w before it.
        personal_weight_decay: whether phase II decays p with weight_decay (the authors' code does).
        global_penalty: of the layers of w: "nuclear", "l1" or "none".
        personal_penalty: of p: "l1" or "nuclear" (an SVD per layer at every step).
        p_init: "zero", or "copy_w0" as the authors' code has it (norms excepted; the first mixed model is then 2 w_0).
        lipschitz: of the devices' gradients, where it is known; only for `warnings`.
    """

    eta_g: float = 10.0
    lam: float = 1e-4
    mu: float = 1e-3
    personal_epochs: int = 1
    settle_epochs: int = 0
    personal_weight_decay: bool = True
    global_penalty: str = "nuclear"
    personal_penalty: str = "l1"
    p_init: str = "zero"
    lipschitz: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        above_zero(self, "eta_g")
        zero_or_more(self, "lam", "mu", "personal_epochs", "settle_epochs")
        one_of(self, PENALTIES, "global_penalty")
        one_of(self, ("l1", "nuclear"), "personal_penalty")
        one_of(self, ("zero", "copy_w0"), "p_init")
        if self.lipschitz is not None:
            above_zero(self, "lipschitz")


def warnings(settings: Settings) -> list[str]:
    """Step sizes that the theorems do not cover. Runs converge well beyond them, so they are never refused."""
    found, smooth = [], settings.lipschitz
    if smooth is not None and settings.eta_l >= 2 / (smooth + 1):
        found.append(f"eta_l = {settings.eta_l}: Theorem 3 asks for less than 2 / (L + 1) = {2 / (smooth + 1):.3g}")
    if smooth is not None and settings.eta_g >= 1 / (2 * smooth):
        found.append(f"eta_g = {settings.eta_g}: Theorem 1 asks for less than 1 / (2 L) = {1 / (2 * smooth):.3g}")
    return found


@dataclass(frozen=True, kw_only=True)
class Env(NodeEnv):
    """What a node is given.

    Attributes:
        local_solver: device: (w, gamma) -> the exact minimiser of eq. (4), in place of SGD.
        svt: aggregator: prox.svt or its twin on a GPU.
        smooth_grad: aggregator: gradient of a further smooth term of the objective (theta -> (n,)).
    """

    settings: Settings = field(default_factory=Settings)
    local_solver: Callable[[Vector, Vector], Vector] | None = None
    svt: Svt = prox.svt
    smooth_grad: Callable[[Vector], Vector] | None = None


# Messages -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Global:
    """Down: the model of a round.

    Attributes:
        model: w_t; factors where they are smaller.
        round: t, global.
        pick: how many devices of the receiving hospital take part.
        counted: receiver -> the last round of this era in which its upload entered w.
        era: how often gamma has begun at zero again.
    """

    model: Packed
    round: int
    pick: int
    counted: Mapping[str, int]
    era: int = 0

    def check(self, layout: Layout) -> None:
        if min(self.round, self.pick, self.era) < 0:
            raise ValueError(f"round {self.round}, {self.pick} devices, era {self.era}: all are 0 or more")


@dataclass(frozen=True)
class Forgotten:
    """Up, in place of an upload: what this node remembers is not what the aggregator's mean of gamma was made of."""


# Equations ------------------------------------------------------------------------------------------------------
def local_phase(env: Env, round: int, w: Vector, gamma: Vector) -> tuple[Vector, float | None]:
    """Eq. (4), phase I: argmin_v f_i(v) + weight_decay/2 ||v||^2 - <gamma, v> + 1/(2 eta_g) ||w - v||^2, from v = w.

    Returns:
        w_{i,t+1}, and the mean loss of the batches (None where there was no batch).
    """
    if env.local_solver is not None:
        return env.local_solver(w, gamma), None
    s, v = env.settings, w.copy()
    steps = batches(env.random(round, PHASE_I), env.samples, s.batch, s.local_epochs)
    damp, pull = s.weight_decay + 1 / s.eta_g, gamma + w / s.eta_g
    return v, descend(gradient(env), v, steps, s.eta(round), damp=damp, pull=pull)


def update_auxiliary(gamma: Vector, w: Vector, w_local: Vector, eta_g: float, share: float = 1.0) -> Vector:
    """Eq. (5). With w_local the mean over a share of all devices: the same for the mean of gamma_i (Algorithm 3)."""
    return gamma + (share / eta_g) * (w - w_local)


def local_fusion(env: Env, round: int, w: Vector, p: Vector, epochs: int | None = None) -> Vector:
    """Eq. (7), phase II: proximal SGD on f_i(w + p) + mu ||p||_1 with w frozen. `epochs`: personal_epochs if None."""
    s, p = env.settings, p.copy()
    epochs = s.personal_epochs if epochs is None else epochs
    steps = batches(env.random(round, PHASE_II), env.samples, s.batch, epochs)
    shrink = local_prox(s.personal_penalty, env.layout, p, s.mu * s.eta(round))
    damp = s.weight_decay if s.personal_weight_decay else 0.0
    descend(gradient(env), p, steps, s.eta(round), damp=damp, base=w, prox=shrink)
    return p


def aggregate(env: Env, w: Vector, w_mean: Vector, gamma_mean: Vector) -> Packed:
    """Eq. (6): prox_{eta_g lambda ||.||_*}(mean over S_t of w_i - eta_g * mean over all of gamma_i), layer by layer."""
    s = env.settings
    terms = ServerTerms(env.smooth_grad, penalty(s.global_penalty, s.lam, env.svt))
    return server_step(terms, env.layout, w_mean - s.eta_g * gamma_mean, at=w, step=s.eta_g)


# What was counted -----------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Past:
    """What a node remembers of its uploads in an era.

    Attributes:
        era: which.
        round: of its last upload, or -1.
        counted: the round of the last one of which it knows that it entered w, or -1.
    """

    era: int = 0
    round: int = -1
    counted: int = -1


def recalled(past: Past, me: str, m: Global) -> Past | None:
    """What this node remembers now that it has been told what was counted; None: something else than it is told."""
    past, told = past if past.era == m.era else Past(m.era), m.counted.get(me, -1)
    return replace(past, counted=told) if told in (past.round, past.counted) else None


# Device ---------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Device:
    """Attributes:
    gamma: as the aggregator's mean has it, if the last upload was not counted.
    p: the personal component.
    tried: gamma, if that upload was counted.
    past: the global round in which this device last took part, and what became of it.
    """

    written_as: ClassVar[str] = "FedslrDevice"

    gamma: Theta
    p: Theta
    tried: Theta
    past: Past = field(default_factory=Past)


def device_start(env: Env) -> Step:
    zero = np.zeros_like(env.theta0)
    return Device(zero, zero if env.settings.p_init == "zero" else without_norms(env), zero), []


def without_norms(env: Env) -> Vector:
    p = env.theta0.copy()
    for slot in env.layout.slots:
        if slot.kind == "norm":
            p[slot.span] = 0
    return p


def device_receive(env: Env, s: Device, sender: str, message: object) -> Step:
    m: Global = gather.expected(sender, message, Global)
    past = recalled(s.past, env.me, m)
    if past is None:
        return s, [Send(UP, Forgotten())]
    gamma, w = auxiliary(s, past), lowrank.unpack(env.layout, m.model)
    w_local, loss = local_phase(env, m.round, w, gamma)
    tried = update_auxiliary(gamma, w, w_local, env.settings.eta_g)
    upload = Sum(w_local, 1.0, 1, training_scores(env, loss, {"global": w, "personal": w + s.p}))
    p = local_fusion(env, m.round, w, s.p)
    return Device(gamma, p, tried, replace(past, round=m.round)), [Send(UP, upload)]


def auxiliary(s: Device, past: Past) -> Vector:
    """gamma_i as the aggregator's mean has it."""
    if past.era != s.past.era:
        return np.zeros_like(s.gamma)
    return s.tried if past.counted == s.past.round else s.gamma


# Hospital -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Hospital:
    """Attributes:
    past: the round of the latest question, and what became of the sums.
    tally: the uploads of that round.
    counted: device -> the last round of this era in which its upload entered w.
    forgotten: a node has lost its memory, this one or a device.
    """

    written_as: ClassVar[str] = "FedslrHospital"

    past: Past = field(default_factory=Past)
    tally: Tally | None = None
    counted: Mapping[str, int] = field(default_factory=dict)
    forgotten: bool = False


def hospital_start(env: Env) -> Step:
    return Hospital(), []


def hospital_receive(env: Env, s: Hospital, sender: str, message: object) -> Step:
    if sender != UP:
        if isinstance(message, Forgotten):
            return replace(s, forgotten=True), []
        return replace(s, tally=gather.gathered(env, s.tally, sender, message)), []
    m: Global = gather.expected(sender, message, Global)
    past = recalled(s.past, env.me, m)
    if past is None:
        return Hospital(s.past, None, s.counted, forgotten=True), [Send((), m)]
    counted = confirmed(s, past)
    chosen = draw.chosen(env, m.round, m.pick)
    question = replace(m, counted={d: counted[d] for d in chosen if d in counted})
    return Hospital(replace(past, round=m.round), None, counted), [Send(chosen, question)]


def confirmed(s: Hospital, past: Past) -> Mapping[str, int]:
    """A device's upload counts only if its hospital's sum counted too."""
    if past.era != s.past.era:
        return {}
    heard = s.tally.heard if s.tally is not None and past.counted == s.past.round else ()
    return {**s.counted, **dict.fromkeys(heard, s.past.round)}


def hospital_close(env: Env, s: Hospital) -> Step:
    return s, [Send(UP, Forgotten() if s.forgotten else gather.answer(s.tally, env.theta0))]


# Aggregator -----------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Aggregator:
    """Attributes:
    model: w_t as it is sent; the first one is dense.
    gamma_mean: mean of gamma_i over all devices.
    round: t.
    tally: the uploads of this round.
    counted: hospital -> the last round of this era in which its sum entered w.
    era: how often gamma has begun at zero again.
    forgotten: a node has lost its memory.
    """

    written_as: ClassVar[str] = "FedslrAggregator"

    model: Packed
    gamma_mean: Theta
    round: int = 0
    tally: Tally | None = None
    counted: Mapping[str, int] = field(default_factory=dict)
    era: int = 0
    forgotten: bool = False


def aggregator_start(env: Env) -> Step:
    if env.devices < 1:
        raise UsageError("the aggregator knows of no device: sizes names each hospital with its number of devices")
    s = Aggregator(lowrank.dense(env.layout, env.theta0), np.zeros_like(env.theta0))
    return s, questions(env, s)


def questions(env: Env, s: Aggregator) -> list[Send]:
    quotas = draw.quotas(env, s.round, env.settings.participation, env.settings.selection)
    return [Send(h, question(s, h, k)) for h, k in quotas.items()] or [Send((), show(env, s))]


def question(s: Aggregator, hospital: str, devices: int) -> Global:
    return Global(s.model, s.round, devices, {h: r for h, r in s.counted.items() if h == hospital}, s.era)


def aggregator_receive(env: Env, s: Aggregator, sender: str, message: object) -> Step:
    if isinstance(message, Forgotten):
        return replace(s, forgotten=True), []
    return replace(s, tally=gather.gathered(env, s.tally, sender, message)), []


def aggregator_close(env: Env, s: Aggregator) -> Step:
    done = progress(s.round + 1, s.tally)
    s = step(env, s)
    return s, [done] if s.round >= env.rounds else [done, *questions(env, s)]


def step(env: Env, s: Aggregator) -> Aggregator:
    """Nobody answered: the same model again, with a new draw. Nor does a round count that begins an era."""
    if s.forgotten:
        return Aggregator(s.model, np.zeros_like(s.gamma_mean), s.round + 1, era=s.era + 1)
    if s.tally is None:
        return replace(s, round=s.round + 1)
    uploads, w = gather.total(s.tally, env.theta0), lowrank.unpack(env.layout, s.model)
    w_mean = uploads.total / uploads.count
    share = uploads.count / env.devices
    gamma_mean = update_auxiliary(s.gamma_mean, w, w_mean, env.settings.eta_g, share)
    counted = {**s.counted, **dict.fromkeys(s.tally.heard, s.round)}
    return Aggregator(aggregate(env, w, w_mean, gamma_mean), gamma_mean, s.round + 1, None, counted, s.era)


# For evaluation -------------------------------------------------------------------------------------------------
def show(env: Env, s: Aggregator) -> Global:
    return Global(s.model, s.round, 0, {})


def models(env: Env, s: Device | None, m: Global) -> dict[str, Vector]:
    w = lowrank.unpack(env.layout, m.model)
    return {"global": w} if s is None else {"global": w, "personal": w + settled(env, m.round, w, s.p)}


def settled(env: Env, round: int, w: Vector, p: Vector) -> Vector:
    """p_i as it is or, where w is final and settings ask for it, fitted to this w."""
    epochs = env.settings.settle_epochs if round >= env.rounds else 0
    return local_fusion(env, round, w, p, epochs) if epochs else p


FEDSLR = Method(
    name="fedslr",
    device=Role(device_start, device_receive, unchanged, Device),
    hospital=Role(hospital_start, hospital_receive, hospital_close, Hospital),
    aggregator=Role(aggregator_start, aggregator_receive, aggregator_close, Aggregator),
    messages=(Global, Sum, Nobody, Forgotten),
    settings=Settings,
    env=Env,
    show=show,
    models=models,
    warnings=lambda settings, sizes: warnings(settings),
)
