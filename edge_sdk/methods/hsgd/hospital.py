"""HSGD's hospital: a global round is P / Q intervals, and each of them two questions to the devices that are drawn.

    begin_exchange   Embed down, Embedding up
    begin_interval   Train down, the hospital's own steps meanwhile (OwnSteps), Trained up
    end_interval     the average over the group; then the next exchange, or the group's model to the aggregator

method.py says what becomes of devices that do not answer, and of a group in which none does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar
from zlib import crc32

import numpy as np

from edge_sdk.algebra.arrays import Values
from edge_sdk.algebra.vectors import Vector
from edge_sdk.contract.environment.kernels import Rows
from edge_sdk.contract.method import ME, UP, Send, Step
from edge_sdk.errors import PeerError
from edge_sdk.methods.hsgd import compression
from edge_sdk.methods.hsgd.compression import Floats, Matrix, PackedMatrix
from edge_sdk.methods.hsgd.equations import (
    MEASURE,
    ROUND,
    Added,
    add_model,
    draw_devices,
    draw_minibatch,
    hospital_steps,
    mean_model,
    measure_columns,
)
from edge_sdk.methods.hsgd.messages import (
    Embed,
    EmbedByIntegers,
    Embedding,
    HsgdModel,
    Moved,
    OwnSteps,
    Train,
    Trained,
    check_size,
    open_matrix,
)
from edge_sdk.methods.hsgd.plan import CONTRIBUTORS, NOISE, square
from edge_sdk.methods.hsgd.row_integers import pack_rows, pack_vector, read_vector
from edge_sdk.methods.hsgd.settings import Env, Plan, require
from edge_sdk.methods.shared.aggregation import gather
from edge_sdk.methods.shared.aggregation.gather import Nobody, Sum
from edge_sdk.methods.shared.aggregation.scores import LOSS_DEVICES

GROUP = ""  # name of the one copy of theta_0 and theta_1 that a whole group shares
NO_PLAN = Plan(1, 1, 0.0)
CONTRIBUTORS_MOST = 2**20  # the numbers of thousands of hospitals add up to no more than a score may be


@dataclass(frozen=True)
class Interval:
    """What a hospital remembers for Q iterations.

    Attributes:
        zeta_2: the devices of this interval, and their embeddings.
        training: the embeddings are in; models are awaited.
        moved: the hospital's own steps are done.
        back: sum of the theta_2 that have returned; in JFL only in the last interval of a round. Pretraining: of the
            gradients in theta_2.
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
class HospitalState:
    """What HSGD's hospital remembers.

    Attributes:
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
        gradient: pretraining: of F_m; in theta_0 and theta_1, and at the end of the interval in theta_2 too.
    """

    written_as: ClassVar[str] = "Hospital"

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
    gradient: Values | None = None


def hospital_start(env: Env) -> Step:
    return group_model(env, env.theta0), []


def group_model(env: Env, theta: Vector) -> HospitalState:
    own = env.split.s0 + env.split.s1
    return HospitalState(theta[own:], {GROUP: theta[:own]})


def hospital_receive(env: Env, s: HospitalState, sender: str, message: object) -> Step:
    if sender == UP:
        m: HsgdModel = gather.expected(sender, message, HsgdModel)
        fresh = replace(group_model(env, m.theta), round=m.round, t=m.t, plan=m.plan, measure=m.measure)
        return begin_exchange(env, replace(fresh, until=m.t + m.plan.P, weights=s.weights))
    if sender == ME:
        gather.expected(sender, message, OwnSteps)
        return take_own_steps(env, s), []
    trained = Moved if env.settings.rounds_at(s.round) else Trained
    answer = gather.expected(sender, message, trained if s.now.training else Embedding, Nobody)
    if isinstance(answer, Nobody):  # its training diverged
        return s, []
    take = take_embedding if isinstance(answer, Embedding) else take_model
    return replace(s, now=take(env, s, sender, answer)), []


