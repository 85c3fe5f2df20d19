"""FedBCD and FedBCD-I. R. Wu, A. Scaglione, H.-T. Wai, N. Karakoc, K. Hreinsson, W.-K. Ma: "Federated Block Coordinate
Descent Scheme for Learning Global and Personalized Models", AAAI 2021.

    minimise  sum_n sum_{i at n} g_i(x_i) + gamma_i / 2 ||x_i - z_n||^2   over x_i in X, all z_n equal           eq. (2)

Each device has a model x_i of its own, pulled to the z_n of its hospital (a cloud server of the paper, whose
coordinator is our aggregator).

    Algorithm 1                                                 here
    Q_n^(t), a random subset of each hospital's devices         Settings.taking_part, draw.chosen
    x_i: accelerated stochastic projected gradient, eq. (4)     edge_update
    z, eq. (5), on sums                                         cloud_step; sync: aggregator_close
    w_n, z_n, eq. (6)                                           consensus.mixed, cloud_step; take
    Algorithm 2 (FedBCD-I): train without the penalty           train, when called or on its own clock
    pull to z_n, only those who answered count                  pull

Settings.cloud: "sync", "first-b" or "rigorous" (section 3.1, appendix A; consensus.py). In sync the aggregator holds z,
and a hospital's own step is 0. Otherwise hospitals hold z_n and step; of K_z > 1 repetitions the aggregator makes all
but the last step of the members, on their sums: the same numbers without asking again.

Where the paper contradicts itself or is silent: eta_z = 0.5 is a share of the limit in assumption A4 (as it stands, it
diverges); sums are weighted by gamma_i; K_i is uniform on 1..K_x, drawn anew by each device that trains; FedBCD-I sums
over those who answered, and keeps the last two iterates, be they of a training or of a pull.

Leaves the device: gamma_i x_i, and scores as sums. It is summed in sync; otherwise z_n leaves the hospital.
Kind of upload: replaceable in FedBCD: silent devices and hospitals count with what was last heard of them, at first the
common start, so a lost answer is merely old. Sums are exact integers (gather.py): replacing a summand leaves no drift,
so a running sum is the direct one and need not be made anew. Memoryless in FedBCD-I: nobody answers, nothing moves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import isclose

import numpy as np

from edge_sdk.algebra import lowrank, prox
from edge_sdk.algebra.arrays import Theta
from edge_sdk.algebra.lowrank import Packed
from edge_sdk.algebra.vectors import Layout, Vector
from edge_sdk.contract.method import DOWN, UP, Method, NodeEnv, Role, Send, Step, unchanged
from edge_sdk.errors import PeerError, UsageError
from edge_sdk.methods.fedbcd.settings import (
    RIGOROUS,
    SYNC,
    OfflineSettings,
    Settings,
    cloud_eta,
    policies,
    warnings,
)
from edge_sdk.methods.shared import consensus, draw, gather, mixing
from edge_sdk.methods.shared.consensus import Cloud, Coordinator, Isolated, Mixed, Pieces, Ready
from edge_sdk.methods.shared.gather import Sum, Tally
from edge_sdk.methods.shared.local import Gradient, Indices, batches, gradient
from edge_sdk.methods.shared.reports import training_scores
from edge_sdk.methods.shared.server import ServerTerms, Svt, penalty, server_step

__all__ = ["FEDBCD", "FEDBCD_I", "Env", "Global", "OfflineEnv", "OfflineSettings", "Settings", "policies", "warnings"]

STEPS, BATCHES, ABLE = 1, 2, 3  # purposes of randomness


@dataclass(frozen=True, kw_only=True)
class Env(NodeEnv):
    """What a node is given.

    Attributes:
        svt: aggregator: prox.svt or its twin on a GPU.
        smooth_grad: aggregator, sync: gradient of a smooth term of its own (theta -> (n,)).
    """

    settings: Settings = field(default_factory=Settings)
    svt: Svt = prox.svt
    smooth_grad: Callable[[Vector], Vector] | None = None


@dataclass(frozen=True, kw_only=True)
class OfflineEnv(Env):
    """The same for FedBCD-I."""

    settings: OfflineSettings = field(default_factory=OfflineSettings)


# Messages -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Global:
    """Down, to devices: z_n and the round that it belongs to."""

    model: Packed
    round: int

    def check(self, layout: Layout) -> None:
        if self.round < 0:
            raise ValueError(f"round {self.round}, it is 0 or more")


# Equations ------------------------------------------------------------------------------------------------------
def project(s: Settings, x: Vector) -> Vector:
    """Pi_X(x) = argmin over y in X of ||y - x||^2."""
    if s.feasible == "box":
        return np.clip(x, -s.bound, s.bound)
    length = float(np.linalg.norm(x)) if s.feasible == "ball" else 0.0
    return x * (s.bound / length) if length > s.bound else x


def edge_update(
    grad_fn: Gradient,
    s: Settings,
    x: Vector,
    before: Vector,
    steps: Iterable[Indices],
    z: Vector | None = None,
    gamma: float = 0.0,
) -> tuple[Vector, Vector, float | None]:
    """Eq. (4): momentum from the last two iterates, then the projected gradient of loss and penalty, both taken there.

    Args:
        steps: indices of one mini-batch after the other; None stands for all samples.
        z: the model that the penalty gamma / 2 ||x - z||^2 pulls to; None: there is no penalty.

    Returns:
        The last two iterates, and the mean loss of the batches (None without any).
    """
    losses = []
    for indices in steps:
        ahead = x + s.zeta * (x - before)
        loss, slope = grad_fn(ahead, indices)
        if z is not None:
            slope = slope + gamma * (ahead - z)
        x, before = project(s, ahead - s.eta_x * slope), x
        losses.append(loss)
    return x, before, sum(losses) / len(losses) if losses else None


def pull(s: Settings, x: Vector, before: Vector, z: Vector, gamma: float, steps: int) -> tuple[Vector, Vector]:
    """Algorithm 2: towards z with step gamma itself, without data or momentum. The last two iterates."""
    for _ in range(steps):
        x, before = project(s, x - gamma * (x - z)), x
    return x, before


def cloud_step(w: Vector, sums: Sum | None, eta_z: float) -> Vector:
    """Eqs. (5) and (6) on sums, G of gamma_i and S of gamma_i x_i: (1 - eta_z G) w + eta_z S."""
    return consensus.stepped(w, sums, eta_z)


def local_steps(env: NodeEnv, s: Settings, round: int) -> int:
    """K_i^(t)."""
    return int(env.random(round, STEPS).integers(1, s.local_steps + 1)) if s.draw_steps else s.local_steps


def minibatches(env: NodeEnv, s: Settings, round: int, steps: int) -> Iterator[Indices]:
    """So many epochs, shuffled; or so many steps, each on R samples drawn anew."""
    random = env.random(round, BATCHES)
    if s.unit == "epoch":
        yield from batches(random, env.samples, s.batch, steps)
        return
    for _ in range(steps):
        exact = s.batch == 0 or env.samples <= s.batch
        yield None if exact else random.integers(env.samples, size=s.batch)


def stationarity_gap(s: Settings, x: Vector, slope: Vector) -> float:
    """max over y in X of <slope, x - y>: 0 if and only if x is stationary, where X is the box."""
    return float(np.maximum(slope * (x + s.bound), slope * (x - s.bound)).sum())


def common_start(env: Env) -> Vector:
    """x^(0): of all devices and hospitals. It lies in X."""
    return project(env.settings, env.theta0)


# Device ---------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Device:
    """Attributes:
    x: the personal model.
    before: the iterate before it. Both outlast rounds, and rounds without this device.
    offline: FedBCD-I: trainings since the last contact.
    trainings: FedBCD-I: all of them.
    steps: FedBCD-I: K of the last one, which the pull takes over.
    loss: FedBCD-I: of the last one.
    ticks: FedBCD-I: of its own clock.
    """

    x: Theta
    before: Theta
    offline: int = 0
    trainings: int = 0
    steps: int = 0
    loss: float | None = None
    ticks: int = 0


def device_start(env: Env) -> Step:
    x0 = common_start(env)
    return Device(x0, x0), []


def device_receive(env: Env, s: Device, sender: str, message: object) -> Step:
    m: Global = gather.expected(sender, message, Global)
    h, z, gamma = env.settings, lowrank.unpack(env.layout, m.model), env.settings.weight(env.me)
    steps = minibatches(env, h, m.round, local_steps(env, h, m.round))
    x, before, loss = edge_update(gradient(env), h, s.x, s.before, steps, z, gamma)
    scores = training_scores(env, loss, {"global": z, "personal": s.x})
    return Device(x, before), [Send(UP, Sum(gamma * x, gamma, 1, scores))]


def offline_device_receive(env: OfflineEnv, s: Device, sender: str, message: object) -> Step:
    """Train, unless that was done offline; be pulled; send."""
    m: Global = gather.expected(sender, message, Global)
    h, z, gamma = env.settings, lowrank.unpack(env.layout, m.model), env.settings.weight(env.me)
    scores = training_scores(env, None, {"global": z, "personal": s.x})
    s = s if s.offline else train(env, s)
    x, before = pull(h, s.x, s.before, z, gamma, s.steps)
    scores |= {} if s.loss is None else {"loss": s.loss}
    s = replace(s, x=x, before=x if h.after_pull == "reset" else before, offline=0)
    return s, [Send(UP, Sum(gamma * x, gamma, 1, scores))]


def offline_device_close(env: OfflineEnv, s: Device) -> Step:
    """The device's own clock (Policy.idle): nobody has called, so train, if it can, but not for ever."""
    able = env.random(s.ticks, ABLE).random() < env.settings.offline_share
    s = replace(s, ticks=s.ticks + 1)
    return (train(env, s) if able and s.offline < env.settings.offline_limit else s), []


