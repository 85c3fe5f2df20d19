"""HSGD. C. Yu, S. Shen, S. Wang, K. Zhang, H. Zhao: "Communication-Efficient Hybrid Federated Learning for E-health
with Horizontal and Vertical Data Partitioning".

A patient's features are split: X2 at the wearable device, X1 at the hospital, the label at both. The model is
yhat = combined(theta_0; h1(theta_1; X1), h2(theta_2; X2)), and theta is [theta_0; theta_1; theta_2]. A hospital is two
things in one node: it learns theta_0 and theta_1, and it is the edge node that averages theta_2 over its group.

    Algorithm 1                                                 here
    draw A_m, every Q iterations                                sample, minibatch
    zeta_2 up; theta_0 and own row of zeta_1 down               Embed, Embedding, Train: begin_exchange, begin_interval
    (5), (6)  theta_0, theta_1 with stale zeta_2, Q times       hospital_steps, while the devices work (ME)
    (7)       theta_2 with stale theta_0, zeta_1, Q times       device_steps
    (1)       theta_2 over the A_m that has trained             end_interval
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
from dataclasses import dataclass, field, replace
from math import isfinite, nan, sqrt
from typing import Annotated, Any
from zlib import crc32

import numpy as np
import numpy.typing as npt

from edge_sdk.arrays import Tensor, Theta, Values
from edge_sdk.errors import PeerError, UsageError
from edge_sdk.method import DOWN, ME, OUT, UP, Method, Place, Role, Send, Step, pick, unchanged
from edge_sdk.methods import compression, gather, hsgd_plan
from edge_sdk.methods.compression import Floats, Matrix, Parcel
from edge_sdk.methods.draw import round_half_up
from edge_sdk.methods.gather import LARGEST, Nobody, Sum, Tally
from edge_sdk.methods.hsgd_plan import NOISE, Constants, Estimate, Plan, Planned, Settings, square
from edge_sdk.methods.reports import progress
from edge_sdk.vectors import Layout, Vector

GROUP = ""  # name of the one copy of theta_0 and theta_1 that a whole group shares
BATCH, MEASURE = 1, 2  # purposes of randomness

NO_PLAN = Plan(1, 1, 0.0)
NOTHING = Estimate()

Rows = npt.NDArray[np.intp]


@dataclass(frozen=True)
class Split:
    """Sizes of the parts of a model: theta_0, theta_1, theta_2 (s0, s1, s2), zeta_1 and zeta_2 of a sample (d1, d2)."""

    s0: int = 0
    s1: int = 0
    s2: int = 0
    d1: int = 0
    d2: int = 0

    @property
    def blocks(self) -> tuple[slice, slice, slice]:
        """Where theta_0, theta_1 and theta_2 lie in theta."""
        a, b, c = self.s0, self.s0 + self.s1, self.s0 + self.s1 + self.s2
        return slice(0, a), slice(a, b), slice(b, c)


@dataclass(frozen=True, kw_only=True)
class Env(Place):
    """What a node is given.

    Attributes:
        split: of the model.
        h2: device: (theta_2, samples) -> zeta_2 (samples, d2).
        grad_device: device: (theta_0, zeta_1, theta_2, samples) -> (mean loss, its gradient in theta_2).
        rows: hospital: device -> rows of the hospital's data that are its samples, in its order. It also says K_m.
        h1: hospital: (theta_1, rows) -> zeta_1 (rows, d1).
        grad_hospital: hospital: (theta_0, theta_1, zeta_2, rows) -> (mean loss, its gradients in theta_0 and theta_1).
        bias: device, hospital: where the bias of its last layer lies in its block, for the setting `columns`.
        h1_held_out: hospital: (theta_1, device) -> zeta_1 of that device's held-out samples.
        score_held_out: device: (theta_0, zeta_1, theta_2) -> sums over its held-out samples, as Place.score has them.
    """

    settings: Settings = field(default_factory=Settings)
    split: Split = Split()
    h2: Callable[[Vector, Rows], Floats] | None = None
    grad_device: Callable[[Vector, Floats, Vector, Rows], tuple[float, Vector]] | None = None
    rows: Mapping[str, Rows] = field(default_factory=dict)
    h1: Callable[[Vector, Rows], Floats] | None = None
    grad_hospital: Callable[[Vector, Vector, Floats, Rows], tuple[float, Vector, Vector]] | None = None
    bias: slice | None = None
    h1_held_out: Callable[[Vector, str], Floats] | None = None
    score_held_out: Callable[[Vector, Floats, Vector], Mapping[str, float]] | None = None


def given(kernel: Any, env: Env, name: str) -> Any:
    if kernel is None:
        raise UsageError(f"{env.me} was given no {name}, so it cannot train")
    return kernel


# Messages -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Global:
    """Down: a global round.

    Attributes:
        theta: the global model.
        round: its number; randomness derives from it.
        t: iterations so far.
        plan: of this round.
        measure: it is one of the pretraining.
        zeta_1: for evaluation: of the receiving device's held-out samples.
    """

    theta: Theta
    round: int
    t: int
    plan: Plan
    measure: bool = False
    zeta_1: Matrix | None = None

    def check(self, layout: Layout) -> None:
        P, Q = self.plan.P, self.plan.Q
        if self.round < 0 or self.t < 0 or Q < 1 or P < 1 or P % Q or not 0 <= self.plan.eta <= LARGEST:
            raise ValueError(f"round {self.round}, iteration {self.t}, {self.plan}: not a round")


@dataclass(frozen=True)
class Embed:
    """Down to A_m: send zeta_2.

    Attributes:
        device: theta_2 of the group; None: the one that you have (JFL).
        round, interval: which mini-batch.
    """

    device: Values | None
    round: int
    interval: int


@dataclass(frozen=True)
class Embedding:
    """Up: zeta_2 of the mini-batch."""

    zeta_2: Parcel


@dataclass(frozen=True)
class Train:
    """Down: do your steps.

    Attributes:
        combined: theta_0, as one row.
        zeta_1: of the receiver's samples.
        round, interval: as in Embed.
        t, plan: the steps are t, ..., t + Q - 1.
        back: theta_2 is wanted.
    """

    combined: Parcel
    zeta_1: Parcel
    round: int
    interval: int
    t: int
    plan: Plan
    back: bool = True

    def check(self, layout: Layout) -> None:
        if self.t < 0 or self.plan.Q < 1 or not 0 <= self.plan.eta <= LARGEST:
            raise ValueError(f"iteration {self.t}, {self.plan}: no steps")


@dataclass(frozen=True)
class Trained:
    """Up: theta_2 after the steps; None where it was not wanted."""

    device: Values | None

    def check(self, layout: Layout) -> None:
        if self.device is not None and not (np.abs(self.device) <= LARGEST).all():
            raise ValueError(f"a number that is not finite or above {LARGEST:.0f}: the sender's training diverged")


@dataclass(frozen=True)
class OwnSteps:
    """A hospital to itself: your devices are at work, now do your own steps."""


# Equations ------------------------------------------------------------------------------------------------------
def hospital_steps(
    env: Env, t: int, plan: Plan, own: tuple[Vector, Vector], zeta_2: Floats, rows: Rows
) -> tuple[float, Vector, Vector, Vector]:
    """Eqs. (5) and (6), Q times, both at the values of before: own blocks fresh, zeta_2 as exchanged.

    Args:
        own: theta_0 and theta_1.

    Returns:
        The loss before the first step, theta_0 and theta_1 after the last, and its gradient in theta_1.
    """
    gradient, s, (theta_0, theta_1) = given(env.grad_hospital, env, "grad_hospital"), env.settings, own
    losses, g_1 = [], np.zeros_like(theta_1)
    for step in range(t, t + plan.Q):
        loss, g_0, g_1 = gradient(theta_0, theta_1, zeta_2, rows)
        eta = s.eta_at(plan, step)
        theta_0, theta_1 = theta_0 - eta * g_0, theta_1 - eta * (g_1 + s.mu * theta_1)
        losses.append(float(loss))
    return losses[0], theta_0, theta_1, g_1


def device_steps(
    env: Env, t: int, plan: Plan, theta_0: Vector, zeta_1: Floats, theta_2: Vector, samples: Rows
) -> tuple[Vector, Vector]:
    """Eq. (7), Q times: own block fresh, theta_0 and zeta_1 as exchanged. theta_2, and the last gradient."""
    gradient, s = given(env.grad_device, env, "grad_device"), env.settings
    g = np.zeros_like(theta_2)
    for step in range(t, t + plan.Q):
        _, g = gradient(theta_0, zeta_1, theta_2, samples)
        theta_2 = theta_2 - s.eta_at(plan, step) * (g + s.mu * theta_2)
    return theta_2, g


def minibatch(env: Env, round: int, interval: int, device: str, samples: int) -> Rows:
    """Which of a device's samples make up its part of xi_m: the same for the device and for its hospital."""
    if env.settings.batch == 0 or samples <= env.settings.batch:
        return np.arange(samples)
    random = np.random.default_rng([env.seed, round, interval, crc32(device.encode()), BATCH])
    return np.sort(random.permutation(samples)[: env.settings.batch])


