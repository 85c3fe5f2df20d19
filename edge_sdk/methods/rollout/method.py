"""A rollout as a run in which nothing is trained: what carries training safely carries a version, too.

    aggregator                     hospital                            device
      stage k: VersionOrder    ──>   asks devices that have not     ──>  checks hash, golden vectors, and both versions
                                     been asked, up to its quota         on its own held-out samples; takes it
        sums <── VersionTried        adds their counts up           <──  VersionTried
      next stage, or halt: VersionLeave to all who were asked, who go back
      RolloutOver(kept)        ──>   to all devices                 ──>  the version counts from now on, or is left

The bytes of bundle and model travel as any large message does: in chunks, resumed where they broke off, once. Each
node's part is on its disk, so that a kill of any of them at any moment leaves a rollout that goes on.

Leaves the device: that it has taken the version, and how many of its own held-out samples are right by the version
before and by this one. The aggregator sees sums over the devices of a stage; a stage of one device is that device. An
evaluation has no samples of fewer devices of a hospital than its holder allows (`scores_of`).
When few answer: silent devices count as failures. A device that is never heard leaves the version with its next run.
An evaluation (`only_judge`) is the same without its consequence: nobody takes the version, or leaves another one.
Devices come and leave while it goes on: each stage is dealt out among those of its begin, so who comes later takes the
version in a later stage, or when the rollout is over, if it was for all. So does who has another disk. Nobody waits for
a device that never comes: a hospital asks whom it finds (`Method.patient`). Hospitals that come wait for the next run;
one that leaves is waited for as in any run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt

from edge_sdk.contract.method import DOWN, OUT, UP, Method, NodeEnv, Role, Send, Step, ask_nobody, unchanged
from edge_sdk.contract.run import ROLLOUT as NAME
from edge_sdk.errors import PeerError
from edge_sdk.methods.rollout.messages import (
    NO_BYTES,
    NO_MODEL,
    RolloutOver,
    RolloutVerdict,
    StageOver,
    VersionKept,
    VersionLeave,
    VersionLeft,
    VersionOffer,
    VersionOrder,
    VersionStays,
    VersionTaken,
    VersionTried,
)
from edge_sdk.methods.rollout.plan import (
    JUDGED,
    Settings,
    add_counts,
    check_asked,
    check_counts,
    count_having,
    find_fault,
    list_stages,
    share_out,
    weigh_counts,
)
from edge_sdk.methods.shared.aggregation.gather import expected
from edge_sdk.methods.shared.evaluation.evaluation import Finished
from edge_sdk.methods.shared.membership.changing import always_fixed, departed


@dataclass(frozen=True, kw_only=True)
class Env(NodeEnv):
    """What a node is given.

    Attributes:
        bundle: aggregator: bytes of the bundle's file.
        theta: aggregator: the model, float32 (n,).
        verify: device, hospital: (bundle, theta) -> None; raises UsageError if they are not what the run has signed.
        attempt: device: (bundle, theta) -> counts of this one device.
        has_version: device: does the version of that rollout predict here now?
        scores_of: hospital: of how many devices at least it tells what an evaluation found; None: of one.
        find_version: hospital: the version as it was kept; None: it was not.
    """

    settings: Settings = field(default_factory=lambda: Settings(theta="0"))
    bundle: npt.NDArray[np.uint8] = field(default_factory=lambda: NO_BYTES)
    theta: npt.NDArray[np.float32] = field(default_factory=lambda: NO_MODEL)
    verify: Callable[[Any, Any], None] | None = None
    attempt: Callable[[Any, Any], Mapping[str, float]] | None = None
    has_version: Callable[[str], bool] | None = None
    scores_of: Callable[[], int] | None = None
    find_version: Callable[[], VersionStays | None] = lambda: None


# Device ---------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class DeviceState:
    """`asked`: it was offered the version, or knows that the rollout is over."""

    asked: bool = False


def device_start(env: Env) -> Step:
    return DeviceState(), []


def device_receive(env: Env, s: DeviceState, sender: str, message: object) -> Step:
    m = expected(sender, message, VersionOffer, VersionStays, VersionLeave, RolloutOver)
    if isinstance(m, VersionOffer):
        return attempt_version(env, m)
    if isinstance(m, VersionStays):
        taken = [] if s.asked else attempt_version(env, m)[1][1:]  # what predicts may be of a later run by now
        return DeviceState(True), [*taken, Send(OUT, VersionKept()), Send(OUT, Finished(0))]
    if isinstance(m, VersionLeave):
        assert env.has_version is not None
        counts = {"answered": 1.0, "reverted": float(env.has_version(m.rollout))}
        return s, [Send(UP, VersionTried(counts)), Send(OUT, VersionLeft(m.rollout))]
    kept = Send(OUT, VersionKept()) if m.kept else Send(OUT, VersionLeft(""))
    return DeviceState(True), [kept, Send(OUT, Finished(0))]


def attempt_version(env: Env, m: VersionOffer | VersionStays) -> Step:
    assert env.verify is not None and env.attempt is not None
    env.verify(m.bundle, m.theta)
    counts = {"answered": 1.0, **env.attempt(m.bundle, m.theta)}
    takes = counts.get("installed") and not env.settings.only_judge
    taken = [Send(OUT, VersionTaken(m.bundle, m.theta))] if takes else []
    return DeviceState(True), [Send(UP, VersionTried(counts)), *taken]


# Hospital -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class HospitalState:
    """What a hospital remembers.

    Attributes:
        asked: devices that were ever offered the version.
        latest: how many of them in this stage.
        counts: sums over this stage.
        judged: devices in them that have held-out samples.
        over: it has said that the rollout is. kept: with the version.
    """

    asked: tuple[str, ...] = ()
    latest: int = 0
    counts: Mapping[str, float] = field(default_factory=dict)
    judged: int = 0
    over: bool = False
    kept: bool = False


def hospital_start(env: Env) -> Step:
    return HospitalState(), []


def hospital_receive(env: Env, s: HospitalState, sender: str, message: object) -> Step:
    if sender != UP:
        m: VersionTried = expected(sender, message, VersionTried)
        try:
            check_counts(m.counts, 1)
        except ValueError as error:
            raise PeerError(f"{sender}: {error}") from None
        judged = s.judged + (m.counts.get("samples", 0.0) > 0)
        return replace(s, counts=add_counts(s.counts, weigh_counts(m.counts, 1)), judged=judged), []
    down = expected(sender, message, VersionOrder, VersionLeave, RolloutOver)
    if isinstance(down, VersionOrder):
        return pass_order(env, s, down)
    if isinstance(down, VersionLeave):
        whom = env.here if down.rollout else list_remaining(env, s)  # of one before, or of this rollout
        return replace(s, latest=0, counts={}, judged=0, over=False), [Send(whom, down)]
    s, devices = replace(s, over=True, kept=down.kept), sorted(env.sizes)
    late = tuple(device for device in devices if is_for_all(env.settings) and device not in s.asked)
    others = tuple(device for device in devices if device not in late)
    return s, [Send(others, down, answer=False), *bring_late(env, s, late), Send(OUT, Finished(0))]


def is_for_all(settings: Settings) -> bool:
    return settings.share == 1 and not settings.devices


def bring_late(env: Env, s: HospitalState, devices: tuple[str, ...]) -> list[Send]:
    """The end for devices that have not the version, with it."""
    version = env.find_version() if s.kept and devices else None
    return [Send(devices, version or RolloutOver(s.kept), answer=False)] if devices else []


def hospital_renew(env: Env, s: HospitalState, child: str) -> Step:
    """The end for a device that knows nothing of it: with the version, if it had that or the rollout was for all."""
    if not s.over:
        return s, []
    if child in s.asked or is_for_all(env.settings):
        return s, bring_late(env, s, (child,))
    return s, [Send(child, RolloutOver(s.kept), answer=False)]


def pass_order(env: Env, s: HospitalState, m: VersionOrder) -> Step:
    """Offer the version to further devices that are here. The first time, the hospital keeps it too."""
    assert env.verify is not None
    env.verify(m.bundle, m.theta)
    chosen = choose_devices(env, s.asked, m.upto - len(list_remaining(env, s)))
    is_first = (m.stage == 1 or not s.asked) and not env.settings.only_judge
    first = [Send(OUT, VersionTaken(m.bundle, m.theta))] if is_first else []
    state = replace(s, asked=(*s.asked, *chosen), latest=len(chosen), counts={}, judged=0, over=False)
    return state, [Send(chosen, VersionOffer(m.bundle, m.theta)), *first]


def list_remaining(env: Env, s: HospitalState) -> tuple[str, ...]:
    """Devices that were offered the version and have not left for good; who has fills no place."""
    gone = departed(env, s.asked)
    return tuple(device for device in s.asked if device not in gone)


def choose_devices(env: Env, asked: tuple[str, ...], count: int) -> tuple[str, ...]:
    """The next `count` devices that are here and were not asked, in an order that stays the same in a rollout."""
    named = env.settings.devices
    free = [d for d in sorted(env.here) if d not in asked and (not named or d in named)]
    order = sorted(free, key=lambda d: crc32(f"{env.seed}/{d}".encode()))
    return tuple(order[: max(0, count)])


def hospital_close(env: Env, s: HospitalState) -> Step:
    """An evaluation says nothing of the samples of few devices: whoever asks chooses these, and the model, whose right
    answers may be a device's labels. Of a rollout it does: a bad version is to be halted at its first device."""
    few = env.settings.only_judge and env.scores_of is not None and s.judged < env.scores_of()
    counts = {name: count for name, count in s.counts.items() if not (few and name in JUDGED)}
    return s, [Send(UP, VersionTried({**counts, "asked": float(s.latest)}))]