def train(env: OfflineEnv, s: Device) -> Device:
    """Algorithm 2: eq. (4) without the penalty."""
    steps = local_steps(env, env.settings, s.trainings)
    drawn = minibatches(env, env.settings, s.trainings, steps)
    x, before, loss = edge_update(gradient(env), env.settings, s.x, s.before, drawn)
    return Device(x, before, s.offline + 1, s.trainings + 1, steps, loss, s.ticks)


# Hospital -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Hospital:
    """Attributes:
    model: z_n; in sync z.
    round: that it belongs to.
    news: device -> its answer in the phase that is on.
    latest: device -> gamma_i x_i, its last answer in a phase that is over. FedBCD-I: empty.
    sums: their exact sum. FedBCD-I: over the phase that is over.
    count: how many devices answered in that phase.
    scores: sums over these.
    """

    model: Packed
    round: int = -1
    news: Mapping[str, Sum] = field(default_factory=dict)
    latest: Mapping[str, Sum] = field(default_factory=dict)
    sums: Tally | None = None
    count: int = 0
    scores: Mapping[str, float] = field(default_factory=dict)


def remembers(env: Env) -> bool:
    return not isinstance(env.settings, OfflineSettings)


def hospital_start(env: Env) -> Step:
    return Hospital(lowrank.dense(env.layout, common_start(env))), []


