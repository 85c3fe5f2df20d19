"""FedSLR in every hospital, and FedBCD's consensus between the hospitals.

Every hospital works on a problem of its own, with a copy w_h of the low-rank model for its devices,

    minimise  sum_{i at h} f_i(w_h) + lam ||w_h||_*   for each hospital h, with all w_h equal,

and the hospitals are drawn together by averaging, in which each weighs as much as it has devices. This is not FedSLR's
one problem: there the proximal operator is taken once, of the mean over all devices; here once per hospital, and the
mean of proximal points is not the proximal point of the mean. The two agree for lam = 0, and for a single hospital. A
step of the aggregator's own (`cloud_step`) makes the common model low-rank again.

With `one_prox` it is FedSLR's one problem. The hospitals leave the operator out and show

    v_h = mean of w_i at h - eta_g * mean of gamma_i at h,

and the aggregator takes it once, of the mean of the latest v_h of all hospitals by number of devices, ready or not:

    w = prox_{eta_g lam ||.||_*}(sum_h n_h v_h / sum_h n_h - eta_g * grad R(w)).

With cloud = "sync" and all devices in each round that is FedSLR, eq. (6), itself. In "first-b" it is the master's step
of asynchronous ADMM (Zhang & Kwok 2014; Chang et al. 2016): a hospital that is late counts with what it showed last. If
it comes to rest, all w_i are w and gamma_i = grad f_i(w), so w is a minimiser; a mean over those alone that are ready
would not rest there, since it leaves out gamma of the others. "rigorous" has no such step and is refused: a hospital
that goes on alone would do so without the operator, towards another problem's solution.

Each hospital is FedSLR's aggregator (fedslr/aggregator.py) for its own devices: it has a low-rank model and a mean of
gamma, and makes the proximal step. The aggregator mixes the models of the first B hospitals that are ready
(consensus.py), and may make a forward-backward step of its own on the mean,

    w = prox_{cloud_step * lam ||.||_*}(mean - cloud_step * grad R(mean)),

where R is a term that the aggregator adds (`smooth_grad`: AugFL's regulariser, outputs of other devices). So a slow
hospital holds nobody up, and its devices are personalised against the common model all the same.

Leaves the device: w_i, to its hospital. Leaves the hospital: its model, and scores as sums. Never: p_i, gamma_i.
When few answer: as in FedSLR within a hospital, as in first-B between them.
Devices that come or leave for good during a run: as in FedSLR within their hospital, whose weight in the mean follows.
A hospital that comes in "sync" is sent the common model, begins with gamma = 0, and mixes from then on; one that leaves
is no part of the mean any more, and brings its own mean of gamma along when it returns. Otherwise it waits for the next
run: only who was asked at the start is ever ready, and B was meant of those.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from edge_sdk.algebra import lowrank
from edge_sdk.algebra.lowrank import Packed
from edge_sdk.contract.method import Method, Role, Send, Step
from edge_sdk.contract.round import Policy
from edge_sdk.contract.search import Range, SearchSpace
from edge_sdk.errors import UsageError
from edge_sdk.methods.fedslr import aggregator as fedslr_aggregator
from edge_sdk.methods.fedslr import settings as fedslr_settings
from edge_sdk.methods.fedslr.messages import FedslrModel
from edge_sdk.methods.fedslr.method import FEDSLR
from edge_sdk.methods.shared.aggregation import gather
from edge_sdk.methods.shared.aggregation.server import ServerTerms, penalty, server_step
from edge_sdk.methods.shared.aggregation.traffics import always_floats
from edge_sdk.methods.shared.consensus import consensus, mixing
from edge_sdk.methods.shared.consensus.consensus import Cloud, Coordinator, Isolated, Mixed, Pieces, Ready
from edge_sdk.methods.shared.membership.changing import fixed_unless_in_step, remaining, unless_in_step
from edge_sdk.methods.shared.training.local import one_of, zero_or_more

SYNC, FIRST_B, RIGOROUS = "sync", "first-b", "rigorous"


@dataclass(frozen=True, kw_only=True)
class Settings(fedslr_settings.Settings):
    """Hyper-parameters of FedSLR, and:

    Attributes:
        cloud: "sync": all hospitals mix; "first-b": the first ones, the others join when they are ready; "rigorous":
            the first ones, the others go on alone.
        ready: B.
        cloud_step: of the aggregator's own step; 0: it only mixes.
        one_prox: the proximal operator is taken by the aggregator and not in the hospitals: FedSLR's one problem.
    """

    cloud: str = SYNC
    ready: int = 0
    cloud_step: float = 0.0
    one_prox: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of(self, (SYNC, FIRST_B, RIGOROUS), "cloud")
        zero_or_more(self, "cloud_step")
        if self.cloud != SYNC and self.ready < 1:
            raise UsageError(f"ready = {self.ready} with cloud = {self.cloud!r}: so many hospitals mix, at least 1")
        if self.one_prox and self.cloud == RIGOROUS:
            raise UsageError(
                "one_prox with cloud = 'rigorous': hospitals that go on alone need an operator of their own"
            )
        if self.one_prox and self.cloud_step:
            raise UsageError(f"cloud_step = {self.cloud_step} with one_prox: its step is eta_g; expected 0")


SEARCH: SearchSpace = {**fedslr_settings.SEARCH, "cloud_step": Range(0.0, 1.0, log=False)}


@dataclass(frozen=True, kw_only=True)
class Env(fedslr_settings.Env):
    """What a node is given. `smooth_grad`: aggregator: gradient of R, theta -> (n,)."""

    settings: Settings = field(default_factory=Settings)


# Hospital -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True)
class Center(fedslr_aggregator.SharedState):
    """FedSLR's aggregator in a hospital. `answers`, `scores`: of the phase that is over; `devices`: as there."""

    answers: int = 0
    scores: Mapping[str, float] = field(default_factory=dict)
    devices: int = 0