# Aggregator -----------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class AggregatorState:
    """What the aggregator remembers.

    Attributes:
        stage: that is under way, from 1.
        quotas: hospital -> devices that have been asked there by the end of this stage, at most.
        leaving: devices are going back to the version before.
        counts: sums over all stages.
        fault: why it was halted.
        kept: the version stays; meaningful when it is over.
        over: everybody has been told.
    """

    stage: int = 1
    quotas: Mapping[str, int] = field(default_factory=dict)
    leaving: bool = False
    counts: Mapping[str, float] = field(default_factory=dict)
    fault: str = ""
    kept: bool = False
    over: bool = False


def aggregator_start(env: Env) -> Step:
    if env.settings.undo:
        s = AggregatorState(leaving=True)
        return s, [Send(DOWN, VersionLeave(env.settings.undo))]
    return ask_stage(env, AggregatorState())


def ask_stage(env: Env, s: AggregatorState) -> Step:
    """The orders of a stage, to the hospitals that are here."""
    upto = list_stages(env.settings, env.devices)[s.stage - 1]
    quotas = share_out(env.sizes, upto, env.seed)
    if env.settings.devices:  # nobody but a hospital knows whose they are
        quotas = dict.fromkeys(env.sizes, upto)
    here = [h for h in env.here if quotas.get(h)]
    orders = [Send((h,), VersionOrder(s.stage, quotas[h], env.bundle, env.theta)) for h in here]
    return replace(s, quotas={h: quotas[h] for h in here}), orders or [ask_nobody(RolloutOver(False))]