def hospital_receive(env: Env, s: Hospital, sender: str, message: object) -> Step:
    """A device's answer."""
    m: Sum = gather.expected(sender, message, Sum)
    gamma = env.settings.weight(sender)
    if m.count != 1 or not isclose(m.weight, gamma, rel_tol=1e-9):
        raise PeerError(f"{sender} sent a sum of {m.count} devices with weight {m.weight}, expected 1 with {gamma}")
    return replace(s, news={**s.news, sender: m}), []


def hospital_close(env: Env, s: Hospital) -> Step:
    """The phase is over: its answers replace older ones (FedBCD), or are all there is (FedBCD-I)."""
    phase = added(None, s.news)
    latest, sums = replaced(s) if remembers(env) else ({}, phase)
    count, scores = (phase.count, gather.scores(phase)) if phase else (0, {})
    return Hospital(s.model, s.round, {}, latest, sums, count, scores), []


def added(tally: Tally | None, parts: Mapping[str, Sum]) -> Tally | None:
    for name in sorted(parts):
        tally = gather.add(tally, name, parts[name])
    return tally


def replaced(s: Hospital) -> tuple[Mapping[str, Sum], Tally | None]:
    """S_n += gamma_i (x_i new - x_i old) for each device that answered. Integers: old ones vanish without a trace."""
    old = {d: s.latest[d] for d in s.news if d in s.latest}
    new = {d: Sum(m.total, m.weight) for d, m in s.news.items()}
    sums = added(s.sums, {d: Sum(-m.total, -m.weight, -1) for d, m in old.items()})
    return {**s.latest, **new}, added(sums, new)