def sample(env: Env, among: tuple[str, ...], *seed: int) -> tuple[str, ...]:
    """A_m: max(1, alpha K_m) devices, uniformly without replacement; all that there are, if there are fewer."""
    count = max(1, round_half_up(env.settings.alpha * sum(1 for rows in env.rows.values() if len(rows))))
    return pick(among, count, env.seed, *seed, crc32(env.me.encode()))


# Sums of theta_2 ------------------------------------------------------------------------------------------------
Integers = Annotated[npt.NDArray[np.int64], Tensor(("?",), "int64")]


@dataclass(frozen=True)
class Added:
    """A running sum of models that does not depend on the order of arrival (see gather.py).

    Attributes:
        high, low: the sum.
        weight: how many samples.
        names: whose.
    """

    high: Integers
    low: Integers
    weight: int
    names: tuple[str, ...]


def added(sum: Added | None, name: str, x: Vector, weight: int) -> Added:
    high, low = gather.split(x)
    if sum is None:
        return Added(weight * high, weight * low, weight, (name,))
    names = tuple(sorted({*sum.names, name}))
    return Added(sum.high + weight * high, sum.low + weight * low, sum.weight + weight, names)


def mean(sum: Added, like: Vector) -> Vector:
    total = np.ldexp(sum.high.astype(np.float64), -gather.HIGH) + np.ldexp(sum.low.astype(np.float64), -gather.LOW)
    return (total / sum.weight).astype(like.dtype)


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


