"""HSGD. C. Yu, S. Shen, S. Wang, K. Zhang, H. Zhao: "Communication-Efficient Hybrid Federated Learning for E-health
with Horizontal and Vertical Data Partitioning".

A patient's features are split: X2 at the wearable device, X1 at the hospital, the label at both. The model is
yhat = combined(theta_0; h1(theta_1; X1), h2(theta_2; X2)), and theta is [theta_0; theta_1; theta_2]. A hospital is two
things in one node: it learns theta_0 and theta_1, and it is the edge node that averages theta_2 over its group.

    Algorithm 1                                                 here
    draw A_m, every Q iterations                                hsgd_steps.sample, minibatch
    zeta_2 up; theta_0 and own row of zeta_1 down               hsgd_hospital.begin_exchange, begin_interval; embedded
    (5), (6)  theta_0, theta_1 with stale zeta_2, Q times       hsgd_steps.hospital_steps, while the devices work (ME)
    (7)       theta_2 with stale theta_0, zeta_1, Q times       hsgd_steps.device_steps
    (1)       theta_2 over the A_m that has trained             hsgd_hospital.end_interval
    (2)       theta over the groups, every P iterations         aggregate
    S1, S2, S3, Theorem 1                                       hsgd_plan.py
    C-HSGD: theta_0, zeta_1 and zeta_2 by their largest entries compression.py

Two questions to the devices per interval, so 2 P / Q per global round: the aggregator's deadline has to be longer than
that many of a hospital's. P, Q and eta come with its question, so it may change them at every global round.

Where the paper contradicts itself or is silent: first the local average, then the global one; over the A_m that has
trained, not the one drawn next; T updates, not T + 1; |A_m| = max(1, alpha K_m rounded); weights K_m / K; each device
is sent its own row of zeta_1 only. A device may hold several samples: then a sample is what counts, not a device.

Baselines: C-HSGD and C-TDCD are `keep`; TDCD is one hospital with all patients; JFL is `copies = "pair"`, where each
device and its hospital train a model of their own that meets the others in (2) only; P = Q = alpha = 1 is centralised.

Leaves the device: zeta_2, theta_2. Leaves the hospital: downwards theta_0, theta_2 and to each device its rows of
zeta_1; upwards its group's model and scores as sums. Never: features, labels. An evaluation shows devices all of theta,
and zeta_1 of the samples that they are judged on.
Kind of upload: memoryless. A device whose zeta_2 does not come is not in the mini-batch of this interval; one whose
theta_2 does not come back is not in (1), but its zeta_2 was in (5) and (6). None: the group rests for this interval, or
keeps theta_2. A group that rested all round, or missed it, is not in (2), and is overwritten next time. No group: the
same model again, with new draws. The iteration t then stands still, so step sizes do not depend on loss. Groups and
devices of unequal size: weighted with their samples.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import isfinite, nan, sqrt

from edge_sdk.algebra.arrays import Theta, Values
from edge_sdk.algebra.vectors import Vector
from edge_sdk.contract.method import DOWN, OUT, UP, Method, Role, Send, Step, unchanged
from edge_sdk.errors import PeerError, UsageError
from edge_sdk.methods.hsgd import plan as hsgd_plan
from edge_sdk.methods.hsgd import settings as hsgd_settings
from edge_sdk.methods.hsgd.hospital import Hospital, hospital_close, hospital_receive, hospital_start
from edge_sdk.methods.hsgd.messages import Embed, Embedding, Global, OwnSteps, Train, Trained, opened, sized
from edge_sdk.methods.hsgd.plan import NOISE, Constants, Estimate, Planned, square
from edge_sdk.methods.hsgd.settings import Env, Plan, Settings, given
from edge_sdk.methods.hsgd.steps import device_steps, magnitudes, minibatch
from edge_sdk.methods.shared import gather
from edge_sdk.methods.shared.gather import Nobody, Sum, Tally
from edge_sdk.methods.shared.reports import progress

NOTHING = Estimate()


# Device ---------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Device:
    """Attributes:
    theta_2: of the interval.
    round, interval: for which it was sent.
    weights: of the columns of zeta_2; None: no gradient is known yet.
    """

    theta_2: Values
    round: int = -1
    interval: int = -1
    weights: Values | None = None


def device_start(env: Env) -> Step:
    return Device(env.theta0[env.split.blocks[2]]), []


def device_receive(env: Env, s: Device, sender: str, message: object) -> Step:
    m = gather.expected(sender, message, Embed, Train)
    return embedded(env, s, m) if isinstance(m, Embed) else trained(env, s, m)


def embedded(env: Env, s: Device, m: Embed) -> Step:
    """zeta_2^s, with the average model of the group."""
    theta_2 = s.theta_2 if m.device is None else sized(m.device, env.split.s2, "theta_2")
    zeta_2 = given(env.h2, env, "h2")(theta_2, minibatch(env, m.round, m.interval, env.me, env.samples))
    columns = s.weights if env.settings.columns else None
    parcel = env.settings.packed(zeta_2, columns, first=env.settings.columns and columns is None)
    return Device(theta_2, m.round, m.interval, s.weights), [Send(UP, Embedding(parcel))]


def trained(env: Env, s: Device, m: Train) -> Step:
    if (m.round, m.interval) != (s.round, s.interval):
        raise PeerError(f"steps of round {m.round}, interval {m.interval}; the model is of {s.round}, {s.interval}")
    samples = minibatch(env, m.round, m.interval, env.me, env.samples)
    theta_0 = opened(m.combined, 1, env.split.s0, "theta_0")[0]
    zeta_1 = opened(m.zeta_1, len(samples), env.split.d1, "zeta_1")
    theta_2, gradient = device_steps(env, m.t, m.plan, theta_0, zeta_1, s.theta_2, samples)
    s = replace(s, theta_2=theta_2, weights=magnitudes(env, gradient))
    return s, [Send(UP, Trained(theta_2 if m.back else None))]


# Aggregator -----------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Aggregator:
    """Attributes:
    theta: the global model.
    plan: of this round.
    round, t: as in Global.
    tally: the groups of this round.
    estimate: of the constants.
    gradient: ||grad F|| in the round before; nan: not known.
    """

    theta: Theta
    plan: Plan
    round: int = 0
    t: int = 0
    tally: Tally | None = None
    estimate: Estimate = NOTHING
    gradient: float = nan


def aggregator_start(env: Env) -> Step:
    if env.devices < 1:
        raise UsageError("the aggregator knows of no device: sizes names each hospital with its number of devices")
    if env.split.blocks[2].stop != env.layout.size:
        raise UsageError(f"{env.split} makes {env.split.blocks[2].stop} parameters, the model has {env.layout.size}")
    if env.settings.pretraining >= env.rounds:
        raise UsageError(f"pretraining = {env.settings.pretraining} of {env.rounds} rounds: none is left to train")
    return asked(env, Aggregator(env.theta0, env.settings.plan))


def asked(env: Env, s: Aggregator) -> Step:
    """The next global round, with a plan of its own."""
    told: list[Send] = []
    if measuring(env, s):
        s = replace(s, plan=Plan(1, 1, env.settings.pretraining_eta))
    elif env.settings.strategies:
        planned = chosen(env, s)
        s, told = replace(s, plan=planned.plan), [Send(OUT, planned)]
    else:
        s = replace(s, plan=env.settings.plan)
    return s, [*told, Send(DOWN, show(env, s))]


def measuring(env: Env, s: Aggregator) -> bool:
    return s.round < env.settings.pretraining


def chosen(env: Env, s: Aggregator) -> Planned:
    """S1, S2, S3 with the constants as they are known now."""
    settings = env.settings
    T = settings.iterations or (env.rounds - settings.pretraining) * settings.P
    return hsgd_plan.chosen(
        settings.strategies, settings.plan, constants(settings, s), s.round, T, settings.target, settings.printed
    )


def constants(settings: Settings, s: Aggregator) -> Constants:
    """Those of the settings where they are given, else the estimates."""
    e = s.estimate.constants
    f0, rho, delta = (a if a is not None else b for a, b in zip(
        (settings.f0, settings.rho, settings.delta), (e.f0, e.rho, e.delta), strict=True
    ))  # fmt: skip
    known = s.gradient if isfinite(s.gradient) or not s.estimate.steps else e.gradient
    return Constants(f0, rho, delta, known)


def aggregator_receive(env: Env, s: Aggregator, sender: str, message: object) -> Step:
    return replace(s, tally=gather.gathered(env, s.tally, sender, message)), []


def aggregator_close(env: Env, s: Aggregator) -> Step:
    done = progress(s.round + 1, s.tally)
    s = aggregate(env, s)
    if s.round >= env.rounds or 0 < env.settings.iterations <= s.t:
        return s, [done]
    s, sends = asked(env, s)
    return s, [done, *sends]


def aggregate(env: Env, s: Aggregator) -> Aggregator:
    """Eq. (2) over the groups that answered; with none, the same model again. A measured round leads nowhere."""
    after = replace(s, round=s.round + 1, tally=None)
    if s.tally is not None:
        uploads = gather.total(s.tally, env.theta0)
        theta = uploads.total / uploads.total.dtype.type(uploads.weight)
        after = measured(env, s, after, theta, uploads) if measuring(env, s) else moved(env, s, after, theta)
    if measuring(env, s) and not measuring(env, after):
        after = replace(after, theta=env.theta0, t=0)
    return after


def measured(env: Env, s: Aggregator, after: Aggregator, theta: Vector, uploads: Sum) -> Aggregator:
    scores = {name: uploads.scores.get(name, 0.0) / uploads.weight for name in (*NOISE, "value")}
    e = hsgd_plan.measured(s.estimate, s.theta, theta, s.plan.eta, env.split.blocks, scores)
    return replace(after, theta=theta, estimate=e)


def moved(env: Env, s: Aggregator, after: Aggregator, theta: Vector) -> Aggregator:
    """After P iterations, of which the mean gradient stands for the one at the next round's start."""
    way = sum(env.settings.eta_at(s.plan, t) for t in range(s.t, s.t + s.plan.P))
    gradient = sqrt(square(s.theta - theta)) / way if way > 0 else nan
    return replace(after, theta=theta, t=s.t + s.plan.P, gradient=gradient)