def center_start(env: Env) -> Step:
    return Center(**vars(fedslr_aggregator.aggregator_start(env)[0])), []


def center_close(env: Env, s: Center) -> Step:
    penalty = "none" if env.settings.one_prox else env.settings.global_penalty
    # the smooth term is the aggregator's, not the hospitals'
    plain = replace(env, smooth_grad=None, settings=replace(env.settings, global_penalty=penalty))
    after = fedslr_aggregator.step(plain, s)
    if env.settings.one_prox and s.tally is None and after.era == s.era:  # nobody answered: gamma acts all the same
        shown = lowrank.unpack(env.layout, s.model) - env.settings.eta_g * s.gamma_mean
        after = replace(after, model=lowrank.dense(env.layout, shown))
    count, scores = (0, {}) if s.tally is None else (s.tally.count, gather.scores(s.tally))
    return Center(**{**vars(after), "answers": count, "scores": scores}), []


def ready(env: Env, s: Center) -> Ready:
    return Ready(lowrank.unpack(env.layout, s.model), None, s.answers, s.scores)


def take(env: Env, s: Center, mixed: Packed | None, round: int, step: float) -> Center:
    """The global round counts for the step sizes. What an interrupted phase had gathered is dropped."""
    return replace(s, model=s.model if mixed is None else mixed, round=max(s.round, round), tally=None)


def ask(env: Env, s: Center) -> list[Send]:
    """One message for all that are drawn."""
    chosen = tuple(str(send.to) for send in fedslr_aggregator.ask_hospitals(env, s) if isinstance(send.to, str))
    counted = {device: round for device, round in s.counted.items() if device in chosen}
    return [Send(chosen, FedslrModel(s.model, s.round, 1, counted, s.era))]


INSIDE = Role(center_start, fedslr_aggregator.aggregator_receive, center_close, Center)


# Aggregator -----------------------------------------------------------------------------------------------------
def first(env: Env) -> Packed:
    return lowrank.dense(env.layout, env.theta0)


def cloud(env: Env) -> Cloud:
    kind = env.settings.cloud
    return Cloud(step=0.0, rigorous=kind == RIGOROUS, by_devices=True, for_all=kind == SYNC)


def own_step(env: Env, mixed: Packed) -> Packed:
    """The forward-backward step on the mean of the models."""
    s = env.settings
    if s.cloud_step == 0:
        return mixed
    mean = lowrank.unpack(env.layout, mixed)
    terms = ServerTerms(env.smooth_grad, penalty(s.global_penalty, s.lam, env.svt))
    return server_step(terms, env.layout, mean, at=mean, step=s.cloud_step)


MIXING = consensus.coordinator(first, cloud, own_step)