def sums_of(env: Env, s: Hospital) -> Sum | None:
    """S_n and G_n. A device that has not been heard yet counts with the common start; in FedBCD-I not at all."""
    heard = None if s.sums is None else replace(gather.total(s.sums, env.theta0), scores={})
    unheard = sum(env.settings.weight(d) for d in sorted(env.sizes) if d not in s.latest)
    return with_start(env, heard, unheard, len(env.sizes)) if remembers(env) else heard


def with_start(env: Env, heard: Sum | None, weight: float, count: int) -> Sum | None:
    """A sum over `count` devices, of which some, with that weight, stand where all began."""
    if weight <= 0:
        return heard
    start = weight * common_start(env)
    return Sum(start, weight, count) if heard is None else Sum(heard.total + start, heard.weight + weight, count)


def ready(env: Env, s: Hospital) -> Ready:
    h = env.settings
    model = None if h.cloud == SYNC else lowrank.unpack(env.layout, s.model)
    sums = sums_of(env, s) if h.cloud == SYNC or h.cloud_steps > 1 else None
    return Ready(model, sums, s.count, s.scores)


def take(env: Env, s: Hospital, mixed: Packed | None, round: int, step: float) -> Hospital:
    """Eq. (6): combine (done by the aggregator), then adapt. Alone K_z times; mixed once: the others are done."""
    model = s.model if mixed is None else mixed
    if step:
        sums, z = sums_of(env, s), lowrank.unpack(env.layout, model)
        for _ in range(env.settings.cloud_steps if mixed is None else 1):
            z = cloud_step(z, sums, step)
        model = lowrank.dense(env.layout, z)
    return Hospital(model, round, latest=s.latest, sums=s.sums if remembers(env) else None)


def ask_devices(env: Env, s: Hospital) -> list[Send]:
    """Those that are drawn; all of them where the fastest count."""
    drawn = env.settings.selection == "drawn"
    count = env.settings.taking_part(len(env.sizes)) if drawn else len(env.here)
    return [Send(draw.chosen(env, s.round, count), Global(s.model, s.round))]


HOSPITAL = consensus.around(
    Role(hospital_start, hospital_receive, hospital_close, Hospital), Pieces(ready, take, ask_devices)
)


# Aggregator -----------------------------------------------------------------------------------------------------
def cloud_of(env: Env) -> Cloud:
    h = env.settings
    return Cloud(step=cloud_eta(h, env.sizes, 0), rigorous=h.cloud == RIGOROUS, graph=h.graph, repeats=h.cloud_steps)


MIXING = consensus.coordinator(lambda env: lowrank.dense(env.layout, common_start(env)), cloud_of)


def aggregator_start(env: Env) -> Step:
    check_cloud(env)
    if env.settings.cloud == SYNC:
        s = Coordinator(lowrank.dense(env.layout, common_start(env)))
        return s, [Send(DOWN, Mixed(s.model, 0))]
    started: Step = MIXING.start(env)
    return started