def aggregator_receive(env: Env, s: AggregatorState, sender: str, message: object) -> Step:
    m: VersionTried = expected(sender, message, VersionTried)
    try:
        check_counts(m.counts, devices := env.sizes.get(sender, 1))
        check_asked(m.counts, s.quotas.get(sender, devices))
    except ValueError as error:
        raise PeerError(f"{sender}: {error}") from None
    return replace(s, counts=add_counts(s.counts, weigh_counts(m.counts, devices))), []


def aggregator_close(env: Env, s: AggregatorState) -> Step:
    if s.over:
        return s, []
    if s.leaving:
        return end(env, replace(s, kept=False))
    stages, fault = list_stages(env.settings, env.devices), find_fault(env.settings, s.counts)
    last = s.stage >= len(stages)  # above it, where devices have left
    if last and env.settings.only_judge:
        told = Send(OUT, StageOver(s.stage, 1, stages[-1], stages[-1], s.counts))
        s, sends = end(env, s)
        return s, [told, *sends]
    if last and not fault and count_having(s.counts) == 0:
        fault = "no device has taken it: none was here when it was asked"
    count, upto = max(s.stage, len(stages)), stages[min(s.stage, len(stages)) - 1]
    told = Send(OUT, StageOver(s.stage, count, upto, stages[-1], s.counts, fault))
    if fault:
        s = replace(s, fault=fault, leaving=True)
        return s, [told, Send(DOWN, VersionLeave(""))]
    if not last:
        s, orders = ask_stage(env, replace(s, stage=s.stage + 1))
        return s, [told, *orders]
    s, sends = end(env, replace(s, kept=True))
    return s, [told, *sends]


def end(env: Env, s: AggregatorState) -> Step:
    s = replace(s, over=True)
    words = Send(tuple(sorted(env.sizes)), RolloutOver(s.kept), answer=False)
    return s, [Send(OUT, RolloutVerdict(s.kept, s.counts, s.fault)), words, Send(OUT, Finished(s.stage))]


def show(env: Env, s: AggregatorState) -> RolloutOver:
    return RolloutOver(s.kept)


def models(env: Env, s: DeviceState | None, m: RolloutOver) -> dict[str, Any]:
    return {}


ROLLOUT = Method(
    name=NAME,
    device=Role(device_start, device_receive, unchanged, DeviceState),
    hospital=Role(hospital_start, hospital_receive, hospital_close, HospitalState, renew=hospital_renew),
    aggregator=Role(aggregator_start, aggregator_receive, aggregator_close, AggregatorState),
    messages=(VersionOrder, VersionOffer, VersionStays, VersionLeave, VersionTried, RolloutOver, Finished),
    settings=Settings,
    env=Env,
    show=show,
    models=models,
    kernels="rollout",
    fixed_hospitals=always_fixed("its stages were dealt out among the hospitals with which it began"),
    patient=False,
)
TOLD = (VersionTaken, VersionLeft, VersionKept, StageOver, RolloutVerdict)
"""What its roles tell their application, which the store keeps until it is told."""
