"""FedAL's aggregator: the mean of all logits, and the discriminator's steps.

It lines up the hospitals by name, and their devices by number: a device's place in that line is its output of the
discriminator.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from edge_sdk.algebra.arrays import Values
from edge_sdk.contract.method import DOWN, Send, Step
from edge_sdk.errors import PeerError, UsageError
from edge_sdk.methods.fedal import discriminator, distillation
from edge_sdk.methods.fedal.discriminator import Mask
from edge_sdk.methods.fedal.distillation import Floats, Labels, Stack
from edge_sdk.methods.fedal.hospital import add_settled, add_share, check_logits
from edge_sdk.methods.fedal.memory import Memory, empty, optimiser, remembered
from edge_sdk.methods.fedal.messages import (
    LOGITS,
    MODEL,
    SETTLED,
    Averages,
    Consensus,
    HospitalLogits,
    Local,
    Settled,
    Shares,
    Shown,
)
from edge_sdk.methods.fedal.settings import DISCRIMINATOR, MEDIAN, Env
from edge_sdk.methods.shared.aggregation import gather
from edge_sdk.methods.shared.aggregation.gather import Nobody, Tally
from edge_sdk.methods.shared.evaluation.reports import progress


@dataclass(frozen=True)
class AggregatorState:
    """What FedAL's aggregator remembers.

    Attributes:
        w: the discriminator; (0,): there is none.
        memory: of its optimiser.
        round, exchange: t, i.
        wanted: what was asked for.
        parcels: hospital -> logits of this exchange.
        shares: architecture -> sum of its models.
        settled: who is done with this round, and their scores.
        game: sums over the devices of this round's exchanges, see `watched`.
    """

    written_as: ClassVar[str] = "Aggregator"

    w: Values
    memory: Memory
    round: int = 0
    exchange: int = 0
    wanted: str = LOGITS
    parcels: Mapping[str, HospitalLogits] = field(default_factory=dict)
    shares: Mapping[str, Tally] = field(default_factory=dict)
    settled: Tally | None = None
    game: Mapping[str, float] = field(default_factory=dict)


def aggregator_start(env: Env) -> Step:
    if env.devices < 2:
        raise UsageError(f"{env.devices} devices: FedAL needs at least 2, or there is nobody to learn from")
    if env.classes < 2:
        raise UsageError(f"{env.classes} classes: FedAL exchanges logits of at least 2")
    w = np.zeros(0, env.theta0.dtype)
    if env.settings.al:
        w = discriminator.initial(env.random(0, DISCRIMINATOR), widths(env), env.theta0.dtype)
    return begin_round(env, AggregatorState(w, empty(w)), 0)


def widths(env: Env) -> tuple[int, ...]:
    """K, the hidden layers, N."""
    return (env.classes, *env.settings.widths, env.devices)


def begin_round(env: Env, s: AggregatorState, round: int) -> tuple[AggregatorState, list[Send]]:
    then = MODEL if env.settings.averaging == "after_local" else LOGITS
    return AggregatorState(s.w, s.memory, round, 0, then), [Send(DOWN, Local(round, then))]


def aggregator_receive(env: Env, s: AggregatorState, sender: str, message: object) -> Step:
    wanted: dict[str, type] = {LOGITS: HospitalLogits, MODEL: Shares, SETTLED: Settled}
    m = gather.expected(sender, message, wanted[s.wanted], Nobody)
    if isinstance(m, HospitalLogits):
        check_logits(env, sender, m.logits.shape[1:])
        if not m.slots or m.slots[-1] >= env.sizes[sender]:
            raise PeerError(f"{sender} sent logits of devices {m.slots}, it has {env.sizes[sender]}")
        return replace(s, parcels={**s.parcels, sender: m}), []
    if isinstance(m, Shares):
        return replace(s, shares=add_shares(env, s.shares, sender, m)), []
    if isinstance(m, Settled):
        return replace(s, settled=add_settled(env, s.settled, sender, m)), []
    return s, []


def add_shares(env: Env, shares: Mapping[str, Tally], sender: str, m: Shares) -> Mapping[str, Tally]:
    if sum(part.count for part in m.parts) > env.sizes[sender]:
        raise PeerError(f"{sender} shared more models than it has devices, {env.sizes[sender]}")
    for part in m.parts:
        shares = add_share(shares, sender, part)
    return shares


def aggregator_close(env: Env, s: AggregatorState) -> Step:
    if s.wanted == LOGITS and s.parcels:
        return close_exchange(env, s)
    if s.wanted == MODEL and s.shares:
        return average_models(env, s)
    return end_round(env, s)


def end_round(env: Env, s: AggregatorState) -> Step:
    """All have settled, or nobody is left."""
    done = progress(s.round + 1, s.settled)
    done = replace(done, message=replace(done.message, sums={**done.message.sums, **s.game}))
    after = AggregatorState(s.w, s.memory, s.round + 1)
    if after.round >= env.rounds:
        return after, [done]
    after, asks = begin_round(env, after, after.round)
    return after, [done, *asks]


def close_exchange(env: Env, s: AggregatorState) -> Step:
    """(b) to (e) on what has come."""
    f, who = stack_logits(env, s)
    there = np.isin(np.arange(env.devices), who)
    s, gradients = play_discriminator(env, s, f, who, there)
    agree = distillation.median_of if env.settings.consensus == MEDIAN else distillation.mean_of
    mean = agree(f) if env.settings.kd else None
    last = s.exchange + 1 == env.settings.tau
    end = MODEL if env.settings.averaging == "after_transfer" else SETTLED
    then, sends, at = end if last else LOGITS, list[Send](), 0
    for h in sorted(s.parcels):
        slots = s.parcels[h].slots
        own = None if gradients is None else gradients[at : at + len(slots)]
        sends.append(Send(h, Consensus(s.round, s.exchange, len(f), mean, slots, own, then)))
        at += len(slots)
    after = replace(s, exchange=s.exchange + 1, wanted=then, parcels={}, shares={}, settled=None)
    return after, sends


def stack_logits(env: Env, s: AggregatorState) -> tuple[Stack, Labels]:
    """All logits (D, B, K) by hospital and number, and which output of the discriminator each device is."""
    offsets, before = {}, 0
    for h in sorted(env.sizes):
        offsets[h], before = before, before + env.sizes[h]
    names = sorted(s.parcels)
    who = [offsets[h] + slot for h in names for slot in s.parcels[h].slots]
    return np.concatenate([s.parcels[h].logits for h in names]), np.array(who, np.int64)


def play_discriminator(
    env: Env, s: AggregatorState, f: Stack, who: Labels, there: Mask
) -> tuple[AggregatorState, Stack | None]:
    """(b), then (d): the new w judges the old outputs. One device alone plays with nobody."""
    found = measure_exchange(env, f)
    if not env.settings.al or len(f) < 2:
        return replace(s, game=add_sums(s.game, found)), None
    flat, whose = f.reshape(-1, f.shape[-1]), np.repeat(who, f.shape[1])
    s = teach_discriminator(env, s, flat, whose, there)
    payoff, g, right = env.discriminator.feedback(s.w, widths(env), flat, whose, there, env.settings.temperature_d)
    size = f.shape[1]
    found |= {"payoff": float(payoff.astype(np.float64).sum()) / size, "caught": float(right.sum()) / size}
    found["floor"] = -len(f) * float(np.log(len(f)))
    return replace(s, game=add_sums(s.game, found)), np.asarray(g, f.dtype).reshape(f.shape)


def teach_discriminator(env: Env, s: AggregatorState, f: Floats, who: Labels, there: Mask) -> AggregatorState:
    """w^{t,i+1}: one ascent step on the mean payoff of all N B vectors, (8) (13)."""
    settings = env.settings
    gradient = env.discriminator.ascent(s.w, widths(env), f, who, there, settings.temperature_d)
    opt, w = optimiser(settings.optimiser_d, settings.ascent(s.round), s.memory), s.w.copy()
    opt.step(w, np.asarray(-gradient, w.dtype))
    return replace(s, w=w, memory=remembered(opt, w))


def measure_exchange(env: Env, f: Stack) -> dict[str, float]:
    """For the metrics, as sums over the devices of an exchange, of which there are `exchanged`.

    payoff: calU; of the best discriminator between `floor`, -log of their number (they are alike), and 0. caught: how
    often the discriminator is right. gap: zeta_n, how far a device's probabilities are from the mean.
    """
    found = {"exchanged": float(len(f))}
    if len(f) > 1 and not env.settings.features:
        found["gap"] = float(distillation.gaps(f.astype(np.float64), env.settings.temperature_kd).sum())
    return found


def add_sums(sums: Mapping[str, float], more: Mapping[str, float]) -> dict[str, float]:
    return {name: sums.get(name, 0.0) + more.get(name, 0.0) for name in sorted({*sums, *more})}


def average_models(env: Env, s: AggregatorState) -> Step:
    """FedDF: theta_G = sum of |D_n| theta_n / sum of |D_n|. A device that is alone in its group keeps its own."""
    models = {}
    for architecture, tally in sorted(s.shares.items()):
        if tally.count > 1:
            mean = gather.total(tally, np.zeros(0))  # in double precision, rounded once
            models[architecture] = (mean.total / mean.weight).astype(env.theta0.dtype)
    then = LOGITS if env.settings.averaging == "after_local" else SETTLED
    hospitals = sorted({h for tally in s.shares.values() for h in tally.heard})
    after = replace(s, wanted=then, parcels={}, shares={}, settled=None)
    return after, [Send(tuple(hospitals), Averages(s.round, models, then))]


def show(env: Env, s: AggregatorState) -> Shown:
    return Shown(s.round)
