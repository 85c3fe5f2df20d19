"""FedBCD and FedBCD-I in runs in which nobody may look at a single upload: hospitals do nothing but add up.

FedBCD counts silent devices with their last answer. Here each device keeps its own last answer, and sends by how much
gamma_i x_i has changed since (shared/membership/running.py); the aggregator has S and G of all devices. Devices that
were not heard count as in the other form: with the common start or, after a lost disk, with the present z, which they
leave where it is. FedBCD-I counts those who answer, so its hospitals add up what comes, and that is all.

The iterates are those of the other form, up to the rounding of floats. What differs is what a lost disk costs: nobody
else knows what its device has said, so that round is dropped and every device says it anew.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from edge_sdk.algebra import lowrank
from edge_sdk.algebra.lowrank import Packed
from edge_sdk.algebra.vectors import Vector
from edge_sdk.contract.method import UP, Method, NodeEnv, Role, Send, Step, ask_nobody, unchanged
from edge_sdk.contract.traffic import VectorTraffic
from edge_sdk.methods.fedbcd import device as opened
from edge_sdk.methods.fedbcd.aggregator import check_cloud, check_sums, step_on_total
from edge_sdk.methods.fedbcd.equations import common_start, project
from edge_sdk.methods.fedbcd.messages import FedbcdModel
from edge_sdk.methods.fedbcd.settings import Env, OfflineSettings
from edge_sdk.methods.fedbcd.sums import add_unheard, feasible
from edge_sdk.methods.shared.aggregation import draw, exact, gather
from edge_sdk.methods.shared.aggregation.gather import Nobody, Sum, Tally
from edge_sdk.methods.shared.aggregation.plain import never_clipped
from edge_sdk.methods.shared.evaluation.reports import progress
from edge_sdk.methods.shared.membership import mirror, running
from edge_sdk.methods.shared.membership.changing import departed
from edge_sdk.methods.shared.membership.mirror import CountedQuestion, Ledger, Unremembered
from edge_sdk.methods.shared.membership.running import Increment, Stake


@dataclass(frozen=True)
class FedbcdRound(CountedQuestion):
    """Down: a round of FedBCD where nobody opens single uploads. `model`: z."""

    model: Packed


# Device ---------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class DeviceState:
    """What FedBCD's device remembers. `inner`: as in the other form; `stake`: its gamma_i x_i."""

    inner: opened.DeviceState
    stake: Stake


def device_start(env: Env) -> Step:
    inner, sends = opened.device_start(env)
    return DeviceState(inner, running.no_stake(env)), sends


def device_receive(env: Env, s: DeviceState, sender: str, message: object) -> Step:
    m: FedbcdRound = gather.expected(sender, message, FedbcdRound)
    stake = running.settle_stake(s.stake, env.me, m)
    if stake is None:
        return s, [Send(UP, Unremembered())]
    inner, sends = opened.device_receive(env, s.inner, sender, FedbcdModel(m.model, m.round, m.counted))
    sent: Sum = sends[0].message
    stake, change, first = running.raise_stake(stake, m.round, sent.total)
    upload = Increment(change, sent.weight if first else 0.0, 1, sent.scores)
    return DeviceState(inner, stake), [Send(UP, upload)]


def models(env: Env, s: DeviceState | None, m: FedbcdRound) -> dict[str, Vector]:
    return opened.models(env, None if s is None else s.inner, FedbcdModel(m.model, m.round))


# Aggregator -----------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class AggregatorState:
    """What FedBCD's aggregator remembers.

    Attributes:
        model: z.
        round: t.
        ledger: the uploads of this round, and what was counted before.
        running: S and G of the devices that were heard in this era; in FedBCD-I nothing.
    """

    model: Packed
    round: int = 0
    ledger: Ledger = field(default_factory=Ledger)
    running: Tally | None = None


def aggregator_start(env: Env) -> Step:
    check_cloud(env)
    s = AggregatorState(lowrank.dense(env.layout, common_start(env)))
    return s, ask(env, s)


def ask(env: Env, s: AggregatorState) -> list[Send]:
    """Questions to all hospitals that are here; to all devices, where none of this era's has been heard yet."""
    drawn = env.settings.selection == "drawn" and not (s.ledger.era and s.running is None)
    shown = show(env, s)
    counts = {h: env.settings.taking_part(env.sizes[h]) if drawn else env.sizes[h] for h in env.here if h in env.sizes}
    return [Send(h, replace(shown, pick=k, counted=s.ledger.told(h))) for h, k in counts.items()] or [ask_nobody(shown)]


def show(env: Env, s: AggregatorState) -> FedbcdRound:
    return FedbcdRound(s.round, 0, {}, s.ledger.era, s.model)


def aggregator_receive(env: Env, s: AggregatorState, sender: str, message: object) -> Step:
    if isinstance(message, Unremembered):
        return replace(s, ledger=replace(s.ledger, forgotten=True)), []
    running.check_weight(s.running, s.ledger.tally, sender, message, env.settings.weights(env.devices))
    tally = running.gathered(env, s.ledger.tally, sender, message, env.layout.size)
    return replace(s, ledger=replace(s.ledger, tally=tally)), []


def aggregator_close(env: Env, s: AggregatorState) -> Step:
    told = progress(s.round + 1, s.ledger.tally)
    if departed(env, s.ledger.counted):  # a hospital has left with all its devices
        s = replace(s, ledger=replace(s.ledger, forgotten=True))
    s = step(env, s)
    return s, [told] if s.round >= env.rounds else [told, *ask(env, s)]