def check_cloud(env: Env) -> None:
    """What settings cannot know by themselves.

    Raises:
        UsageError: the settings do not fit the hospitals that there are.
    """
    h = env.settings
    if env.devices < 1:
        raise UsageError("the aggregator knows of no device: sizes names each hospital with its number of devices")
    if h.cloud == SYNC:
        return
    if h.ready > len(env.sizes):
        raise UsageError(f"ready = {h.ready}: there are {len(env.sizes)} hospitals")
    if env.smooth_grad is not None:
        raise UsageError(f"a smooth term of the aggregator's own needs cloud = 'sync', it is {h.cloud!r}")
    if strangers := mixing.named(h.graph) - set(env.sizes):
        raise UsageError(f"graph names {min(strangers)!r}; the hospitals are {', '.join(sorted(env.sizes))}")


def aggregator_receive(env: Env, s: Coordinator, sender: str, message: object) -> Step:
    if env.settings.cloud == SYNC:
        return consensus.hear(env, s, sender, message), []
    received: Step = MIXING.receive(env, s, sender, message)
    return received


def aggregator_close(env: Env, s: Coordinator) -> Step:
    if env.settings.cloud != SYNC:
        closed: Step = MIXING.close(env, s)
        return closed
    told = consensus.progress(s)
    news = {h: m.sums for h, m in s.ready.items() if m.sums is not None}
    past = {**s.past, **news} if remembers(env) else news
    s = Coordinator(stepped_model(env, s.model, past), s.round + 1, past=past if remembers(env) else {})
    return s, [told] if s.round >= env.rounds else [told, Send(DOWN, Mixed(s.model, s.round))]


def stepped_model(env: Env, model: Packed, parts: Mapping[str, Sum]) -> Packed:
    """Eq. (5), K_z times, with the aggregator's own terms if it has any."""
    h, total = env.settings, total_of(env, parts)
    if total is None:
        return model
    eta_z = cloud_eta(h, env.sizes, total.count)
    terms = ServerTerms(env.smooth_grad, penalty(h.server_penalty, h.lam, env.svt))
    for _ in range(h.cloud_steps):
        z = lowrank.unpack(env.layout, model)
        model = server_step(terms, env.layout, cloud_step(z, total, eta_z), at=z, step=eta_z)
    return model


def total_of(env: Env, parts: Mapping[str, Sum]) -> Sum | None:
    """Over all devices: those of a hospital that has not been heard yet stand at the start. FedBCD-I: who answered."""
    tally = added(None, parts)
    heard = None if tally is None else gather.total(tally, env.theta0)
    if not remembers(env) or set(parts) >= set(env.sizes):
        return heard
    unheard = env.settings.weights(env.devices) - (heard.weight if heard else 0.0)
    return with_start(env, heard, unheard, env.devices)


# For evaluation -------------------------------------------------------------------------------------------------
def show(env: Env, s: Coordinator) -> Global:
    return Global(s.model, s.round)


def models(env: Env, s: Device | None, m: Global) -> dict[str, Vector]:
    z = lowrank.unpack(env.layout, m.model)
    return {"global": z} if s is None else {"global": z, "personal": s.x}


FEDBCD = Method(
    name="fedbcd",
    device=Role(device_start, device_receive, unchanged, Device),
    hospital=HOSPITAL,
    aggregator=Role(aggregator_start, aggregator_receive, aggregator_close, Coordinator),
    messages=(Mixed, Isolated, Global, Sum, Ready),
    settings=Settings,
    env=Env,
    show=show,
    models=models,
    policies=policies,
    warnings=warnings,
)
FEDBCD_I = replace(
    FEDBCD,
    name="fedbcd-i",
    device=Role(device_start, offline_device_receive, offline_device_close, Device),
    settings=OfflineSettings,
    env=OfflineEnv,
)