def take_embedding(env: Env, s: HospitalState, sender: str, m: Embedding) -> Interval:
    zeta_2 = open_matrix(m.zeta_2, len(draw_rows(env, s, sender)), env.split.d2, "zeta_2")
    return replace(s.now, zeta_2={**s.now.zeta_2, sender: zeta_2})


def take_model(env: Env, s: HospitalState, sender: str, m: Trained | Moved) -> Interval:
    now = replace(s.now, heard=tuple(sorted({*s.now.heard, sender})))
    if m.device is None:
        return now
    if isinstance(m, Moved):
        theta_2 = s.theta_2 + read_vector(m.device, env.split.s2, "theta_2").astype(s.theta_2.dtype)
    else:
        theta_2 = check_size(m.device, env.split.s2, "theta_2")
    now = replace(now, back=add_model(now.back, sender, theta_2, len(draw_rows(env, s, sender))))
    if not s.measure:
        return now
    return replace(now, squares={**now.squares, sender: square(theta_2)})


def draw_rows(env: Env, s: HospitalState, device: str) -> Rows:
    """The rows of a device's mini-batch in the hospital's data."""
    if device not in env.rows:
        raise PeerError(f"{device} is no patient's device here")
    rows = env.rows[device]
    return rows[draw_minibatch(env, s.round, s.interval, device, len(rows))]


def members(s: HospitalState, copy: str) -> list[str]:
    """The devices of this interval that share a copy of theta_0 and theta_1."""
    return sorted(s.now.zeta_2) if copy == GROUP else [copy]


def hospital_close(env: Env, s: HospitalState) -> Step:
    return end_interval(env, s) if s.now.training else begin_interval(env, s)


def begin_exchange(env: Env, s: HospitalState) -> Step:
    """t^lambda_0: theta_2 to the devices that are drawn. In JFL they are drawn once, and keep theirs for the round."""
    s, among = replace(s, now=Interval()), patients(env) if GROUP in s.copies else tuple(sorted(s.copies))
    drawn = among if s.measure or GROUP not in s.copies else draw_devices(env, among, s.round, s.interval)
    if env.settings.rounds_at(s.round):
        shown = pack_vector(s.theta_2, env.settings.bits, env.random(s.round, ROUND, s.interval, 0))
        return s, [Send(drawn, EmbedByIntegers(shown, s.round, s.interval))]
    theta_2 = s.theta_2 if GROUP in s.copies else None
    return s, [Send(drawn, Embed(theta_2, s.round, s.interval))]


def patients(env: Env) -> tuple[str, ...]:
    """The devices that are here and have samples."""
    return tuple(d for d in env.willing if len(env.rows.get(d, ())))


def begin_interval(env: Env, s: HospitalState) -> Step:
    """Begins Q steps on the devices whose zeta_2 has come. If none has, the group rests for this interval."""
    s = replace(s, now=replace(s.now, training=True))
    if env.settings.copies == "pair" and not s.measure:
        first = s.copies.get(GROUP)
        s = replace(s, copies={d: s.copies[d] if first is None else first for d in sorted(s.now.zeta_2)})
    if not s.now.zeta_2:
        return end_interval(env, s)
    asks = [Send(d, m) for copy in s.copies for d, m in make_questions(env, s, copy)]
    return replace(s, seen=tuple(sorted({*s.seen, *s.now.zeta_2}))), [*asks, Send(ME, OwnSteps())]


def make_questions(env: Env, s: HospitalState, copy: str) -> list[tuple[str, Train]]:
    """Questions to the devices of one copy: theta_0, and for each device its own rows of zeta_1."""
    theta_0, theta_1 = split_own(env, s, copy)
    back = GROUP in s.copies or s.t + s.plan.Q >= s.until
    devices, weights = members(s, copy), s.weights.get(copy) if env.settings.columns else None
    rows = [draw_rows(env, s, d) for d in devices]
    zeta_1 = np.split(require(env.h1, env, "h1")(theta_1, np.concatenate(rows)), np.cumsum([len(r) for r in rows])[:-1])
    combined, parcels = pack_for_devices(env, s, theta_0, zeta_1, weights)
    made = [Train(combined, p, s.round, s.interval, s.t, s.plan, back) for p in parcels]
    return list(zip(devices, made, strict=True))