def magnitudes(env: Env, gradient: Vector) -> Vector | None:
    """|gradient| of the bias of the last layer: how much each column of the embedding matters."""
    if not env.settings.columns:
        return None
    if env.bias is None:
        raise UsageError(f"{env.me}: columns = true needs to know where the bias of the last layer lies")
    return np.abs(gradient[env.bias])


def sized(x: Vector, size: int, name: str) -> Vector:
    if x.size != size:
        raise PeerError(f"{name} of {x.size} numbers, expected {size}")
    return x


def opened(p: Parcel, rows: int, columns: int, name: str) -> Floats:
    """The matrix in a parcel.

    Raises:
        PeerError: it is not of the shape that it has to be.
    """
    if compression.shape(p) != (rows, columns):
        raise PeerError(f"{name} of shape {compression.shape(p)}, expected {(rows, columns)}")
    return compression.unpack(p)


# Hospital -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Interval:
    """What a hospital remembers for Q iterations.

    Attributes:
        zeta_2: the devices of this interval, and their embeddings.
        training: the embeddings are in; models are awaited.
        moved: the hospital's own steps are done.
        back: sum of the theta_2 that have returned; in JFL only in the last interval of a round.
        heard: whose steps are done.
        squares: pretraining: device -> ||g_{2,m,n}||^2.
    """

    zeta_2: Mapping[str, Matrix] = field(default_factory=dict)
    training: bool = False
    moved: bool = False
    back: Added | None = None
    heard: tuple[str, ...] = ()
    squares: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Hospital:
    """Attributes:
    theta_2: of the group.
    copies: [theta_0; theta_1]: of the group under GROUP; in JFL one for each device.
    round, t, plan, measure: as in Global; t moves with the intervals.
    until: the iteration of the next global average.
    interval: of this round.
    now: this interval.
    seen: devices that took part in this round.
    loss, losses: sum and number of the losses at the start of intervals.
    noise: pretraining: second moments of the stochastic gradients in theta_0 and theta_1.
    weights: of the columns of zeta_1, one for each copy.
    """

    theta_2: Values
    copies: Mapping[str, Values]
    round: int = -1
    t: int = 0
    plan: Plan = NO_PLAN
    measure: bool = False
    until: int = 0
    interval: int = 0
    now: Interval = Interval()
    seen: tuple[str, ...] = ()
    loss: float = 0.0
    losses: int = 0
    noise: tuple[float, float] = (0.0, 0.0)
    weights: Mapping[str, Values] = field(default_factory=dict)


def hospital_start(env: Env) -> Step:
    return group_model(env, env.theta0), []


def group_model(env: Env, theta: Vector) -> Hospital:
    own = env.split.s0 + env.split.s1
    return Hospital(theta[own:], {GROUP: theta[:own]})


