"""AugFL. S. Yue, Z. Qin, Y. Deng, J. Ren, Y. Zhang, J. Zhang: "AugFL: Augmenting Federated Learning with Pretrained
Models"; extends "Inexact-ADMM Based Federated Meta-Learning for Fast and Continual Edge Learning", MobiHoc 2021.

    minimise  sum_i w_i L_i(theta - alpha grad L_i(theta; support); query) + lambda R_h(theta, theta_p)      eq. (14)

All devices learn one model that becomes a good personal one after a step on a device's support set. The aggregator
pulls it to a pretrained model theta_p of its own, which nobody else sees.

    Algorithm 1                                                 here
    phi_i, eq. (7); g_i, eq. (10)                               meta.meta_gradient
    theta_i, eq. (11), with the old dual                        primal
    y_i, eq. (12), with the new primal                          dual
    theta^{t+1}, eq. (13), with grad R_h at the old theta^t     step
    adaptation at seen and unseen devices                       meta.adapted

Where the paper is silent: rounds are 0 .. T-1; delta_t counts from 1; y_i^-1 is 0 (Settings.y_init); w_i is a share of
the samples of all training devices, which are counted before the first round; gradients are of full sets.
That y_i = -w_i G_i, theta_i = theta + (y_i - y_i^-) / rho_i, and S^t = lambda grad R_h(theta^t) - sum_i y_i is the
residual of stationarity, follows from these equations.

Leaves the device: theta_i and y_i, u_i, or y_i (Settings.upload, augfl_sums.py), and scores. Leaves the hospital: their
sums. Never leaves the aggregator: theta_p, its data and features, lambda, R_h. With lambda = 0 it has none of them.
Kind of upload: replaceable. Who is not asked, or is silent, counts with its latest upload, as in asynchronous ADMM. And
mirrored: y_i moves if and only if its upload was counted, so a device keeps `y` and `tried`, and each question tells
which upload of its receiver was counted last.
Nobody answers: the same model again. A device whose training has diverged says that it has nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from edge_sdk.algebra import lowrank, prox
from edge_sdk.algebra.arrays import Theta, Values
from edge_sdk.algebra.lowrank import Packed
from edge_sdk.algebra.vectors import Vector
from edge_sdk.contract.method import DOWN, OUT, UP, Method, NodeEnv, Role, Send, Step, unchanged
from edge_sdk.errors import PeerError, UsageError
from edge_sdk.methods.augfl.settings import BOTH, NONE, PLAIN, SAMPLES, Settings, U, Y, warnings
from edge_sdk.methods.augfl.sums import (
    Census,
    Counted,
    Global,
    Held,
    Sums,
    Upload,
    has_diverged,
    summed_scores,
    total_of,
    u_of,
    y_of,
)
from edge_sdk.methods.shared import draw, gather, meta
from edge_sdk.methods.shared.gather import Nobody
from edge_sdk.methods.shared.local import gradient
from edge_sdk.methods.shared.meta import HessianProduct
from edge_sdk.methods.shared.reports import Progress, training_scores
from edge_sdk.methods.shared.server import ServerTerms, Svt, penalty, server_step

__all__ = ["AUGFL", "Env", "Global", "Pull", "Regulariser", "Settings", "Sums", "Upload", "warnings"]


SUMMAND = 2.0**-16
"""Share of the largest number that a device may send: so many of them can be added up."""


@dataclass(frozen=True)
class Pull:
    """What the aggregator's regulariser says of one model.

    Attributes:
        gradient: (n,), lambda grad R_h.
        value: lambda R_h.
        memory: what it wants to be given next time (trained heads, a bank of features).
    """

    gradient: Vector
    value: float
    memory: Vector


Regulariser = Callable[[Vector, int, Vector], Pull]
"""(theta, round, memory) -> its pull. The same for the same arguments."""


@dataclass(frozen=True, kw_only=True)
class Env(NodeEnv):
    """What a node is given.

    Attributes:
        hessian: device: the exact product, where settings ask for it.
        y_init: device: y_i^-1, in place of what settings say; only with upload = "theta_y".
        regulariser: aggregator: lambda R_h; None: lambda is 0, and there is no pretrained model.
        memory: aggregator: what the regulariser is given first.
        svt: aggregator: prox.svt or its twin on a GPU.
    """

    settings: Settings = field(default_factory=Settings)
    hessian: HessianProduct | None = None
    y_init: Vector | None = None
    regulariser: Regulariser | None = None
    memory: Vector = field(default_factory=lambda: np.zeros(0, np.float32))
    svt: Svt = prox.svt


# Equations ------------------------------------------------------------------------------------------------------
def primal(theta: Vector, y: Vector, g: Vector, weight: float, rho: float) -> Vector:
    """Eq. (11): theta_i = argmin <y + w G, theta_i - theta> + rho / 2 ||theta_i - theta||^2, with the old dual."""
    return theta - (y + weight * g) / rho


def dual(theta: Vector, y: Vector, theta_i: Vector, rho: float) -> Vector:
    """Eq. (12), with the new primal."""
    return y + rho * (theta_i - theta)


def weight_of(env: Env, m: Global) -> float:
    """w_i."""
    if env.settings.weighting == SAMPLES:
        return env.samples / max(m.samples, env.samples)
    return 0.0 if env.settings.weighting == NONE else 1 / max(1, m.devices)


# Device ---------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Device:
    """Attributes:
    y: the dual, if the upload of `round` was not counted.
    tried: the dual, if it was.
    round: the global round in which this device last took part; -1: it never did.
    """

    y: Theta
    tried: Theta
    round: int = -1


def device_start(env: Env) -> Step:
    y = np.zeros_like(env.theta0) if env.y_init is None else env.y_init
    return Device(y, y), []


def device_receive(env: Env, s: Device, sender: str, message: object) -> Step:
    m: Census | Global = gather.expected(sender, message, Census, Global)
    if env.samples < 2:
        return s, [Send(UP, Nobody())]
    if isinstance(m, Census):
        return s, [Send(UP, Counted(env.samples))]
    theta, y = lowrank.unpack(env.layout, m.model), s.tried if m.counted.get(env.me, -1) == s.round else s.y
    weight, rho = weight_of(env, m), env.settings.penalty_of(env.me)
    loss, g = meta_gradient(env, theta, m.round, weight)
    if env.settings.y_init == PLAIN and env.me not in m.counted:
        y = -weight * g
    if not env.settings.dual:
        y = np.zeros_like(theta)
    theta_i = primal(theta, y, g, weight, rho)
    after = dual(theta, y, theta_i, rho) if env.settings.dual else y
    if has_diverged(theta_i, after, share=SUMMAND):
        return s, [Send(UP, Nobody())]
    scores = training_scores(env, loss, {"global": theta}) | residuals(theta_i - theta, after - y)
    return Device(y, after, m.round), [Send(UP, upload(env, theta_i, after, rho, scores))]


def meta_gradient(env: Env, theta: Vector, round: int, weight: float) -> tuple[float | None, Vector]:
    """F_i and G_i; not computed where they count nothing."""
    if weight == 0:
        return None, np.zeros_like(theta)
    support, query = meta.support_and_query(env, env.settings.support)
    return meta.meta_gradient(gradient(env), env.settings, theta, support, query, round, env.hessian)


def residuals(primal: Vector, dual: Vector) -> dict[str, float]:
    """||theta_i - theta||^2 and ||y_i - y_i^-||^2."""
    return {"primal_residual": float(primal @ primal), "dual_residual": float(dual @ dual)}


def upload(env: Env, theta_i: Vector, y: Vector, rho: float, scores: Mapping[str, float]) -> Upload:
    if env.settings.upload == U:
        return Upload(env.samples, u=y + rho * theta_i, scores=scores)
    return Upload(env.samples, theta=theta_i if env.settings.upload == BOTH else None, y=y, scores=scores)


# Hospital -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Hospital:
    """Attributes:
    asked: the question that is on; None: the census.
    samples: device -> how many it has.
    news: device -> its upload in the round that is on.
    held: device -> what counts of it.
    answered: the round of this hospital's latest sums.
    """

    asked: Global | None = None
    samples: Mapping[str, int] = field(default_factory=dict)
    news: Mapping[str, Upload] = field(default_factory=dict)
    held: Mapping[str, Held] = field(default_factory=dict)
    answered: int = -1


def hospital_start(env: Env) -> Step:
    return Hospital(), []


def hospital_receive(env: Env, s: Hospital, sender: str, message: object) -> Step:
    if sender != UP:
        return noted(env, s, sender, message), []
    m: Census | Global = gather.expected(sender, message, Census, Global)
    trains = set(meta.training_devices(env, env.settings.unseen))
    here = tuple(d for d in env.here if d in trains)
    if isinstance(m, Census):
        return replace(s, asked=None, news={}, samples={}), [Send(here, m)]
    chosen = draw.chosen(replace(env, here=here), m.round, m.pick)
    question = replace(m, counted={d: s.held[d].round for d in chosen if d in s.held})
    return replace(s, asked=m, news={}), [Send(chosen, question)]


def noted(env: Env, s: Hospital, sender: str, message: object) -> Hospital:
    m: Counted | Upload | Nobody = gather.expected(sender, message, Counted, Upload, Nobody)
    if isinstance(m, Counted):
        return replace(s, samples={**s.samples, sender: m.samples})
    if isinstance(m, Nobody):
        return s
    sent = {name for name in ("theta", "y", "u") if getattr(m, name) is not None}
    if sent != {BOTH: {"theta", "y"}, U: {"u"}, Y: {"y"}}[env.settings.upload]:
        raise PeerError(f"{sender} sent {', '.join(sorted(sent)) or 'nothing'}, upload is {env.settings.upload!r}")
    return replace(s, news={**s.news, sender: m})


def hospital_close(env: Env, s: Hospital) -> Step:
    if s.asked is None:
        return s, [Send(UP, Counted(sum(s.samples.values()), len(s.samples)))]
    if not s.news:
        return s, [Send(UP, Nobody())]
    theta = lowrank.unpack(env.layout, s.asked.model)
    held = {**s.held, **{d: counted(env, s, s.asked.round, theta, d) for d in sorted(s.news)}}
    sums = summed_up(env, s, s.asked, held)
    return replace(s, news={}, held=held, answered=s.asked.round), [Send(UP, sums)]


def counted(env: Env, s: Hospital, round: int, theta: Vector, device: str) -> Held:
    """What a device has sent, and what it has left out."""
    m, rho = s.news[device], env.settings.penalty_of(device)
    u, y = m.u, m.y
    if not env.settings.dual:
        u, y = rho * m.theta if m.theta is not None else u, None
    elif m.theta is not None and y is not None:
        u = y + rho * m.theta
    elif u is not None:
        y = u - rho * theta if is_plain(env, s, device) else y_of(u, before(s, device, theta), theta, rho)
    elif y is not None:
        u = u_of(y, y if is_plain(env, s, device) else before(s, device, theta), theta, rho)
    assert u is not None  # noted() has checked what was sent
    return Held(u, y, rho, m.samples, round)


def is_plain(env: Env, s: Hospital, device: str) -> bool:
    """Its first upload: y_i^- is y_i itself."""
    return env.settings.y_init == PLAIN and device not in s.held


def before(s: Hospital, device: str, theta: Vector) -> Vector:
    """y_i^-."""
    y = s.held[device].y if device in s.held else None
    return np.zeros_like(theta) if y is None else y


def summed_up(env: Env, s: Hospital, asked: Global, held: Mapping[str, Held]) -> Sums:
    u, y, weight = total_of(held, env.theta0)
    mode, short = env.settings.upload, follows(env, s, asked, held)
    scores = summed_scores({d: m.scores for d, m in s.news.items()})
    return Sums(
        weight=weight,
        samples=sum({**s.samples, **{d: h.samples for d, h in held.items()}}.values()),
        known=len(held),
        count=len(s.news),
        u=None if mode == Y and short else u,
        y=None if mode == U and short else y,
        scores=scores,
    )


def follows(env: Env, s: Hospital, asked: Global, held: Mapping[str, Held]) -> bool:
    """Whether the aggregator can tell u from y, or y from u: all devices have answered this question, and the
    aggregator has this hospital's sums of before. A device that is new adds y_i^- = 0 to these."""
    new = set(held) - set(s.held)
    starts_at_zero = not new or env.settings.y_init != PLAIN
    return set(s.news) == set(held) and asked.counted.get(env.me, -1) == s.answered and starts_at_zero