# For evaluation -------------------------------------------------------------------------------------------------
def show(env: Env, s: Aggregator) -> Global:
    return Global(s.theta, s.round, s.t, s.plan, measuring(env, s))


def models(env: Env, s: Device | None, m: Global) -> dict[str, Vector]:
    return {"global": m.theta}


def forward(env: Env, m: Global, device: str) -> Global:
    """A device cannot judge alone: its hospital adds zeta_1 of the samples that it is judged on."""
    if env.h1_held_out is None:
        return m
    return replace(m, zeta_1=env.h1_held_out(m.theta[env.split.blocks[1]], device))


def scorer(env: Env, m: Global) -> Callable[[Vector], Mapping[str, float]] | None:
    score, zeta_1, (combined, _, device) = env.score_held_out, m.zeta_1, env.split.blocks
    if score is None or zeta_1 is None:
        return None
    return lambda theta: score(theta[combined], zeta_1, theta[device])


HSGD = Method(
    name="hsgd",
    device=Role(device_start, device_receive, unchanged, Device),
    hospital=Role(hospital_start, hospital_receive, hospital_close, Hospital),
    aggregator=Role(aggregator_start, aggregator_receive, aggregator_close, Aggregator),
    messages=(Global, Embed, Embedding, Train, Trained, OwnSteps, Sum, Nobody, Planned),
    settings=Settings,
    env=Env,
    show=show,
    models=models,
    kernels="split",
    policies=hsgd_settings.policies,
    warnings=hsgd_plan.warnings,
    forward=forward,
    scorer=scorer,
)
