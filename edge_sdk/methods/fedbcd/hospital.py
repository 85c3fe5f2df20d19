"""FedBCD's hospital: the sums of its devices, and its own step inside the consensus of shared/consensus.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import isclose
from typing import ClassVar

import numpy as np

from edge_sdk.algebra import lowrank
from edge_sdk.algebra.lowrank import Packed
from edge_sdk.algebra.vectors import Vector
from edge_sdk.contract.method import Role, Send, Step
from edge_sdk.errors import PeerError
from edge_sdk.methods.fedbcd.equations import cloud_step, common_start
from edge_sdk.methods.fedbcd.messages import FedbcdModel
from edge_sdk.methods.fedbcd.settings import SYNC, Env
from edge_sdk.methods.fedbcd.sums import add_all, add_unheard, keeps_latest
from edge_sdk.methods.shared import consensus, draw, gather
from edge_sdk.methods.shared.consensus import Pieces, Ready
from edge_sdk.methods.shared.gather import Sum, Tally
from edge_sdk.methods.shared.guard import norm

ROUNDING = 1e-5  # of float32: gamma_i x_i is divided by gamma_i again


@dataclass(frozen=True)
class HospitalState:
    """Attributes:
    model: z_n; in sync z.
    round: that it belongs to.
    news: device -> its answer in the phase that is on.
    latest: device -> gamma_i x_i, its last answer in a phase that is over. FedBCD-I: empty.
    sums: their exact sum. FedBCD-I: over the phase that is over.
    count: how many devices answered in that phase.
    scores: sums over these.
    """

    written_as: ClassVar[str] = "Hospital"

    model: Packed
    round: int = -1
    news: Mapping[str, Sum] = field(default_factory=dict)
    latest: Mapping[str, Sum] = field(default_factory=dict)
    sums: Tally | None = None
    count: int = 0
    scores: Mapping[str, float] = field(default_factory=dict)


def hospital_start(env: Env) -> Step:
    return HospitalState(lowrank.dense(env.layout, common_start(env))), []


def hospital_receive(env: Env, s: HospitalState, sender: str, message: object) -> Step:
    """A device's answer."""
    m: Sum = gather.expected(sender, message, Sum)
    gamma = env.settings.weight(sender)
    if m.count != 1 or not isclose(m.weight, gamma, rel_tol=1e-9):
        raise PeerError(f"{sender} sent a sum of {m.count} devices with weight {m.weight}, expected 1 with {gamma}")
    check_feasible(env, sender, m.total / gamma)
    return replace(s, news={**s.news, sender: m}), []


def check_feasible(env: Env, sender: str, x: Vector) -> None:
    """Raises PeerError if x_i is outside the feasible set X, in which each step of a device ends."""
    found, limit = distance(env.settings.feasible, x), env.settings.bound * (1 + ROUNDING)
    if found > limit:
        kind = env.settings.feasible
        raise PeerError(f"{sender} sent a model that reaches {found:.3g}, the {kind} ends at {env.settings.bound:g}")


def distance(feasible: str, x: Vector) -> float:
    """How far x reaches in the norm of the set: the largest parameter of a box, the Euclidean norm of a ball."""
    if feasible == "box":
        return float(np.abs(x).max(initial=0.0))
    return norm(x) if feasible == "ball" else 0.0


def hospital_close(env: Env, s: HospitalState) -> Step:
    """The phase is over: its answers replace older ones (FedBCD), or are all there is (FedBCD-I)."""
    phase = add_all(None, s.news)
    latest, sums = replace_latest(s) if keeps_latest(env) else ({}, phase)
    count, scores = (phase.count, gather.scores(phase)) if phase else (0, {})
    return HospitalState(s.model, s.round, {}, latest, sums, count, scores), []


def replace_latest(s: HospitalState) -> tuple[Mapping[str, Sum], Tally | None]:
    """S_n += gamma_i (x_i new - x_i old) for each device that answered. Integers: old ones vanish without a trace."""
    old = {d: s.latest[d] for d in s.news if d in s.latest}
    new = {d: Sum(m.total, m.weight) for d, m in s.news.items()}
    sums = add_all(s.sums, {d: Sum(-m.total, -m.weight, -1) for d, m in old.items()})
    return {**s.latest, **new}, add_all(sums, new)


def add_up_devices(env: Env, s: HospitalState) -> Sum | None:
    """S_n and G_n. A device that has not been heard yet counts with the common start; in FedBCD-I not at all."""
    heard = None if s.sums is None else replace(gather.total(s.sums, env.theta0), scores={})
    unheard = sum(env.settings.weight(d) for d in sorted(env.sizes) if d not in s.latest)
    return add_unheard(env, heard, unheard, len(env.sizes)) if keeps_latest(env) else heard


def show_phase(env: Env, s: HospitalState) -> Ready:
    h = env.settings
    model = None if h.cloud == SYNC else lowrank.unpack(env.layout, s.model)
    sums = add_up_devices(env, s) if h.cloud == SYNC or h.cloud_steps > 1 else None
    return Ready(model, sums, s.count, s.scores)


def take_mixed(env: Env, s: HospitalState, mixed: Packed | None, round: int, step: float) -> HospitalState:
    """Eq. (6): combine (done by the aggregator), then adapt. Alone K_z times; mixed once: the others are done."""
    model = s.model if mixed is None else mixed
    if step:
        sums, z = add_up_devices(env, s), lowrank.unpack(env.layout, model)
        for _ in range(env.settings.cloud_steps if mixed is None else 1):
            z = cloud_step(z, sums, step)
        model = lowrank.dense(env.layout, z)
    return HospitalState(model, round, latest=s.latest, sums=s.sums if keeps_latest(env) else None)


def ask_devices(env: Env, s: HospitalState) -> list[Send]:
    """Those that are drawn; all of them where the fastest count."""
    drawn = env.settings.selection == "drawn"
    count = env.settings.taking_part(len(env.sizes)) if drawn else len(env.here)
    return [Send(draw.chosen(env, s.round, count), FedbcdModel(s.model, s.round))]


HOSPITAL = consensus.around(
    Role(hospital_start, hospital_receive, hospital_close, HospitalState), Pieces(show_phase, take_mixed, ask_devices)
)