def pack_for_devices(
    env: Env, s: HospitalState, theta_0: Vector, zeta_1: Sequence[Floats], weights: Values | None
) -> tuple[PackedMatrix, list[PackedMatrix]]:
    """theta_0, and the rows of zeta_1 of each device, for the wire."""
    if env.settings.rounds_at(s.round):
        bits, purpose = env.settings.bits, (ROUND, s.interval)
        rows = [pack_rows(z, bits, env.random(s.round, *purpose, 2 + i)) for i, z in enumerate(zeta_1)]
        return pack_vector(theta_0, bits, env.random(s.round, *purpose, 1)), list(rows)
    full = env.settings.columns and weights is None
    return pack_theta_0(env, theta_0), [env.settings.packed(z, weights, full) for z in zeta_1]


def pack_theta_0(env: Env, theta_0: Vector) -> PackedMatrix:
    """theta_0 as one row, compressed tensor by tensor."""
    parts = tuple(slot.size for slot in env.layout.slots if slot.offset < env.split.s0)
    return compression.pack(theta_0[None], env.settings.keep, env.settings.levels, parts=parts)


def split_own(env: Env, s: HospitalState, copy: str) -> tuple[Vector, Vector]:
    return s.copies[copy][: env.split.s0], s.copies[copy][env.split.s0 :]


def take_own_steps(env: Env, s: HospitalState) -> HospitalState:
    """(5) and (6) for each copy."""
    copies, weights, loss, noise = dict(s.copies), dict(s.weights), 0.0, s.noise
    for copy in s.copies:
        devices, before = members(s, copy), split_own(env, s, copy)
        rows = np.concatenate([draw_rows(env, s, d) for d in devices])
        zeta_2 = np.concatenate([s.now.zeta_2[d] for d in devices])
        first, theta_0, theta_1, g_1 = hospital_steps(env, s.t, s.plan, before, zeta_2, rows)
        loss += first
        if s.measure:
            noise = measure_moments(env, s, before, zeta_2, rows)
            s = replace(s, gradient=own_gradient(env, before, zeta_2, rows))
        else:
            copies[copy] = np.concatenate([theta_0, theta_1])
        if (found := measure_columns(env, g_1)) is not None:
            weights[copy] = found
    s = replace(s, copies=copies, weights=weights, noise=noise, now=replace(s.now, moved=True))
    return replace(s, loss=s.loss + loss / max(len(copies), 1), losses=s.losses + 1)


def measure_moments(
    env: Env, s: HospitalState, own: tuple[Vector, Vector], zeta_2: Floats, rows: Rows
) -> tuple[float, float]:
    """E ||g_{i,m}||^2 over draws of A_m, from one draw: ||g_i(A) - g_i||^2 + ||g_i||^2, i = 0, 1."""
    gradient, devices = require(env.grad_hospital, env, "grad_hospital"), tuple(members(s, GROUP))
    drawn = draw_devices(env, devices, s.round, s.interval, MEASURE)
    part = np.concatenate([np.full(len(draw_rows(env, s, d)), d in drawn) for d in devices])
    whole, some = gradient(*own, zeta_2, rows), gradient(*own, zeta_2[part], rows[part])
    pulls = (np.zeros_like(own[0]), env.settings.mu * own[1])  # of r, in every draw the same
    a, b = (square(x - y) + square(y + r) for x, y, r in zip(some[1:], whole[1:], pulls, strict=True))
    return a, b


