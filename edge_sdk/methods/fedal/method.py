"""FedAL. P. Han, X. Shi, J. Huang: "FedAL: Black-Box Federated Knowledge Distillation Enabled by Adversarial Learning",
arXiv 2311.16584.

Every device trains a model of its own, of any architecture. They learn from each other through their outputs on public
inputs that all devices have; a discriminator at the aggregator makes them alike. There is no global model.

    Algorithm 1                                                     here
    local stage     tau steps on CE + r_loc, (14) (15)              local_stage
    transfer stage  tau exchanges, each:
      (a) f_n on the common batch P^{t,i}, up                       public_rows, with_logits
      (b) an ascent step of the discriminator, (13)                 fedal_server.taught
      (c) fbar, the mean of all logits                              distillation.mean_of
      (d) g_n at the new w and the old f_n, (19)                    fedal_server.played
      (e) fbar for all and g_n for its device alone, down           Consensus, Feedback
      (f) a step on KL + U_n + r_glo, (16) (17)                     transfer_stage, transfer_cotangent

A round is tau + 1 closes of the aggregator: the last answer carries no logits, only that the device is done.

Where the paper contradicts itself or is silent: the target leaves the device itself out, as in (5), rebuilt from the
broadcast (the printed algorithm has the mean of all: `target`); one optimiser for both stages; batches without
replacement, independent of each other; g_n is each input's own derivative, so the device divides by B. Step (f) goes
through the outputs that were sent. Initial models are the bundles', or such of each device's own (`start`).
Variants are weights, see `fedal_settings.VARIANTS`: FedMD, FedMD-LF, FedMD-AL, FedAL; FedDF and FedDF-AL also average
parameters within equal architectures (`averaging`), which takes another exchange of models.

Leaves the device: logits on public inputs, and scores as sums; with `averaging` also |D_n| theta_n, summed by its
hospital, and a fingerprint of its architecture. Leaves the hospital: these logits under numbers in place of names.
Never: inputs, labels, names; without `averaging` no parameter and no architecture.
Kind of upload: memoryless. Who misses an exchange sits out until the next local stage; the mean and the discriminator
are of those who answered. One alone: there is nothing to learn from, so no step. Nobody: the round is over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from edge_sdk.algebra.arrays import Theta
from edge_sdk.algebra.vectors import Vector
from edge_sdk.contract.method import UP, Method, Role, Send, Step, unchanged
from edge_sdk.errors import PeerError, UsageError
from edge_sdk.methods.fedal import distillation
from edge_sdk.methods.fedal.aggregator import (
    Aggregator,
    Hospital,
    aggregator_close,
    aggregator_receive,
    aggregator_start,
    hospital_close,
    hospital_receive,
    hospital_start,
)
from edge_sdk.methods.fedal.distillation import Floats, Logits, Stack
from edge_sdk.methods.fedal.memory import Memory, empty, optimiser, remembered
from edge_sdk.methods.fedal.messages import (
    LOGITS,
    MODEL,
    Average,
    Averages,
    Consensus,
    Feedback,
    Local,
    Outputs,
    Parcel,
    Settled,
    Share,
    Shares,
    Shown,
)
from edge_sdk.methods.fedal.settings import LOCAL, PUBLIC, START, Env, Inputs, Rows, Settings, warnings
from edge_sdk.methods.shared import gather
from edge_sdk.methods.shared.gather import Nobody
from edge_sdk.methods.shared.local import gradient as loss_gradient
from edge_sdk.methods.shared.reports import judge


# Equations ------------------------------------------------------------------------------------------------------
def given(value: Any, env: Env, name: str) -> Any:
    if value is None:
        raise UsageError(f"{env.me} was given no {name}, so it cannot train")
    return value


def private_rows(env: Env, round: int, step: int) -> Rows:
    """D_n^{t,i}: without replacement, independent of the other batches; all samples where there are fewer."""
    random = env.random(round, LOCAL, step)
    return np.sort(random.choice(env.samples, min(env.settings.batch, env.samples), replace=False))


def public_rows(env: Env, round: int, exchange: int) -> Rows:
    """P^{t,i}: a function of (seed, t, i), so that all devices have the same without a byte."""
    inputs: Inputs = given(env.public, env, "public inputs")
    if inputs.count < env.settings.public_batch:
        raise UsageError(f"{inputs.count} public inputs, a batch has public_batch = {env.settings.public_batch}")
    random = np.random.default_rng([env.seed, round, exchange, PUBLIC])
    return np.sort(random.choice(inputs.count, env.settings.public_batch, replace=False))


def local_gradient(env: Env, theta: Vector, start: Vector | None, rows: Rows) -> tuple[float, Vector]:
    """Mean cross entropy of a batch, and the gradient of (14): that + lf_local r_loc, (11).

    Args:
        start: theta^{t,0}, whose outputs are not to be forgotten; None: there is no such term.
    """
    if start is None:
        return loss_gradient(env)(theta, rows)
    s, inputs = env.settings, given(env.private, env, "private inputs")
    f = inputs.logits(theta, rows)
    loss, cotangent = distillation.cross_entropy(given(env.labels, env, "labels")[rows], f)
    before = distillation.softmax(inputs.logits(start, rows), s.memory_temperature)
    cotangent = cotangent + s.lf_local * distillation.divergence_gradient(before, f, s.memory_temperature)
    return loss, inputs.pull(theta, rows, (cotangent / len(rows)).astype(f.dtype))


def transfer_cotangent(settings: Settings, f: Floats, reference: Floats | None, m: Feedback) -> Floats | None:
    """d V_glo / d f of each input, (16) with g_n for the adversarial term; None: there is nothing to learn from.

    Args:
        f: (B, K), the logits that were sent. reference: the same inputs' at the start of the stage, (12).
    """
    if m.count < 2:
        return None
    terms: list[Floats] = []
    if settings.kd and m.mean is not None:
        target = m.mean if settings.target == "all" else distillation.of_others(m.mean, m.count, f)
        terms.append(settings.kd * distance_gradient(settings, target, f))
    if settings.al and m.gradient is not None:
        g = distillation.clipped(m.gradient, settings.clip) if settings.clip else m.gradient
        terms.append(settings.al * g)
    if settings.lf_transfer and reference is not None:
        q = distillation.softmax(reference, settings.memory_temperature)
        terms.append(settings.lf_transfer * distillation.divergence_gradient(q, f, settings.memory_temperature))
    return np.asarray(sum(terms[1:], terms[0]), f.dtype) if terms else None


def distance_gradient(settings: Settings, target: Floats, f: Floats) -> Floats:
    """Of K(consensus, own), (16); of features, of their mean squared distance."""
    if settings.features:
        return np.asarray(2 * (f - target) / f.shape[1])
    q = distillation.softmax(target, settings.temperature_kd)
    return distillation.divergence_gradient(q, f, settings.temperature_kd)


# Device ---------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Device:
    """Attributes:
    theta: its model.
    memory: of its optimiser.
    sent: (B, K), the logits that the next feedback refers to; (0, 0): none.
    references: (tau, B, K), outputs at the start of the transfer stage on its batches; (0, 0, 0): not needed.
    round, exchange: which batch `sent` is of; -1: it has not begun.
    loss: mean cross entropy of the latest local stage.
    scores: measured so far in this round.
    """

    theta: Theta
    memory: Memory
    sent: Logits
    references: Stack
    round: int = -1
    exchange: int = 0
    loss: float = 0.0
    scores: Mapping[str, float] = field(default_factory=dict)


def device_start(env: Env) -> Step:
    theta = env.theta0 if env.settings.start == "bundle" else shuffled(env)
    return Device(theta, empty(theta), *nothing(theta)), []


def shuffled(env: Env) -> Vector:
    """A start of one's own: the entries of each tensor of theta0 in another order, as likely where they were drawn
    independently of each other."""
    random, theta = env.random(0, START), env.theta0.copy()
    for slot in env.layout.slots:
        theta[slot.span] = random.permutation(theta[slot.span])
    return theta


def nothing(theta: Vector) -> tuple[Floats, Floats]:
    """`sent` and `references` where there are none."""
    return np.zeros((0, 0), theta.dtype), np.zeros((0, 0, 0), theta.dtype)


def device_receive(env: Env, s: Device, sender: str, message: object) -> Step:
    m = gather.expected(sender, message, Local, Feedback, Average)
    if isinstance(m, Local):
        s = local_stage(env, s, m.round)
    elif m.round != s.round or (isinstance(m, Feedback) and (m.exchange != s.exchange or not len(s.sent))):
        return s, [Send(UP, Nobody())]  # of a stage that this device has not seen: it has lost what it knew
    elif isinstance(m, Feedback):
        s = transfer_stage(env, s, m)
    else:
        s = with_average(env, s, m)
    return answered(env, s, m.then)


def local_stage(env: Env, s: Device, round: int) -> Device:
    """tau steps from theta^{t,0} on (14)."""
    settings, theta = env.settings, s.theta.copy()
    remember = settings.lf_local > 0 and not (settings.lf_skip_first and round == 0)
    opt = optimiser(settings.optimiser, settings.eta(round), known(env, s))
    losses = []
    for step in range(settings.tau if env.samples else 0):
        rows = private_rows(env, round, step)
        loss, gradient = local_gradient(env, theta, s.theta if remember else None, rows)
        losses.append(loss)
        opt.step(theta, gradient)
    mean = float(np.mean(losses)) if losses else 0.0
    scores = measured(env, round, "started", s.theta) | measured(env, round, "trained", theta)
    return Device(theta, remembered(opt, theta), *nothing(theta), round, 0, mean, scores)


def known(env: Env, s: Device) -> Memory:
    """What the optimiser goes on from, at the start of a stage."""
    return empty(s.theta) if env.settings.fresh_optimiser else s.memory


def transfer_stage(env: Env, s: Device, m: Feedback) -> Device:
    """Step (f) through the outputs that were sent, to theta^{t+1/2,i+1}."""
    for what, array in (("mean", m.mean), ("gradient", m.gradient)):
        if array is not None and array.shape != s.sent.shape:
            raise PeerError(f"{what} of shape {array.shape}, the logits sent have {s.sent.shape}")
    settings = env.settings
    reference = s.references[s.exchange] if len(s.references) else None
    cotangent = transfer_cotangent(settings, s.sent, reference, m)
    after = replace(s, exchange=s.exchange + 1, sent=s.sent[:0])
    if cotangent is None:
        return after
    inputs, rows = given(env.public, env, "public inputs"), public_rows(env, s.round, s.exchange)
    memory = known(env, s) if s.exchange == 0 else s.memory
    opt, theta = optimiser(settings.optimiser, settings.eta(s.round), memory), s.theta.copy()
    opt.step(theta, inputs.pull(theta, rows, (cotangent / len(rows)).astype(theta.dtype)))
    return replace(after, theta=theta, memory=remembered(opt, theta))


def with_average(env: Env, s: Device, m: Average) -> Device:
    """FedDF: the model of those with the same architecture."""
    if m.model is None:
        return s
    if m.model.shape != s.theta.shape:
        raise PeerError(f"a model of {len(m.model)} parameters, this device's has {len(s.theta)}")
    return replace(s, theta=m.model.astype(s.theta.dtype))


def alone(env: Env, told: Callable[[int], None] = lambda rounds: None) -> Vector:
    """The local stages of a whole run without any exchange, and with nothing to remember: cross entropy only."""
    plain = replace(env, settings=replace(env.settings, lf_local=0.0, measure=0))
    s: Device = device_start(plain)[0]
    for round in range(env.rounds):
        s = local_stage(plain, s, round)
        told(round + 1)
    return s.theta


def answered(env: Env, s: Device, then: str) -> Step:
    """What the question wants."""
    if then == LOGITS:
        s = with_logits(env, s)
        return s, [Send(UP, Outputs(s.sent))]
    if then == MODEL:
        return s, [Send(UP, share(env, s.theta))]
    loss = {"loss": s.loss} if env.samples else {}
    after = measured(env, s.round, "settled", s.theta)
    scores = {**loss, **judge(env, {"personal": s.theta}), **s.scores, **after}
    return s, [Send(UP, Settled(1, scores))]


def with_logits(env: Env, s: Device) -> Device:
    """(a): one forward pass, which is kept; at the start of the stage also what is not to be forgotten."""
    inputs: Inputs = given(env.public, env, "public inputs")
    if s.exchange == 0 and env.settings.lf_transfer:
        batches = [inputs.logits(s.theta, public_rows(env, s.round, i)) for i in range(env.settings.tau)]
        return replace(s, references=np.stack(batches), sent=batches[0])
    return replace(s, sent=inputs.logits(s.theta, public_rows(env, s.round, s.exchange)))


def share(env: Env, theta: Vector) -> Share | Nobody:
    weight = float(env.samples)
    return Share(env.architecture, theta.dtype.type(weight) * theta, weight) if weight else Nobody()


def measured(env: Env, round: int, when: str, theta: Vector) -> dict[str, float]:
    """Forgetting: accuracy on the own samples and on the held-out ones, before and after each stage."""
    every = env.settings.measure
    if not every or (round + 1) % every:
        return {}
    found = {}
    if env.private is not None and env.labels is not None and env.samples:
        right = env.private.logits(theta, np.arange(env.samples)).argmax(1) == env.labels
        found[f"{when}_own_accuracy"] = float(right.mean())
    judged = judge(env, {when: theta})
    return found | {name: value for name, value in judged.items() if name == f"{when}_accuracy"}


# For evaluation -------------------------------------------------------------------------------------------------
def show(env: Env, s: Aggregator) -> Shown:
    return Shown(s.round)


def models(env: Env, s: Device | None, m: Shown) -> dict[str, Vector]:
    return {} if s is None else {"personal": s.theta}


FEDAL = Method(
    name="fedal",
    device=Role(device_start, device_receive, unchanged, Device),
    hospital=Role(hospital_start, hospital_receive, hospital_close, Hospital),
    aggregator=Role(aggregator_start, aggregator_receive, aggregator_close, Aggregator),
    messages=(Local, Consensus, Feedback, Averages, Average, Outputs, Parcel, Share, Shares, Settled, Nobody, Shown),
    settings=Settings,
    env=Env,
    show=show,
    models=models,
    warnings=warnings,
    kernels="outputs",
    rounds_over=lambda s: s.round,
)