def hospital_receive(env: Env, s: Hospital, sender: str, message: object) -> Step:
    if sender == UP:
        m: Global = gather.expected(sender, message, Global)
        fresh = replace(group_model(env, m.theta), round=m.round, t=m.t, plan=m.plan, measure=m.measure)
        return begin_exchange(env, replace(fresh, until=m.t + m.plan.P, weights=s.weights))
    if sender == ME:
        gather.expected(sender, message, OwnSteps)
        return own_steps(env, s), []
    if s.now.training:
        return replace(s, now=with_model(env, s, sender, gather.expected(sender, message, Trained))), []
    return replace(s, now=with_embedding(env, s, sender, gather.expected(sender, message, Embedding))), []


def with_embedding(env: Env, s: Hospital, sender: str, m: Embedding) -> Interval:
    zeta_2 = opened(m.zeta_2, len(rows_of(env, s, sender)), env.split.d2, "zeta_2")
    return replace(s.now, zeta_2={**s.now.zeta_2, sender: zeta_2})


def with_model(env: Env, s: Hospital, sender: str, m: Trained) -> Interval:
    now = replace(s.now, heard=tuple(sorted({*s.now.heard, sender})))
    if m.device is None:
        return now
    theta_2 = sized(m.device, env.split.s2, "theta_2")
    now = replace(now, back=added(now.back, sender, theta_2, len(rows_of(env, s, sender))))
    if not s.measure:
        return now
    return replace(now, squares={**now.squares, sender: square((s.theta_2 - theta_2) / s.plan.eta)})


def rows_of(env: Env, s: Hospital, device: str) -> Rows:
    """The rows of a device's mini-batch in the hospital's data."""
    if device not in env.rows:
        raise PeerError(f"{device} is no patient's device here")
    rows = env.rows[device]
    return rows[minibatch(env, s.round, s.interval, device, len(rows))]


def members(s: Hospital, copy: str) -> list[str]:
    """The devices of this interval that share a copy of theta_0 and theta_1."""
    return sorted(s.now.zeta_2) if copy == GROUP else [copy]


def hospital_close(env: Env, s: Hospital) -> Step:
    return end_interval(env, s) if s.now.training else begin_interval(env, s)


def begin_exchange(env: Env, s: Hospital) -> Step:
    """t^lambda_0: theta_2 to the devices that are drawn. In JFL they are drawn once, and keep theirs for the round."""
    s, among = replace(s, now=Interval()), patients(env) if GROUP in s.copies else tuple(sorted(s.copies))
    drawn = among if s.measure or GROUP not in s.copies else sample(env, among, s.round, s.interval)
    theta_2 = s.theta_2 if GROUP in s.copies else None
    return s, [Send(drawn, Embed(theta_2, s.round, s.interval))]


def patients(env: Env) -> tuple[str, ...]:
    """The devices that are here and have samples."""
    return tuple(d for d in env.here if len(env.rows.get(d, ())))


def begin_interval(env: Env, s: Hospital) -> Step:
    """Those whose zeta_2 has come are the mini-batch. With none, the group rests for this interval."""
    s = replace(s, now=replace(s.now, training=True))
    if env.settings.copies == "pair" and not s.measure:
        first = s.copies.get(GROUP)
        s = replace(s, copies={d: s.copies[d] if first is None else first for d in sorted(s.now.zeta_2)})
    if not s.now.zeta_2:
        return end_interval(env, s)
    asks = [Send(d, m) for copy in s.copies for d, m in questions(env, s, copy)]
    return replace(s, seen=tuple(sorted({*s.seen, *s.now.zeta_2}))), [*asks, Send(ME, OwnSteps())]


def questions(env: Env, s: Hospital, copy: str) -> list[tuple[str, Train]]:
    """To the devices of one copy: theta_0, and to each its own rows of zeta_1."""
    theta_0, theta_1 = own_blocks(env, s, copy)
    back = GROUP in s.copies or s.t + s.plan.Q >= s.until
    devices, weights = members(s, copy), s.weights.get(copy) if env.settings.columns else None
    rows = [rows_of(env, s, d) for d in devices]
    zeta_1 = np.split(given(env.h1, env, "h1")(theta_1, np.concatenate(rows)), np.cumsum([len(r) for r in rows])[:-1])
    combined, full = packed_theta_0(env, theta_0), env.settings.columns and weights is None
    parcels = [env.settings.packed(z, weights, full) for z in zeta_1]
    made = [Train(combined, p, s.round, s.interval, s.t, s.plan, back) for p in parcels]
    return list(zip(devices, made, strict=True))


def packed_theta_0(env: Env, theta_0: Vector) -> Parcel:
    """theta_0 as one row, compressed tensor by tensor."""
    parts = tuple(slot.size for slot in env.layout.slots if slot.offset < env.split.s0)
    return compression.pack(theta_0[None], env.settings.keep, env.settings.levels, parts=parts)


