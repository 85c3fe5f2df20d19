"""AugFL in runs in which nobody may look at a single upload: hospitals do nothing but add up.

Who is silent counts with its latest u_i and y_i. Here each device keeps its own, and sends by how much they have
changed since (shared/membership/running.py); the aggregator has their sums, and that of rho_i, over all devices that
were counted. The dual y_i moves if and only if its upload was counted, which the device is told anyway. The census is a
sum of counts, and stays one.

The iterates are those of the other form, up to the rounding of floats. An upload is u_i and y_i, one behind the other,
also with upload = "y"; with upload = "u", and without duals, it is u_i alone, and the residual is not known. A lost
disk costs its round, and every device says its u_i and y_i anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from edge_sdk.algebra import lowrank
from edge_sdk.algebra.arrays import Values
from edge_sdk.algebra.lowrank import Packed
from edge_sdk.algebra.vectors import Vector
from edge_sdk.contract.method import DOWN, OUT, UP, Method, NodeEnv, Role, Send, Step, ask_nobody, unchanged
from edge_sdk.contract.traffic import VectorTraffic
from edge_sdk.errors import PeerError, UsageError
from edge_sdk.methods.augfl import device as opened
from edge_sdk.methods.augfl.aggregator import census_close, make_terms, measure_residual
from edge_sdk.methods.augfl.messages import AugflModel, Census, Counted, Upload, check_devices
from edge_sdk.methods.augfl.settings import BOTH, SAMPLES, Env, U
from edge_sdk.methods.shared.aggregation import draw, exact, gather
from edge_sdk.methods.shared.aggregation.gather import Nobody, Tally
from edge_sdk.methods.shared.aggregation.plain import never_clipped
from edge_sdk.methods.shared.aggregation.registration import registered
from edge_sdk.methods.shared.aggregation.server import server_step
from edge_sdk.methods.shared.evaluation.reports import Progress
from edge_sdk.methods.shared.membership import mirror, running
from edge_sdk.methods.shared.membership.changing import departed, fixed_while_unseen
from edge_sdk.methods.shared.membership.mirror import CountedQuestion, Ledger, MirrorHospital, Unremembered
from edge_sdk.methods.shared.membership.running import Increment, Stake
from edge_sdk.methods.shared.training import meta


@dataclass(frozen=True)
class AugflRound(CountedQuestion):
    """Down: a round of AugFL where nobody opens single uploads.

    Attributes:
        model: theta^t.
        samples, devices: as of `AugflModel`.
    """

    model: Packed
    samples: int
    devices: int

    def opened(self) -> AugflModel:
        """The question as the other form has it."""
        return AugflModel(self.model, self.round, self.pick, self.samples, self.devices, self.counted)


def sends_duals(env: Env) -> bool:
    """True if an upload has y_i behind u_i."""
    return env.settings.dual and env.settings.upload != U


def upload_size(env: Any) -> int:
    vectors = 2 if sends_duals(env) else 1
    return vectors * int(env.layout.size)


# Device ---------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class DeviceState:
    """What AugFL's device remembers. `inner`: as in the other form; `stake`: its u_i, and y_i."""

    inner: opened.DeviceState
    stake: Stake


def device_start(env: Env) -> Step:
    inner, sends = opened.device_start(env)
    return DeviceState(inner, running.no_stake(env)), sends


def device_receive(env: Env, s: DeviceState, sender: str, message: object) -> Step:
    m: Census | AugflRound = gather.expected(sender, message, Census, AugflRound)
    if isinstance(m, Census):
        return s, opened.device_receive(env, s.inner, sender, m)[1]
    stake = running.settle_stake(s.stake, env.me, m)
    if stake is None:
        return s, [Send(UP, Unremembered())]
    inner, sends = opened.device_receive(sending_both(env), s.inner, sender, m.opened())
    if not isinstance(sends[-1].message, Upload):
        return s, sends  # it has nothing, or its training diverged: all stays as it was
    sent, rho = sends[-1].message, env.settings.penalty_of(env.me)
    stake, change, first = running.raise_stake(stake, m.round, contribution(env, sent, rho))
    return DeviceState(inner, stake), [Send(UP, Increment(change, rho if first else 0.0, 1, sent.scores))]


def sending_both(env: Env) -> Env:
    """The env of a device that sends theta_i and y_i, from which all else follows."""
    return env if env.settings.upload == BOTH else replace(env, settings=replace(env.settings, upload=BOTH))


