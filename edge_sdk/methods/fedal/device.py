"""FedAL's device: the local stage on its own samples, and the transfer stage on what the others know."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from edge_sdk.algebra.arrays import Theta
from edge_sdk.algebra.ensemble import COMPANION
from edge_sdk.algebra.vectors import Vector
from edge_sdk.contract.environment.kernels import Inputs
from edge_sdk.contract.method import UP, Send, Step
from edge_sdk.errors import PeerError
from edge_sdk.methods.fedal.distillation import Floats, Logits, Stack
from edge_sdk.methods.fedal.equations import (
    draw_private_rows,
    draw_public_rows,
    local_gradient,
    require,
    transfer_cotangent,
)
from edge_sdk.methods.fedal.memory import Memory, empty, optimiser, remembered
from edge_sdk.methods.fedal.messages import LOGITS, MODEL, Average, Feedback, Local, Outputs, Settled, Share, Shown
from edge_sdk.methods.fedal.settings import START, Env
from edge_sdk.methods.shared.aggregation import gather
from edge_sdk.methods.shared.aggregation.gather import Nobody
from edge_sdk.methods.shared.evaluation.reports import judge, loss_scores


@dataclass(frozen=True)
class DeviceState:
    """What FedAL's device remembers.

    Attributes:
        theta: its model.
        memory: of its optimiser.
        sent: (B, K), the logits that the next feedback refers to; (0, 0): none.
        references: (tau, B, K), outputs at the start of the transfer stage on its batches; (0, 0, 0): not needed.
        round, exchange: which batch `sent` is of; -1: it has not begun.
        loss: mean cross entropy of the latest local stage.
        scores: measured so far in this round.
    """

    written_as: ClassVar[str] = "Device"

    theta: Theta
    memory: Memory
    sent: Logits
    references: Stack
    round: int = -1
    exchange: int = 0
    loss: float = 0.0
    scores: Mapping[str, float] = field(default_factory=dict)


def device_start(env: Env) -> Step:
    theta = env.theta0 if env.settings.start == "bundle" else shuffle_start(env)
    theta = env.earlier.get("personal", env.earlier.get(COMPANION, theta))
    return DeviceState(theta, empty(theta), *make_no_outputs(theta)), []


def shuffle_start(env: Env) -> Vector:
    """A start of the device's own: the entries of each tensor of theta0 in another order.

    It is as likely as theta0 itself where these entries were drawn independently of each other.
    """
    random, theta = env.random(0, START), env.theta0.copy()
    for slot in env.layout.slots:
        theta[slot.span] = random.permutation(theta[slot.span])
    return theta


def nothing() -> Vector:
    return np.zeros(0, np.float32)


def make_no_outputs(theta: Vector) -> tuple[Floats, Floats]:
    """`sent` and `references` where there are none."""
    return np.zeros((0, 0), theta.dtype), np.zeros((0, 0, 0), theta.dtype)


def device_receive(env: Env, s: DeviceState, sender: str, message: object) -> Step:
    m = gather.expected(sender, message, Local, Feedback, Average)
    if isinstance(m, Local):
        s = local_stage(env, s, m.round)
    elif m.round != s.round or (isinstance(m, Feedback) and (m.exchange != s.exchange or not len(s.sent))):
        return s, [Send(UP, Nobody())]  # of a stage that this device has not seen: it has lost what it knew
    elif isinstance(m, Feedback):
        s = transfer_stage(env, s, m)
    else:
        s = take_average(env, s, m)
    return answer(env, s, m.then)


def local_stage(env: Env, s: DeviceState, round: int) -> DeviceState:
    """tau steps from theta^{t,0} on (14)."""
    settings, theta = env.settings, s.theta.copy()
    remember = settings.lf_local > 0 and not (settings.lf_skip_first and round == 0)
    opt = optimiser(settings.optimiser, settings.eta(round), begin_memory(env, s))
    losses = []
    for step in range(settings.tau if env.samples else 0):
        rows = draw_private_rows(env, round, step)
        loss, gradient = local_gradient(env, theta, s.theta if remember else None, rows)
        losses.append(loss)
        opt.step(theta, gradient)
    mean = float(np.mean(losses)) if losses else 0.0
    scores = measure_forgetting(env, round, "started", s.theta) | measure_forgetting(env, round, "trained", theta)
    return DeviceState(theta, remembered(opt, theta), *make_no_outputs(theta), round, 0, mean, scores)


def begin_memory(env: Env, s: DeviceState) -> Memory:
    """What the optimiser goes on from, at the start of a stage."""
    return empty(s.theta) if env.settings.fresh_optimiser else s.memory


def transfer_stage(env: Env, s: DeviceState, m: Feedback) -> DeviceState:
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
    inputs, rows = require(env.public, env, "public inputs"), draw_public_rows(env, s.round, s.exchange)
    memory = begin_memory(env, s) if s.exchange == 0 else s.memory
    opt, theta = optimiser(settings.optimiser, settings.eta(s.round), memory), s.theta.copy()
    opt.step(theta, inputs.pull(theta, rows, (cotangent / len(rows)).astype(theta.dtype)))
    return replace(after, theta=theta, memory=remembered(opt, theta))


def take_average(env: Env, s: DeviceState, m: Average) -> DeviceState:
    """FedDF: the model of those with the same architecture."""
    if m.model is None:
        return s
    if m.model.shape != s.theta.shape:
        raise PeerError(f"a model of {len(m.model)} parameters, this device's has {len(s.theta)}")
    return replace(s, theta=m.model.astype(s.theta.dtype))


def train_alone(env: Env, told: Callable[[int], None] = lambda rounds: None) -> Vector:
    """The local stages of a whole run without any exchange, and with nothing to remember: cross entropy only."""
    plain = replace(env, settings=replace(env.settings, lf_local=0.0, measure=0))
    s: DeviceState = device_start(plain)[0]
    for round in range(env.rounds):
        s = local_stage(plain, s, round)
        told(round + 1)
    return s.theta


def answer(env: Env, s: DeviceState, then: str) -> Step:
    """What the question wants."""
    if then == LOGITS:
        s = compute_logits(env, s)
        return s, [Send(UP, Outputs(s.sent))]
    if then == MODEL:
        return s, [Send(UP, make_share(env, s.theta))]
    loss = loss_scores(s.loss if env.samples else None)
    after = measure_forgetting(env, s.round, "settled", s.theta)
    scores = {**loss, **judge(env, {"personal": s.theta}), **s.scores, **after}
    return s, [Send(UP, Settled(1, scores))]


def compute_logits(env: Env, s: DeviceState) -> DeviceState:
    """(a): one forward pass, which is kept; at the start of the stage also what is not to be forgotten."""
    inputs: Inputs = require(env.public, env, "public inputs")
    if s.exchange == 0 and env.settings.lf_transfer:
        batches = [inputs.logits(s.theta, draw_public_rows(env, s.round, i)) for i in range(env.settings.tau)]
        return replace(s, references=np.stack(batches), sent=batches[0])
    return replace(s, sent=inputs.logits(s.theta, draw_public_rows(env, s.round, s.exchange)))


def make_share(env: Env, theta: Vector) -> Share | Nobody:
    weight = float(env.samples)
    return Share(env.architecture, theta.dtype.type(weight) * theta, weight) if weight else Nobody()


def measure_forgetting(env: Env, round: int, when: str, theta: Vector) -> dict[str, float]:
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


def models(env: Env, s: DeviceState | None, m: Shown) -> dict[str, Vector]:
    return {} if s is None else {"personal": s.theta}