def own_gradient(env: Env, own: tuple[Vector, Vector], zeta_2: Floats, rows: Rows) -> Vector:
    """The gradient of F_m, which has r in it, in theta_0 and theta_1."""
    _, g_0, g_1 = require(env.grad_hospital, env, "grad_hospital")(*own, zeta_2, rows)
    return np.concatenate([g_0, g_1 + env.settings.mu * own[1]])


def end_interval(env: Env, s: HospitalState) -> Step:
    """Eq. (1) over those who returned; then the next exchange, or the group's model to the aggregator."""
    if s.now.zeta_2 and not s.now.moved:
        s = take_own_steps(env, s)  # the deadline came before its own turn
    if GROUP not in s.copies:
        s = replace(s, copies={d: s.copies[d] for d in s.now.heard if d in s.copies})
    if s.measure:
        s = with_device_gradient(s)
    elif s.now.back is not None:
        s = replace(s, theta_2=mean_model(s.now.back, s.theta_2))
    s = replace(s, t=s.t + s.plan.Q, interval=s.interval + 1)
    if s.t < s.until:
        return begin_exchange(env, s)
    return replace(s, now=Interval(), gradient=None), [Send(UP, sum_group(env, s))]


def with_device_gradient(s: HospitalState) -> HospitalState:
    """The state with the whole gradient of F_m; with none, where one of its parts is missing."""
    if s.gradient is None or s.now.back is None:
        return replace(s, gradient=None)
    return replace(s, gradient=np.concatenate([s.gradient, mean_model(s.now.back, s.theta_2)]))


def sum_group(env: Env, s: HospitalState) -> Sum | Nobody:
    """K_m theta_m; in the pretraining K_m grad F_m, which differences of models would give only roughly in float32."""
    seen = s.seen if GROUP in s.copies else tuple(s.copies)
    theta = s.gradient if s.measure else np.concatenate([mean_copy(env, s), s.theta_2]) if s.copies else None
    if not seen or theta is None:
        return Nobody()
    weight = float(sum(len(rows) for rows in env.rows.values()))
    scores = {"loss": len(seen) * s.loss / max(s.losses, 1), LOSS_DEVICES: float(len(seen))}
    scores |= measure_group(env, s, weight) if s.measure else {}
    return Sum(theta.dtype.type(weight) * theta, weight, len(seen), scores)


def mean_copy(env: Env, s: HospitalState) -> Vector:
    """[theta_0; theta_1] of the group; in JFL the mean over those that train together with a device."""
    if GROUP in s.copies:
        return s.copies[GROUP]
    before = replace(s, interval=s.interval - 1)
    sizes = {d: len(draw_rows(env, before, d)) for d in sorted(s.copies)}
    total = sum((sizes[d] * s.copies[d].astype(np.float64) for d in sizes), np.float64(0))
    return np.asarray(total / sum(sizes.values()), s.theta_2.dtype)


def measure_group(env: Env, s: HospitalState, weight: float) -> dict[str, float]:
    """What the aggregator needs of a group to estimate f0 and delta: F_m, and E ||g_i||^2; and who took part."""
    batch = {d: len(rows) for d, rows in sorted(env.rows.items()) if d in s.now.squares}
    second = sum(n * s.now.squares[d] for d, n in batch.items()) / max(sum(batch.values()), 1)
    _, theta_1 = split_own(env, s, GROUP)
    value = s.loss / max(s.losses, 1) + env.settings.mu / 2 * (square(theta_1) + square(s.theta_2))
    found = dict(zip(NOISE, (*s.noise, second), strict=True)) | {"value": value}
    return {name: weight * value for name, value in found.items()} | {CONTRIBUTORS: number_contributors(env, s)}


def number_contributors(env: Env, s: HospitalState) -> float:
    """A number that is the same for the same devices with both of their answers in the interval, and says no name."""
    both = [d in s.now.zeta_2 and d in s.now.squares for d in sorted(env.rows)]
    return float(crc32(bytes(both)) % CONTRIBUTORS_MOST)
