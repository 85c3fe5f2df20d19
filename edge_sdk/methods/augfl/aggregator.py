"""AugFL's aggregator: the census, and the step of eq. (13) with the pull of the regulariser."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from edge_sdk.algebra import lowrank
from edge_sdk.algebra.arrays import Values
from edge_sdk.algebra.lowrank import Packed
from edge_sdk.algebra.vectors import Vector
from edge_sdk.contract.method import DOWN, OUT, Send, Step, ask_nobody
from edge_sdk.errors import UsageError
from edge_sdk.methods.augfl.messages import AugflModel, Census, Counted, Sums, check_devices
from edge_sdk.methods.augfl.settings import SAMPLES, Env, Pull
from edge_sdk.methods.augfl.sums import Contribution, add_contributions, add_scores, infer_u, infer_y
from edge_sdk.methods.shared.aggregation import draw, gather
from edge_sdk.methods.shared.aggregation.gather import Nobody
from edge_sdk.methods.shared.aggregation.server import ServerTerms, penalty, server_step
from edge_sdk.methods.shared.evaluation.reports import Progress
from edge_sdk.methods.shared.membership.changing import remaining
from edge_sdk.methods.shared.training import meta


@dataclass(frozen=True)
class AggregatorState:
    """What AugFL's aggregator remembers.

    Attributes:
        model: theta^t as it is sent; the first one is dense.
        memory: the regulariser's.
        round: t.
        counting: the census is on.
        samples: hospital -> how many samples its training devices have.
        news: hospital -> its sums in the round that is on.
        held: hospital -> its latest contribution.
    """

    written_as: ClassVar[str] = "Aggregator"

    model: Packed
    memory: Values
    round: int = 0
    counting: bool = False
    samples: Mapping[str, int] = field(default_factory=dict)
    news: Mapping[str, Sums] = field(default_factory=dict)
    held: Mapping[str, Contribution] = field(default_factory=dict)


def aggregator_start(env: Env) -> Step:
    if env.devices < 1:
        raise UsageError("the aggregator knows of no device: sizes names each hospital with its number of devices")
    counting = env.settings.weighting == SAMPLES
    s = AggregatorState(lowrank.dense(env.layout, env.theta0), env.memory, counting=counting)
    return s, [Send(DOWN, Census())] if counting else ask_hospitals(env, s)


def ask_hospitals(env: Env, s: AggregatorState) -> list[Send]:
    place = replace(env, sizes=meta.training_sizes(env, env.settings.unseen))
    quotas = draw.quotas(place, s.round, env.settings.participation, env.settings.selection)
    asked = show(env, s)
    known = {h: {h: s.held[h].round} if h in s.held else {} for h in quotas}
    return [Send(h, replace(asked, pick=k, counted=known[h])) for h, k in quotas.items()] or [ask_nobody(asked)]


def show(env: Env, s: AggregatorState) -> AugflModel:
    devices = sum(meta.training_sizes(env, env.settings.unseen).values())
    return AugflModel(s.model, s.round, 0, sum(s.samples.values()), devices)


def aggregator_receive(env: Env, s: AggregatorState, sender: str, message: object) -> Step:
    m: Counted | Sums | Nobody = gather.expected(sender, message, Counted, Sums, Nobody)
    check_devices(env, sender, getattr(m, "known", getattr(m, "devices", 0)))
    if isinstance(m, Counted):
        return replace(s, samples={**s.samples, sender: m.samples}), []
    return (s if isinstance(m, Nobody) else replace(s, news={**s.news, sender: m})), []


def aggregator_close(env: Env, s: AggregatorState) -> Step:
    s = replace(s, news=remaining(env, s.news), samples=remaining(env, s.samples), held=remaining(env, s.held))
    if s.counting:
        return census_close(env, s, ask_hospitals)
    done, found = step(env, s)
    scores = add_scores({h: m.scores for h, m in s.news.items()})
    told = Send(OUT, Progress(done.round, sum(m.count for m in s.news.values()), scores | found))
    over = done.round >= env.rounds or is_stationary(env, s, found)
    return done, [told] if over else [told, *ask_hospitals(env, done)]


def census_close(env: Env, s: Any, ask: Callable[[Env, Any], list[Send]]) -> Step:
    """The end of a census, which is no round unless nobody was there. `ask`: (env, state) -> a round's questions."""
    if sum(s.samples.values()) > 0:
        s = replace(s, counting=False)
        return s, ask(env, s)
    s = replace(s, round=s.round + 1)
    told = Send(OUT, Progress(s.round, 0, {}))
    return s, [told] if s.round >= env.rounds else [told, Send(DOWN, Census())]


def step(env: Env, s: AggregatorState) -> tuple[AggregatorState, dict[str, float]]:
    """Eq. (13): theta^{t+1} = (sum_i (y_i + rho_i theta_i) - lambda grad R_h(theta^t)) / sum_i rho_i, and figures."""
    if not s.news:
        return replace(s, round=s.round + 1), {}
    theta = lowrank.unpack(env.layout, s.model)
    held = {**s.held, **{h: complete_sums(env, s, h, theta) for h in sorted(s.news)}}
    u, y, rho = add_contributions(held, env.theta0)
    pull = env.regulariser(theta, s.round, s.memory) if env.regulariser else None
    model = server_step(make_terms(env, pull), env.layout, u / rho, at=theta, step=1 / rho)
    samples = {**s.samples, **{h: parts.samples for h, parts in held.items()}}
    memory = pull.memory if pull else s.memory
    return AggregatorState(model, memory, s.round + 1, samples=samples, held=held), measure_residual(env, y, pull)


def complete_sums(env: Env, s: AggregatorState, hospital: str, theta: Vector) -> Contribution:
    """A hospital's sums, and what it has left out."""
    m, held = s.news[hospital], s.held.get(hospital)
    y_before = held.y if held is not None and held.y is not None else np.zeros_like(theta)
    u, y = m.u, m.y
    if u is None and y is not None:
        u = infer_u(y, y_before, theta, m.weight)
    elif u is not None and y is None and env.settings.dual:
        y = infer_y(u, y_before, theta, m.weight)
    assert u is not None  # Sums.check
    return Contribution(u, y, m.weight, m.samples, s.round)


def make_terms(env: Env, pull: Pull | None) -> ServerTerms:
    simple = penalty(env.settings.penalty, env.settings.penalty_weight, env.svt)
    return ServerTerms(None if pull is None else lambda theta: pull.gradient, simple)


def measure_residual(env: Env, y: Vector | None, pull: Pull | None) -> dict[str, float]:
    """||S^t||, where there are duals and all terms are smooth; and lambda R_h(theta^t)."""
    found = {} if pull is None else {"regulariser": pull.value}
    if y is None or env.settings.penalty != "none":
        return found
    return found | {"residual": float(np.linalg.norm(y if pull is None else pull.gradient - y))}


def is_stationary(env: Env, s: AggregatorState, found: Mapping[str, float]) -> bool:
    """The rule of Settings.stop. Stale duals say nothing of the present model, so all must have answered."""
    everybody = sum(meta.training_sizes(env, env.settings.unseen).values())
    answered = sum(m.count for m in s.news.values())
    return answered == everybody and found.get("residual", np.inf) <= env.settings.stop > 0