# Aggregator -----------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Aggregator:
    """Attributes:
    model: theta^t as it is sent; the first one is dense.
    memory: the regulariser's.
    round: t.
    counting: the census is on.
    samples: hospital -> how many samples its training devices have.
    news: hospital -> its sums in the round that is on.
    held: hospital -> what counts of it.
    """

    model: Packed
    memory: Values
    round: int = 0
    counting: bool = False
    samples: Mapping[str, int] = field(default_factory=dict)
    news: Mapping[str, Sums] = field(default_factory=dict)
    held: Mapping[str, Held] = field(default_factory=dict)


def aggregator_start(env: Env) -> Step:
    if env.devices < 1:
        raise UsageError("the aggregator knows of no device: sizes names each hospital with its number of devices")
    counting = env.settings.weighting == SAMPLES
    s = Aggregator(lowrank.dense(env.layout, env.theta0), env.memory, counting=counting)
    return s, [Send(DOWN, Census())] if counting else questions(env, s)


def questions(env: Env, s: Aggregator) -> list[Send]:
    place = replace(env, sizes=meta.training_sizes(env, env.settings.unseen))
    quotas = draw.quotas(place, s.round, env.settings.participation, env.settings.selection)
    asked = show(env, s)
    known = {h: {h: s.held[h].round} if h in s.held else {} for h in quotas}
    return [Send(h, replace(asked, pick=k, counted=known[h])) for h, k in quotas.items()] or [Send((), asked)]


