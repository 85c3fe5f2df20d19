"""AugFL's hospital: keeps the latest contribution of each device, completes what was left out, and adds up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from edge_sdk.algebra import lowrank
from edge_sdk.algebra.vectors import Vector
from edge_sdk.contract.method import UP, Send, Step
from edge_sdk.contract.round import life_of
from edge_sdk.errors import PeerError
from edge_sdk.methods.augfl.messages import AugflModel, Census, Counted, Sums, Upload, check_devices
from edge_sdk.methods.augfl.settings import BOTH, PLAIN, Env, U, Y
from edge_sdk.methods.augfl.sums import Contribution, add_contributions, add_scores, infer_u, infer_y
from edge_sdk.methods.shared.aggregation import draw, gather
from edge_sdk.methods.shared.aggregation.gather import Nobody
from edge_sdk.methods.shared.aggregation.registration import registered
from edge_sdk.methods.shared.membership.changing import departed
from edge_sdk.methods.shared.training import meta

WHOLE = {"theta", "y"}
"""What a device sends whose y_i^- may be another than the one that its hospital holds: one of the two lost its disk."""


@dataclass(frozen=True)
class HospitalState:
    """What AugFL's hospital remembers.

    Attributes:
        asked: the question that is on; None: the census.
        samples: device -> how many it has.
        news: device -> its upload in the round that is on.
        held: device -> its latest contribution.
        answered: the round of this hospital's latest sums; -1: none, or those that were sent may have been others.
        life: in which the question that is on came (see `life_of`).
    """

    written_as: ClassVar[str] = "Hospital"

    asked: AugflModel | None = None
    samples: Mapping[str, int] = field(default_factory=dict)
    news: Mapping[str, Upload] = field(default_factory=dict)
    held: Mapping[str, Contribution] = field(default_factory=dict)
    answered: int = -1
    life: int = 0


def hospital_start(env: Env) -> Step:
    return HospitalState(), []


def hospital_receive(env: Env, s: HospitalState, sender: str, message: object) -> Step:
    if sender != UP:
        return note_answer(env, s, sender, message), []
    m: Census | AugflModel = gather.expected(sender, message, Census, AugflModel)
    trains = set(meta.training_devices(env, env.settings.unseen))
    here = tuple(d for d in env.here if d in trains)
    if isinstance(m, Census):
        return replace(s, asked=None, news={}, samples={}), [Send(here, m)]
    chosen = draw.chosen(replace(env, here=here), m.round, m.pick)
    question = replace(m, counted={d: s.held[d].round for d in chosen if d in s.held})
    return replace(s, asked=m, news={}, life=life_of(env.asked)), [Send(chosen, question)]


def note_answer(env: Env, s: HospitalState, sender: str, message: object) -> HospitalState:
    m: Counted | Upload | Nobody = gather.expected(sender, message, Counted, Upload, Nobody)
    if isinstance(m, Counted):
        check_devices(env, sender, m.devices)
        return replace(s, samples={**s.samples, sender: int(min(m.samples, registered(env, sender)))})
    if isinstance(m, Nobody):
        return s
    sent = {name for name in ("theta", "y", "u") if getattr(m, name) is not None}
    if sent not in (WHOLE, {BOTH: WHOLE, U: {"u"}, Y: {"y"}}[env.settings.upload]):
        raise PeerError(f"{sender} sent {', '.join(sorted(sent)) or 'nothing'}, upload is {env.settings.upload!r}")
    return replace(s, news={**s.news, sender: m})


def hospital_close(env: Env, s: HospitalState) -> Step:
    if s.asked is None:
        return s, [Send(UP, Counted(sum(s.samples.values()), len(s.samples)))]
    gone = departed(env, {*s.held, *s.news, *s.samples})
    asked, s = s.asked, replace(s, news=without(s.news, gone), samples=without(s.samples, gone))
    if not s.news:
        return s, [Send(UP, Nobody())]
    theta = lowrank.unpack(env.layout, asked.model)
    held = {**without(s.held, gone), **{d: complete_upload(env, s, asked.round, theta, d) for d in sorted(s.news)}}
    sums = make_sums(env, s, asked, held)
    is_only_answer = s.life == life_of(env.asked)  # else it was put back: it may have answered with other sums
    return replace(s, news={}, held=held, answered=asked.round if is_only_answer else -1), [Send(UP, sums)]


def without(of: Mapping[str, Any], gone: frozenset[str]) -> dict[str, Any]:
    """What is left of a table when these devices have left."""
    return {d: one for d, one in of.items() if d not in gone}


def complete_upload(env: Env, s: HospitalState, round: int, theta: Vector, device: str) -> Contribution:
    """What a device has sent, and what it has left out."""
    m, rho = s.news[device], env.settings.penalty_of(device)
    u, y = m.u, m.y
    if not env.settings.dual:
        u, y = rho * m.theta if m.theta is not None else u, None
    elif m.theta is not None and y is not None:
        u = y + rho * m.theta
    elif u is not None:
        y = u - rho * theta if starts_plain(env, s, device) else infer_y(u, latest_dual(s, device, theta), theta, rho)
    elif y is not None:
        u = infer_u(y, y if starts_plain(env, s, device) else latest_dual(s, device, theta), theta, rho)
    assert u is not None  # noted() has checked what was sent
    return Contribution(u, y, rho, m.samples, round)


def starts_plain(env: Env, s: HospitalState, device: str) -> bool:
    """Its first upload: y_i^- is y_i itself."""
    return env.settings.y_init == PLAIN and device not in s.held


def latest_dual(s: HospitalState, device: str, theta: Vector) -> Vector:
    """y_i^-."""
    y = s.held[device].y if device in s.held else None
    return np.zeros_like(theta) if y is None else y


def make_sums(env: Env, s: HospitalState, asked: AugflModel, held: Mapping[str, Contribution]) -> Sums:
    u, y, weight = add_contributions(held, env.theta0)
    mode, short = env.settings.upload, can_be_inferred(env, s, asked, held)
    scores = add_scores({d: m.scores for d, m in s.news.items()})
    return Sums(
        weight=weight,
        samples=sum({**s.samples, **{d: h.samples for d, h in held.items()}}.values()),
        known=len(held),
        count=len(s.news),
        u=None if mode == Y and short else u,
        y=None if mode == U and short else y,
        scores=scores,
    )


def can_be_inferred(env: Env, s: HospitalState, asked: AugflModel, held: Mapping[str, Contribution]) -> bool:
    """True if the aggregator can compute u from y, or y from u.

    It can if all devices have answered this question and it has this hospital's previous sums. A device that is new
    adds y_i^- = 0 to these.
    """
    if not set(s.held) <= set(held):
        return False  # a device has left, and the aggregator does not know its part of the previous sums
    if any(m.theta is not None for m in s.news.values()):
        return False  # that device's y_i^- is no part of them
    new, counted = set(held) - set(s.held), asked.counted.get(env.me, -1)
    if counted != s.answered or (counted < 0 and s.held):
        return False  # it has others, or none: a hospital that was put back has answered with sums it knows nothing of
    starts_at_zero = not new or env.settings.y_init != PLAIN
    return set(s.news) == set(held) and starts_at_zero