def own_blocks(env: Env, s: Hospital, copy: str) -> tuple[Vector, Vector]:
    return s.copies[copy][: env.split.s0], s.copies[copy][env.split.s0 :]


def own_steps(env: Env, s: Hospital) -> Hospital:
    """(5) and (6) for each copy."""
    copies, weights, loss, noise = dict(s.copies), dict(s.weights), 0.0, s.noise
    for copy in s.copies:
        devices, before = members(s, copy), own_blocks(env, s, copy)
        rows = np.concatenate([rows_of(env, s, d) for d in devices])
        zeta_2 = np.concatenate([s.now.zeta_2[d] for d in devices])
        first, theta_0, theta_1, g_1 = hospital_steps(env, s.t, s.plan, before, zeta_2, rows)
        copies[copy], loss = np.concatenate([theta_0, theta_1]), loss + first
        if (found := magnitudes(env, g_1)) is not None:
            weights[copy] = found
        if s.measure:
            noise = moments(env, s, before, zeta_2, rows)
    s = replace(s, copies=copies, weights=weights, noise=noise, now=replace(s.now, moved=True))
    return replace(s, loss=s.loss + loss / max(len(copies), 1), losses=s.losses + 1)


def moments(env: Env, s: Hospital, own: tuple[Vector, Vector], zeta_2: Floats, rows: Rows) -> tuple[float, float]:
    """E ||g_{i,m}||^2 over draws of A_m, from one draw: ||g_i(A) - g_i||^2 + ||g_i||^2, i = 0, 1."""
    gradient, devices = given(env.grad_hospital, env, "grad_hospital"), tuple(members(s, GROUP))
    drawn = sample(env, devices, s.round, s.interval, MEASURE)
    part = np.concatenate([np.full(len(rows_of(env, s, d)), d in drawn) for d in devices])
    whole, some = gradient(*own, zeta_2, rows), gradient(*own, zeta_2[part], rows[part])
    a, b = (square(x - y) + square(y) for x, y in zip(some[1:], whole[1:], strict=True))
    return a, b


def end_interval(env: Env, s: Hospital) -> Step:
    """Eq. (1) over those who returned; then the next exchange, or the group's model to the aggregator."""
    if s.now.zeta_2 and not s.now.moved:
        s = own_steps(env, s)  # the deadline came before its own turn
    if GROUP not in s.copies:
        s = replace(s, copies={d: s.copies[d] for d in s.now.heard if d in s.copies})
    if s.now.back is not None:
        s = replace(s, theta_2=mean(s.now.back, s.theta_2))
    s = replace(s, t=s.t + s.plan.Q, interval=s.interval + 1)
    if s.t < s.until:
        return begin_exchange(env, s)
    return replace(s, now=Interval()), [Send(UP, group_sum(env, s))]


def group_sum(env: Env, s: Hospital) -> Sum | Nobody:
    """K_m theta_m."""
    seen = s.seen if GROUP in s.copies else tuple(s.copies)
    if not seen or not s.copies:
        return Nobody()
    weight = float(sum(len(rows) for rows in env.rows.values()))
    theta = np.concatenate([mean_copy(env, s), s.theta_2])
    scores = {"loss": len(seen) * s.loss / max(s.losses, 1)} | (measures(env, s, weight) if s.measure else {})
    return Sum(theta.dtype.type(weight) * theta, weight, len(seen), scores)


def mean_copy(env: Env, s: Hospital) -> Vector:
    """[theta_0; theta_1] of the group; in JFL the mean over those that train together with a device."""
    if GROUP in s.copies:
        return s.copies[GROUP]
    before = replace(s, interval=s.interval - 1)
    sizes = {d: len(rows_of(env, before, d)) for d in sorted(s.copies)}
    total = sum((sizes[d] * s.copies[d].astype(np.float64) for d in sizes), np.float64(0))
    return np.asarray(total / sum(sizes.values()), s.theta_2.dtype)


def measures(env: Env, s: Hospital, weight: float) -> dict[str, float]:
    """What the aggregator needs of a group to estimate f0 and delta: F_m, and E ||g_i||^2."""
    batch = {d: len(rows) for d, rows in sorted(env.rows.items()) if d in s.now.squares}
    second = sum(n * s.now.squares[d] for d, n in batch.items()) / max(sum(batch.values()), 1)
    found = dict(zip(NOISE, (*s.noise, second), strict=True)) | {"value": s.loss / max(s.losses, 1)}
    return {name: weight * value for name, value in found.items()}


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
    splits=True,
    policies=hsgd_plan.policies,
    warnings=hsgd_plan.warnings,
    forward=forward,
    scorer=scorer,
)