def aggregator_receive(env: Env, s: Aggregator, sender: str, message: object) -> Step:
    m: Counted | Sums | Nobody = gather.expected(sender, message, Counted, Sums, Nobody)
    most, claimed = env.sizes.get(sender, 1), getattr(m, "known", getattr(m, "devices", 0))
    if claimed > most:
        raise PeerError(f"{sender} counts {claimed} devices, it has {most}")
    if isinstance(m, Counted):
        return replace(s, samples={**s.samples, sender: m.samples}), []
    return (s if isinstance(m, Nobody) else replace(s, news={**s.news, sender: m})), []


def aggregator_close(env: Env, s: Aggregator) -> Step:
    if s.counting:
        return census_close(env, s)
    done, found = step(env, s)
    scores = summed_scores({h: m.scores for h, m in s.news.items()})
    told = Send(OUT, Progress(done.round, sum(m.count for m in s.news.values()), scores | found))
    over = done.round >= env.rounds or is_stationary(env, s, found)
    return done, [told] if over else [told, *questions(env, done)]


def census_close(env: Env, s: Aggregator) -> Step:
    """Not a round, unless nobody was there."""
    if sum(s.samples.values()) > 0:
        s = replace(s, counting=False)
        return s, questions(env, s)
    s = replace(s, round=s.round + 1)
    told = Send(OUT, Progress(s.round, 0, {}))
    return s, [told] if s.round >= env.rounds else [told, Send(DOWN, Census())]