def step(env: Env, s: AggregatorState) -> AggregatorState:
    """Eq. (5) on S and G. A round that begins an era does not count."""
    total = running.add_round(s.running, s.ledger.tally)
    if s.ledger.forgotten or running.is_full(total):
        return AggregatorState(s.model, s.round + 1, s.ledger.next_era())
    model = step_on_total(env, s.model, add_up_devices(env, s, total))
    return AggregatorState(model, s.round + 1, s.ledger.closed(s.round, env.devices), total)


def add_up_devices(env: Env, s: AggregatorState, total: Tally | None) -> Sum | None:
    """S and G over all devices. The mean of those heard is in X, as each x_i is, whatever rounding has made of it."""
    all_weights = env.settings.weights(env.devices)
    least, heard = running.ROUNDING * all_weights, None
    if total is not None and exact.number(total.weight) > least:
        found = gather.total(total, env.theta0)
        heard = replace(found.contributing(project(env.settings, found.total / found.weight)), count=env.devices)
    unheard = all_weights - (heard.weight if heard else 0.0)
    at = project(env.settings, lowrank.unpack(env.layout, s.model)) if s.ledger.era else common_start(env)
    return add_unheard(heard, unheard, at, env.devices) if unheard > least else heard


# FedBCD-I -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class HospitalState:
    """What FedBCD-I's hospital remembers. `tally`: the uploads of the round that is on."""

    tally: Tally | None = None


def offline_hospital_receive(env: Env, s: HospitalState, sender: str, message: object) -> Step:
    if sender != UP:
        return HospitalState(gather.gathered(env, s.tally, sender, message)), []
    m: FedbcdModel = gather.expected(sender, message, FedbcdModel)
    drawn = env.settings.selection == "drawn"
    count = env.settings.taking_part(len(env.sizes)) if drawn else len(env.here)
    return HospitalState(), [Send(draw.chosen(env, m.round, count), m)]


def offline_hospital_close(env: Env, s: HospitalState) -> Step:
    return s, [Send(UP, gather.answer(s.tally, env.theta0))]


def offline_aggregator_start(env: Env) -> Step:
    check_cloud(env)
    s = AggregatorState(lowrank.dense(env.layout, common_start(env)))
    return s, offline_ask(env, s)


def offline_ask(env: Env, s: AggregatorState) -> list[Send]:
    return [Send(tuple(h for h in env.here if h in env.sizes), FedbcdModel(s.model, s.round))]


def offline_aggregator_receive(env: Env, s: AggregatorState, sender: str, message: object) -> Step:
    if isinstance(message, Sum):
        check_sums(env, sender, message)
    tally = gather.gathered(env, s.ledger.tally, sender, message)
    return replace(s, ledger=replace(s.ledger, tally=tally)), []


def offline_aggregator_close(env: Env, s: AggregatorState) -> Step:
    told, tally = progress(s.round + 1, s.ledger.tally), s.ledger.tally
    model = step_on_total(env, s.model, None if tally is None else gather.total(tally, env.theta0))
    s = AggregatorState(model, s.round + 1)
    return s, [told] if s.round >= env.rounds else [told, *offline_ask(env, s)]


def offline_show(env: Env, s: AggregatorState) -> FedbcdModel:
    return FedbcdModel(s.model, s.round)


# As integers ----------------------------------------------------------------------------------------------------
def was_counted(env: NodeEnv, s: DeviceState, question: FedbcdRound) -> bool | None:
    return running.was_counted(s.stake, env.me, question)


INCREMENTS = VectorTraffic(
    down={FedbcdRound: ("model",)}, up={Increment: ("total",)}, moves=False, was_counted=was_counted
)
SUMS = VectorTraffic(down={FedbcdModel: ("model",)}, up={Sum: ("total",)}, moves=False)


def upload_size(env: NodeEnv) -> int:
    return env.layout.size


def adding(method: Method) -> Method:
    """FedBCD, or FedBCD-I, whose hospitals do nothing but add up."""
    traffic = method.traffic

    def over_sums(of: VectorTraffic) -> Any:
        return lambda settings: found if isinstance(found := traffic(settings), str) else of

    if issubclass(method.settings, OfflineSettings):
        return replace(
            method,
            hospital=Role(
                lambda env: (HospitalState(), []), offline_hospital_receive, offline_hospital_close, HospitalState
            ),
            aggregator=Role(
                offline_aggregator_start, offline_aggregator_receive, offline_aggregator_close, AggregatorState
            ),
            messages=(FedbcdModel, Sum, Nobody),
            show=offline_show,
            traffic=over_sums(replace(SUMS, mend=feasible)),
        )
    return replace(
        method,
        device=Role(device_start, device_receive, unchanged, DeviceState),
        hospital=mirror.hospital(FedbcdRound, upload_size, running.gathered, running.answer),
        aggregator=Role(aggregator_start, aggregator_receive, aggregator_close, AggregatorState),
        messages=(FedbcdRound, Increment, Nobody, Unremembered),
        show=show,
        models=models,
        plain_sums=never_clipped,
        mirrored={"hospital": running.movement, "aggregator": running.movement},
        traffic=over_sums(INCREMENTS),
    )