def aggregator_start(env: Env) -> Step:
    """Raises UsageError where the aggregator has a smooth term and no step in which it would act."""
    if env.smooth_grad is not None and env.settings.cloud_step == 0 and not env.settings.one_prox:
        raise UsageError("cloud_step = 0: the aggregator has a term of its own (a private model), which needs a step")
    started: Step = MIXING.start(env)
    return started


def aggregator_close(env: Env, s: Coordinator) -> Step:
    """The close of a round: where the operator is taken once, of the mean of what all hospitals showed last."""
    members = remaining(env, s.ready)
    if not (env.settings.one_prox and members):
        return MIXING.close(env, s)
    told = consensus.tell_progress(s)
    shown = {name: gather.Sum(m.model, 1.0, 1) for name, m in members.items() if m.model is not None}
    w = take_prox(env, s.model, past := {**s.past, **shown})
    s, sends = consensus.mix(env, replace(s, past=past), cloud(env))
    s, sends = consensus.replace_model(s, sends, w)
    return s, [told, *([] if s.round >= env.rounds else sends)]


def take_prox(env: Env, before: Packed, past: Mapping[str, gather.Sum]) -> Packed:
    """FedSLR's eq. (6), of the latest points of the hospitals that there are. `before`: the common model."""
    names = [name for name in sorted(past) if name in env.sizes]
    mean = mixing.by_devices(env.sizes, tuple(names))[0].astype(env.theta0.dtype) @ np.stack(
        [past[n].total for n in names]
    )
    terms = ServerTerms(env.smooth_grad, penalty(env.settings.global_penalty, env.settings.lam, env.svt))
    return server_step(terms, env.layout, mean, at=lowrank.unpack(env.layout, before), step=env.settings.eta_g)


def policies(
    s: Settings, sizes: Mapping[str, int], deadline: float, hospital_deadline: float, evaluate_every: int = 0
) -> dict[str, Policy]:
    """Tier -> when its rounds are over; the same rules as FedBCD's (fedbcd/method.py)."""
    if s.cloud != SYNC and evaluate_every:
        raise UsageError(
            f"evaluate_every = {evaluate_every} with cloud = {s.cloud!r}: an evaluation of all devices would interrupt "
            "hospitals at work; expected 0 (at the end only)"
        )
    need = None if s.cloud == SYNC else s.ready
    return {
        "aggregator": Policy(need=need, quorum=1, deadline=deadline, keep_late=s.cloud == FIRST_B),
        "hospital": Policy(deadline=hospital_deadline),
        "device": Policy(),
    }


def warnings(settings: Settings, sizes: Mapping[str, int]) -> Sequence[str]:
    said = list(fedslr_settings.warnings(settings))
    if settings.cloud != SYNC and settings.ready > len(sizes):
        said.append(f"ready = {settings.ready}: there are {len(sizes)} hospitals, so no round will be over")
    if settings.cloud == SYNC and settings.ready:
        said.append(f"ready = {settings.ready} with cloud = 'sync': has no effect, all hospitals are waited for")
    if settings.cloud_step == 0 and settings.lam and settings.global_penalty != "none" and not settings.one_prox:
        said.append(
            f"cloud_step = 0: lam = {settings.lam} acts in the hospitals only, and the common model, which is the mean "
            "of their models, is dense"
        )
    return said


# For evaluation -------------------------------------------------------------------------------------------------
def show(env: Env, s: Coordinator) -> FedslrModel:
    return FedslrModel(s.model, s.round, 0, {})


FEDSLR_B = Method(
    name="fedslr-b",
    summary="fedslr in hospitals that agree without waiting for all",
    device=FEDSLR.device,
    hospital=consensus.around(INSIDE, Pieces(ready, take, ask)),
    aggregator=replace(MIXING, start=aggregator_start, close=aggregator_close),
    messages=(*FEDSLR.messages, Mixed, Isolated, Ready),
    settings=Settings,
    env=Env,
    show=show,
    models=FEDSLR.models,
    policies=policies,
    warnings=warnings,
    traffic=always_floats("each hospital has a model of its own, and no reference is common to all"),
    mirrored={"hospital": FEDSLR.mirrored["hospital"]},
    recommended=fedslr_settings.RECOMMENDED,
    search=SEARCH,
    warms_up=True,
    fixed_hospitals=fixed_unless_in_step,
    late_counts=unless_in_step,
)