def step(env: Env, s: Aggregator) -> tuple[Aggregator, dict[str, float]]:
    """Eq. (13): theta^{t+1} = (sum_i (y_i + rho_i theta_i) - lambda grad R_h(theta^t)) / sum_i rho_i, and figures."""
    if not s.news:
        return replace(s, round=s.round + 1), {}
    theta = lowrank.unpack(env.layout, s.model)
    held = {**s.held, **{h: completed(env, s, h, theta) for h in sorted(s.news)}}
    u, y, rho = total_of(held, env.theta0)
    pull = env.regulariser(theta, s.round, s.memory) if env.regulariser else None
    model = server_step(terms(env, pull), env.layout, u / rho, at=theta, step=1 / rho)
    samples = {**s.samples, **{h: parts.samples for h, parts in held.items()}}
    memory = pull.memory if pull else s.memory
    return Aggregator(model, memory, s.round + 1, samples=samples, held=held), figures(env, y, pull)


def completed(env: Env, s: Aggregator, hospital: str, theta: Vector) -> Held:
    """A hospital's sums, and what it has left out."""
    m, held = s.news[hospital], s.held.get(hospital)
    y_before = held.y if held is not None and held.y is not None else np.zeros_like(theta)
    u, y = m.u, m.y
    if u is None and y is not None:
        u = u_of(y, y_before, theta, m.weight)
    elif u is not None and y is None and env.settings.dual:
        y = y_of(u, y_before, theta, m.weight)
    assert u is not None  # Sums.check
    return Held(u, y, m.weight, m.samples, s.round)


def terms(env: Env, pull: Pull | None) -> ServerTerms:
    simple = penalty(env.settings.penalty, env.settings.penalty_weight, env.svt)
    return ServerTerms(None if pull is None else lambda theta: pull.gradient, simple)


def figures(env: Env, y: Vector | None, pull: Pull | None) -> dict[str, float]:
    """||S^t||, where there are duals and all terms are smooth; and lambda R_h(theta^t)."""
    found = {} if pull is None else {"regulariser": pull.value}
    if y is None or env.settings.penalty != "none":
        return found
    return found | {"residual": float(np.linalg.norm(y if pull is None else pull.gradient - y))}


def is_stationary(env: Env, s: Aggregator, found: Mapping[str, float]) -> bool:
    """The rule of Settings.stop. Stale duals say nothing of the present model, so all must have answered."""
    everybody = sum(meta.training_sizes(env, env.settings.unseen).values())
    answered = sum(m.count for m in s.news.values())
    return answered == everybody and found.get("residual", np.inf) <= env.settings.stop > 0


# For evaluation -------------------------------------------------------------------------------------------------
def show(env: Env, s: Aggregator) -> Global:
    devices = sum(meta.training_sizes(env, env.settings.unseen).values())
    return Global(s.model, s.round, 0, sum(s.samples.values()), devices)


def models(env: Env, s: Device | None, m: Global) -> dict[str, Vector]:
    theta = lowrank.unpack(env.layout, m.model)
    if s is None:
        return {"global": theta}
    return meta.evaluated_models(env, env.settings, theta, seen=s.round >= 0)


AUGFL = Method(
    name="augfl",
    device=Role(device_start, device_receive, unchanged, Device),
    hospital=Role(hospital_start, hospital_receive, hospital_close, Hospital),
    aggregator=Role(aggregator_start, aggregator_receive, aggregator_close, Aggregator),
    messages=(Census, Counted, Global, Upload, Sums, Nobody),
    settings=Settings,
    env=Env,
    show=show,
    models=models,
    warnings=warnings,
    rounds_over=lambda state: int(state.round),
)
