"""FedAL's hospital: bundles what its devices send.

It counts its devices from 0, in the order of their names, and only this number goes up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from edge_sdk.contract.method import DOWN, UP, Send, Step, ask_nobody
from edge_sdk.errors import PeerError
from edge_sdk.methods.fedal.distillation import Logits
from edge_sdk.methods.fedal.messages import (
    LOGITS,
    MODEL,
    SETTLED,
    Average,
    Averages,
    Consensus,
    Feedback,
    HospitalLogits,
    Local,
    Outputs,
    Settled,
    Share,
    Shares,
)
from edge_sdk.methods.fedal.settings import Env
from edge_sdk.methods.shared.aggregation import gather
from edge_sdk.methods.shared.aggregation.gather import Nobody, Sum, Tally


@dataclass(frozen=True)
class HospitalState:
    """What FedAL's hospital remembers.

    Attributes:
        wanted: what its devices were asked for.
        logits: device -> its own.
        shares: architecture -> the sum of its models.
        architectures: device -> its own, of those that have shared.
        settled: who is done, and their scores.
    """

    written_as: ClassVar[str] = "Hospital"

    wanted: str = SETTLED
    logits: Mapping[str, Logits] = field(default_factory=dict)
    shares: Mapping[str, Tally] = field(default_factory=dict)
    architectures: Mapping[str, str] = field(default_factory=dict)
    settled: Tally | None = None


def hospital_start(env: Env) -> Step:
    return HospitalState(), []


def hospital_receive(env: Env, s: HospitalState, sender: str, message: object) -> Step:
    if sender != UP:
        return gather_answer(env, s, sender, message), []
    m = gather.expected(sender, message, Local, Consensus, Averages)
    if isinstance(m, Local):
        return HospitalState(m.then), [Send(DOWN, m)]
    asks = make_feedback(env, m) if isinstance(m, Consensus) else make_averages(s, m)
    return HospitalState(m.then), asks or [ask_nobody(m)]


def make_feedback(env: Env, m: Consensus) -> list[Send]:
    """Feedback to each device that was in the exchange, also if its connection is down at this moment."""
    names = sorted(env.sizes)
    if m.slots and m.slots[-1] >= len(names):
        raise PeerError(f"feedback for device {m.slots[-1]}, there are {len(names)}")
    sends = []
    for i, slot in enumerate(m.slots):
        own = None if m.gradients is None else m.gradients[i]
        told = Feedback(m.round, m.exchange, m.count, m.mean, own, m.then)
        sends.append(Send(names[slot], told))
    return sends


def make_averages(s: HospitalState, m: Averages) -> list[Send]:
    return [Send(d, Average(m.round, m.models.get(a), m.then)) for d, a in sorted(s.architectures.items())]


def gather_answer(env: Env, s: HospitalState, sender: str, message: object) -> HospitalState:
    """The state after a device's answer, which may be that it has nothing to send."""
    wanted: dict[str, type] = {LOGITS: Outputs, MODEL: Share, SETTLED: Settled}
    m = gather.expected(sender, message, wanted[s.wanted], Nobody)
    if isinstance(m, Outputs):
        check_logits(env, sender, m.logits.shape)
        return replace(s, logits={**s.logits, sender: m.logits})
    if isinstance(m, Share):
        if m.count != 1:
            raise PeerError(f"{sender} shared the models of {m.count} devices, it is one")
        kinds = {**s.architectures, sender: m.architecture}
        return replace(s, shares=add_share(s.shares, sender, m), architectures=kinds)
    if isinstance(m, Settled):
        return replace(s, settled=add_settled(env, s.settled, sender, m))
    return s


def check_logits(env: Env, sender: str, shape: tuple[int, ...]) -> None:
    expected = env.settings.public_batch, env.settings.width(env.classes)
    if shape != expected:
        raise PeerError(f"{sender} sent logits of shape {shape}, expected {expected}")


def add_share(shares: Mapping[str, Tally], sender: str, m: Share) -> dict[str, Tally]:
    known = shares.get(m.architecture)
    if known is not None and known.high.shape != m.total.shape:
        raise PeerError(f"{sender} shared {len(m.total)} parameters of {m.architecture}, others {len(known.high)}")
    return {**shares, m.architecture: gather.add(known, sender, Sum(m.total, m.weight, m.count))}


def add_settled(env: Env, tally: Tally | None, sender: str, m: Settled) -> Tally:
    if m.count > env.sizes.get(sender, 1):
        raise PeerError(f"{sender} speaks for {m.count} devices, it has {env.sizes.get(sender, 1)}")
    return gather.add(tally, sender, Sum(np.zeros(0), 1.0, m.count, m.scores))


def hospital_close(env: Env, s: HospitalState) -> Step:
    """What was gathered. Whose architecture is known is remembered until the next question."""
    return HospitalState(s.wanted, architectures=s.architectures), [Send(UP, bundle_answers(env, s))]


def bundle_answers(env: Env, s: HospitalState) -> HospitalLogits | Shares | Settled | Nobody:
    if s.logits:
        numbers = {d: n for n, d in enumerate(sorted(env.sizes))}
        names = sorted(s.logits, key=lambda d: numbers[d])
        return HospitalLogits(tuple(numbers[d] for d in names), np.stack([s.logits[d] for d in names]))
    if s.shares:
        return Shares(tuple(sum_models(env, a, tally) for a, tally in sorted(s.shares.items())))
    return Nobody() if s.settled is None else Settled(s.settled.count, gather.scores(s.settled))


def sum_models(env: Env, architecture: str, tally: Tally) -> Share:
    total = gather.total(tally, env.theta0)
    return Share(architecture, total.total, total.weight, total.count)