def contribution(env: Env, m: Upload, rho: float) -> Vector:
    """u_i and, where it travels, y_i behind it."""
    assert m.theta is not None and m.y is not None  # sending_both
    u = m.y + rho * m.theta if env.settings.dual else rho * m.theta
    return np.concatenate([u, m.y]) if sends_duals(env) else u


def models(env: Env, s: DeviceState | None, m: AugflRound) -> dict[str, Vector]:
    return opened.models(env, None if s is None else s.inner, m.opened())


# Hospital -------------------------------------------------------------------------------------------------------
MIRROR = mirror.hospital(AugflRound, upload_size, running.gathered, running.answer)


@dataclass(frozen=True)
class HospitalState:
    """What AugFL's hospital remembers.

    Attributes:
        rounds: of rounds.
        census: the sum of what has come in the census that is on; None: none is.
    """

    rounds: MirrorHospital = field(default_factory=MirrorHospital)
    census: Counted | None = None


def hospital_receive(env: Env, s: HospitalState, sender: str, message: object) -> Step:
    trains = set(meta.training_devices(env, env.settings.unseen))
    env = replace(env, here=tuple(d for d in env.here if d in trains))
    if isinstance(message, Census) and sender == UP:
        return replace(s, census=Counted(0, 0)), [Send(env.here, message)]
    if isinstance(message, Counted):
        return replace(s, census=add_count(env, s.census, sender, message)), []
    if s.census is not None and sender != UP:
        gather.expected(sender, message, Nobody)
        return s, []
    rounds, sends = MIRROR.receive(env, s.rounds, sender, message)
    return HospitalState(rounds), sends


def add_count(env: Env, census: Counted | None, sender: str, m: Counted) -> Counted:
    """The sum with one more count. Raises PeerError where none was asked for, or of more devices."""
    if census is None:
        raise PeerError(f"{sender} sent {m.samples} samples, which was not asked for")
    check_devices(env, sender, m.devices)
    samples = int(min(m.samples, registered(env, sender)))
    return Counted(census.samples + samples, census.devices + m.devices)


def hospital_close(env: Env, s: HospitalState) -> Step:
    if s.census is not None:
        return s, [Send(UP, s.census)]
    rounds, sends = MIRROR.close(env, s.rounds)
    return replace(s, rounds=rounds), sends


# Aggregator -----------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class AggregatorState:
    """What AugFL's aggregator remembers.

    Attributes:
        model: theta^t as it is sent; the first one is dense.
        memory: the regulariser's.
        round: t.
        counting: the census is on.
        samples: hospital -> how many samples its training devices have.
        ledger: the uploads of this round, and what was counted before.
        running: the sums of u_i, y_i and rho_i over the devices that were counted in this era.
    """

    model: Packed
    memory: Values
    round: int = 0
    counting: bool = False
    samples: Mapping[str, int] = field(default_factory=dict)
    ledger: Ledger = field(default_factory=Ledger)
    running: Tally | None = None


def aggregator_start(env: Env) -> Step:
    if env.devices < 1:
        raise UsageError("the aggregator knows of no device: sizes names each hospital with its number of devices")
    if env.settings.stop and not sends_duals(env):
        raise UsageError(f"stop = {env.settings.stop:g} with upload = 'u': where only sums are read, that residual is")
    counting = env.settings.weighting == SAMPLES
    s = AggregatorState(lowrank.dense(env.layout, env.theta0), env.memory, counting=counting)
    return s, [Send(DOWN, Census())] if counting else ask(env, s)


def ask(env: Env, s: AggregatorState) -> list[Send]:
    """Questions to as many devices as are drawn; to all, where none of a later era has been heard yet."""
    place = replace(env, sizes=meta.training_sizes(env, env.settings.unseen))
    quotas = draw.quotas(place, s.round, env.settings.participation, env.settings.selection)
    if s.ledger.era and s.running is None:
        quotas = {h: place.sizes[h] for h in env.here if place.sizes.get(h)}
    shown = show(env, s)
    found = [Send(h, replace(shown, pick=k, counted=s.ledger.told(h))) for h, k in quotas.items()]
    return found or [ask_nobody(shown)]


def show(env: Env, s: AggregatorState) -> AugflRound:
    devices = sum(meta.training_sizes(env, env.settings.unseen).values())
    return AugflRound(s.round, 0, {}, s.ledger.era, s.model, sum(s.samples.values()), devices)


