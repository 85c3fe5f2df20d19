"""FedBCD's hospital: the sums of its devices, and its own step inside the consensus of
shared/consensus/consensus.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import isclose
from typing import ClassVar

from edge_sdk.algebra import lowrank
from edge_sdk.algebra.lowrank import Packed
from edge_sdk.contract.method import Role, Send, Step
from edge_sdk.errors import PeerError
from edge_sdk.methods.fedbcd.equations import cloud_step, common_start, project
from edge_sdk.methods.fedbcd.messages import FedbcdModel
from edge_sdk.methods.fedbcd.settings import SYNC, Env
from edge_sdk.methods.fedbcd.sums import add_all, add_unheard, check_feasible, keeps_latest
from edge_sdk.methods.shared.aggregation import draw, gather
from edge_sdk.methods.shared.aggregation.gather import Nobody, Sum, Tally
from edge_sdk.methods.shared.consensus import consensus
from edge_sdk.methods.shared.consensus.consensus import Pieces, Ready
from edge_sdk.methods.shared.membership.changing import departed


@dataclass(frozen=True)
class HospitalState:
    """What FedBCD's hospital remembers.

    Attributes:
        model: z_n; in sync z.
        round: that it belongs to.
        news: device -> its answer in the phase that is on.
        latest: device -> gamma_i x_i, its last answer in a phase that is over. FedBCD-I: empty.
        sums: their exact sum. FedBCD-I: over the phase that is over.
        count: how many devices answered in that phase.
        scores: sums over these.
        counted: with selection = "fastest": device -> the round of its last answer in `latest`.
        lost: this hospital began in the middle of the run with an empty disk: devices that it has not heard may be
            anywhere, not only at the start.
    """

    written_as: ClassVar[str] = "Hospital"

    model: Packed
    round: int = -1
    news: Mapping[str, Sum] = field(default_factory=dict)
    latest: Mapping[str, Sum] = field(default_factory=dict)
    sums: Tally | None = None
    count: int = 0
    scores: Mapping[str, float] = field(default_factory=dict)
    counted: Mapping[str, int] = field(default_factory=dict)
    lost: bool = False


def hospital_start(env: Env) -> Step:
    return HospitalState(lowrank.dense(env.layout, common_start(env))), []


def hospital_receive(env: Env, s: HospitalState, sender: str, message: object) -> Step:
    """A device's answer."""
    m: Sum | Nobody = gather.expected(sender, message, Sum, Nobody)
    if isinstance(m, Nobody):  # its training diverged: it counts with what was last heard of it
        return s, []
    gamma = env.settings.weight(sender)
    if m.count != 1 or not isclose(m.weight, gamma, rel_tol=1e-9):
        raise PeerError(f"{sender} sent a sum of {m.count} devices with weight {m.weight}, expected 1 with {gamma}")
    check_feasible(env, sender, m.total / gamma)
    return replace(s, news={**s.news, sender: m}), []


def hospital_close(env: Env, s: HospitalState) -> Step:
    """The phase is over: its answers replace older ones (FedBCD), or are all there is (FedBCD-I)."""
    phase = add_all(None, s.news)
    latest, sums = replace_latest(env, s) if keeps_latest(env) else ({}, phase)
    count, scores = (phase.count, gather.scores(phase)) if phase else (0, {})
    fastest = env.settings.selection == "fastest"
    counted = {**s.counted, **dict.fromkeys(s.news, s.round)} if fastest else {}
    return replace(s, news={}, latest=latest, sums=sums, count=count, scores=scores, counted=counted), []


def replace_latest(env: Env, s: HospitalState) -> tuple[Mapping[str, Sum], Tally | None]:
    """S_n += gamma_i (x_i new - x_i old) for each device that answered, and S_n -= gamma_i x_i for each that has left.

    Integers: old ones vanish without a trace.
    """
    gone = departed(env, {*s.latest, *s.news})
    old = {d: m for d, m in s.latest.items() if d in s.news or d in gone}
    new = {d: Sum(m.total, m.weight) for d, m in s.news.items() if d not in gone}
    sums = add_all(s.sums, {d: Sum(-m.total, -m.weight, -1) for d, m in old.items()})
    return {**{d: m for d, m in s.latest.items() if d not in gone}, **new}, add_all(sums, new)


def add_up_devices(env: Env, s: HospitalState) -> Sum | None:
    """S_n and G_n. A device that has not been heard yet counts with the common start; in FedBCD-I not at all.

    Where this hospital has lost its disk, such a device may be anywhere. It then counts with the present model, which
    it leaves where it is: gamma_i (z - z) = 0. With the common start it would pull z back there.
    """
    heard = None if s.sums is None else replace(gather.total(s.sums, env.theta0), scores={})
    if not keeps_latest(env):
        return heard
    unheard = sum(env.settings.weight(d) for d in sorted(env.sizes) if d not in s.latest)
    at = project(env.settings, lowrank.unpack(env.layout, s.model)) if s.lost else common_start(env)
    return add_unheard(heard, unheard, at, len(env.sizes))


def show_phase(env: Env, s: HospitalState) -> Ready:
    h = env.settings
    model = None if h.cloud == SYNC else lowrank.unpack(env.layout, s.model)
    sums = add_up_devices(env, s) if h.cloud == SYNC or h.cloud_steps > 1 else None
    return Ready(model, sums, s.count, s.scores)


def take_mixed(env: Env, s: HospitalState, mixed: Packed | None, round: int, step: float) -> HospitalState:
    """Eq. (6): combine (done by the aggregator), then adapt. Alone K_z times; mixed once: the others are done."""
    model = s.model if mixed is None else mixed
    s = replace(s, model=model, lost=s.lost or s.round < 0 < round)
    if step:
        total, z = add_up_devices(env, s), lowrank.unpack(env.layout, model)
        for _ in range(env.settings.cloud_steps if mixed is None else 1):
            z = cloud_step(z, total, step)
        model = lowrank.dense(env.layout, z)
    sums = s.sums if keeps_latest(env) else None
    return HospitalState(model, round, latest=s.latest, sums=sums, counted=s.counted, lost=s.lost)


def ask_devices(env: Env, s: HospitalState) -> list[Send]:
    """Questions to the devices drawn (to all where the fastest count), and to those that a lost disk has forgotten."""
    drawn = env.settings.selection == "drawn"
    count = env.settings.taking_part(len(env.sizes)) if drawn else len(env.here)
    forgotten = {d for d in env.here if d not in s.latest} if s.lost and keeps_latest(env) else set[str]()
    asked = tuple(sorted({*draw.chosen(env, s.round, count), *forgotten}))
    return [Send(asked, FedbcdModel(s.model, s.round, {d: s.counted[d] for d in asked if d in s.counted}))]


HOSPITAL = consensus.around(
    Role(hospital_start, hospital_receive, hospital_close, HospitalState), Pieces(show_phase, take_mixed, ask_devices)
)
