"""HSGD's device: its embedding of a mini-batch, then Q steps on theta_2."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from edge_sdk.algebra.arrays import Values
from edge_sdk.algebra.vectors import Vector
from edge_sdk.contract.environment.kernels import Floats
from edge_sdk.contract.method import UP, Scorer, Send, Step
from edge_sdk.errors import PeerError
from edge_sdk.methods.hsgd.equations import ROUND, device_steps, draw_minibatch, measure_columns
from edge_sdk.methods.hsgd.messages import (
    Embed,
    EmbedByIntegers,
    Embedding,
    HsgdModel,
    Moved,
    Train,
    Trained,
    check_size,
    open_matrix,
)
from edge_sdk.methods.hsgd.row_integers import pack_rows, pack_vector, read_vector
from edge_sdk.methods.hsgd.settings import Env, require
from edge_sdk.methods.shared.aggregation import gather


@dataclass(frozen=True)
class DeviceState:
    """What HSGD's device remembers.

    Attributes:
        theta_2: of the interval.
        round, interval: for which it was sent.
        weights: of the columns of zeta_2; None: no gradient is known yet.
    """

    written_as: ClassVar[str] = "Device"

    theta_2: Values
    round: int = -1
    interval: int = -1
    weights: Values | None = None


def device_start(env: Env) -> Step:
    return DeviceState(env.theta0[env.split.blocks[2]]), []


def device_receive(env: Env, s: DeviceState, sender: str, message: object) -> Step:
    m = gather.expected(sender, message, Embed, EmbedByIntegers, Train)
    return train(env, s, m) if isinstance(m, Train) else embed(env, s, m)


def embed(env: Env, s: DeviceState, m: Embed | EmbedByIntegers) -> Step:
    """zeta_2^s, with the average model of the group."""
    if isinstance(m, EmbedByIntegers) != env.settings.rounds_at(m.round):
        raise PeerError(f"the parent sent {type(m).__name__}, this run has bits = {env.settings.bits}")
    theta_2 = shown_model(env, s, m)
    zeta_2 = require(env.h2, env, "h2")(theta_2, draw_minibatch(env, m.round, m.interval, env.me, env.samples))
    if isinstance(m, EmbedByIntegers):
        whole = pack_rows(zeta_2, env.settings.bits, env.random(m.round, ROUND, m.interval, 0))
        return DeviceState(theta_2, m.round, m.interval, s.weights), [Send(UP, Embedding(whole))]
    columns = s.weights if env.settings.columns else None
    parcel = env.settings.packed(zeta_2, columns, first=env.settings.columns and columns is None)
    return DeviceState(theta_2, m.round, m.interval, s.weights), [Send(UP, Embedding(parcel))]


def shown_model(env: Env, s: DeviceState, m: Embed | EmbedByIntegers) -> Vector:
    """theta_2 that a question shows; this device's own, where it shows none."""
    if isinstance(m, EmbedByIntegers):
        return read_vector(m.device, env.split.s2, "theta_2")
    return s.theta_2 if m.device is None else check_size(m.device, env.split.s2, "theta_2")


def train(env: Env, s: DeviceState, m: Train) -> Step:
    if (m.round, m.interval) != (s.round, s.interval):
        raise PeerError(f"steps of round {m.round}, interval {m.interval}; the model is of {s.round}, {s.interval}")
    samples = draw_minibatch(env, m.round, m.interval, env.me, env.samples)
    theta_0 = open_matrix(m.combined, 1, env.split.s0, "theta_0")[0]
    zeta_1 = open_matrix(m.zeta_1, len(samples), env.split.d1, "zeta_1")
    theta_2, gradient = device_steps(env, m.t, m.plan, theta_0, zeta_1, s.theta_2, samples)
    if m.round < env.settings.pretraining:  # the hospital wants the gradient: a small step would round it away
        return s, [Send(UP, Trained(gradient + env.settings.mu * s.theta_2))]
    before, s = s.theta_2, replace(s, theta_2=theta_2, weights=measure_columns(env, gradient))
    if env.settings.rounds_at(m.round):
        moved = pack_vector(theta_2 - before, env.settings.bits, env.random(m.round, ROUND, m.interval, 1))
        return s, [Send(UP, Moved(moved))]
    return s, [Send(UP, Trained(theta_2 if m.back else None))]


def models(env: Env, s: DeviceState | None, m: HsgdModel) -> dict[str, Vector]:
    return {"global": m.theta}


def scorer(env: Env, m: HsgdModel) -> tuple[Scorer | None, Scorer | None]:
    """The scores on validation samples, or on test samples where these are all, and on test samples apart."""
    score, zeta_1, sizes = env.score_part, m.zeta_1, env.judged
    if score is None or zeta_1 is None:
        return None, None
    if len(zeta_1) not in (sizes[0], sum(sizes)):
        raise PeerError(f"zeta_1 of {len(zeta_1)} samples; this device is judged on {' and '.join(map(str, sizes))}")
    combined, _, device = env.split.blocks

    def part(number: int, rows: Floats) -> Scorer:
        return lambda theta: score(number, theta[combined], rows, theta[device])

    test = part(1, zeta_1[sizes[0] :]) if len(sizes) > 1 and len(zeta_1) == sum(sizes) else None
    return part(0, zeta_1[: sizes[0]]), test