def aggregator_receive(env: Env, s: AggregatorState, sender: str, message: object) -> Step:
    if isinstance(message, Unremembered):
        return replace(s, ledger=replace(s.ledger, forgotten=True)), []
    if isinstance(message, Counted):
        check_devices(env, sender, message.devices)
        return replace(s, samples={**s.samples, sender: message.samples}), []
    running.check_weight(s.running, s.ledger.tally, sender, message, all_penalties(env))
    tally = running.gathered(env, s.ledger.tally, sender, message, upload_size(env))
    return replace(s, ledger=replace(s.ledger, tally=tally)), []


def all_penalties(env: Env) -> float:
    """The most that rho_i of all devices come to: `rhos` may name some that are not there."""
    named = sum(sorted(env.settings.rhos.values(), reverse=True)[: env.devices])
    return named + env.settings.rho * env.devices


def aggregator_close(env: Env, s: AggregatorState) -> Step:
    if s.counting:
        return census_close(env, s, ask)
    if departed(env, s.ledger.counted):  # a hospital has left with all its devices
        s = replace(s, ledger=replace(s.ledger, forgotten=True))
    done, found = step(env, s)
    tally = s.ledger.tally
    count, scores = (0, {}) if tally is None else (tally.count, gather.scores(tally))
    told = Send(OUT, Progress(done.round, count, scores | found))
    over = done.round >= env.rounds or is_stationary(env, count, found)
    return done, [told] if over else [told, *ask(env, done)]


def step(env: Env, s: AggregatorState) -> tuple[AggregatorState, dict[str, float]]:
    """Eq. (13) on the sums, and figures. A round that begins an era does not count, nor one in which nobody answers."""
    total = running.add_round(s.running, s.ledger.tally)
    if s.ledger.forgotten or running.is_full(total):
        return replace(s, round=s.round + 1, ledger=s.ledger.next_era(), running=None), {}
    heard = s.ledger.tally is not None
    s = replace(s, round=s.round + 1, ledger=s.ledger.closed(s.round, env.devices), running=total)
    return stepped(env, s, total) if heard and total is not None and exact.number(total.weight) > 0 else (s, {})


def stepped(env: Env, s: AggregatorState, total: Tally) -> tuple[AggregatorState, dict[str, float]]:
    sums, theta = gather.total(total, env.theta0), lowrank.unpack(env.layout, s.model)
    u, y = np.split(sums.total, 2) if sends_duals(env) else (sums.total, None)
    pull = env.regulariser(theta, s.round - 1, s.memory) if env.regulariser else None
    model = server_step(make_terms(env, pull), env.layout, u / sums.weight, at=theta, step=1 / sums.weight)
    memory = pull.memory if pull else s.memory
    return replace(s, model=model, memory=memory), measure_residual(env, y, pull)


def is_stationary(env: Env, answered: int, found: Mapping[str, float]) -> bool:
    """The rule of Settings.stop. Stale duals say nothing of the present model, so all must have answered."""
    everybody = sum(meta.training_sizes(env, env.settings.unseen).values())
    return answered == everybody and found.get("residual", np.inf) <= env.settings.stop > 0


# As integers ----------------------------------------------------------------------------------------------------
def near_model(env: Any, who: str, upload: Increment, path: str, theta: Vector) -> Vector:
    """What lies near a change: rho_i theta for a first u_i, and zero for all else."""
    u = upload.weight * theta
    return np.concatenate([u, np.zeros_like(u)]) if sends_duals(env) else u


def was_counted(env: NodeEnv, s: DeviceState, question: AugflRound) -> bool | None:
    return running.was_counted(s.stake, env.me, question)


TRAFFIC = VectorTraffic(
    down={AugflRound: ("model",)},
    up={Increment: ("total",)},
    anchor=near_model,
    moves=False,
    counts=(Counted,),
    was_counted=was_counted,
)


def fixed_after_census(settings: Any) -> str:
    """A `Method.fixed`: later samples could only be counted by somebody who reads single uploads."""
    if settings.weighting == SAMPLES:
        return "weighting = 'samples': the samples of all devices are counted once, before the first round"
    return fixed_while_unseen(settings)


def adding(method: Method) -> Method:
    """AugFL, whose hospitals do nothing but add up."""
    return replace(
        method,
        device=Role(device_start, device_receive, unchanged, DeviceState),
        hospital=Role(lambda env: (HospitalState(), []), hospital_receive, hospital_close, HospitalState),
        aggregator=Role(aggregator_start, aggregator_receive, aggregator_close, AggregatorState),
        messages=(Census, Counted, AugflRound, Increment, Nobody, Unremembered),
        show=show,
        models=models,
        traffic=lambda settings: TRAFFIC,
        fixed=fixed_after_census,
        plain_sums=never_clipped,
        mirrored={"hospital": running.movement, "aggregator": running.movement},
    )
