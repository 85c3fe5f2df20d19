"""Consensus between hospitals, around any hospital that has a model of its own.

FedBCD's asynchronous cloud (Wu et al., section 3.1, appendix A) knows three things about a hospital: it can show its
model when a phase with its devices is over, take the mixed one, and open the next phase. Whoever provides these
(`Pieces`) can stand inside. The aggregator only mixes:

    first-B     the first B that are ready mix and go on; the others keep working, undisturbed, and join when they are
                ready. Policy(need=B, keep_late=True): those who are not asked again still owe, so their debts stand.
    rigorous    whoever is not among the B hears that it is isolated, finishes its phase and goes on with its own model.
                Nobody skips a round. Policy(need=B): all are asked again, so a late `Ready` is refused, and not needed.

A hospital that missed rounds steps alone, phase after phase, until it has caught up (rigorous), or joins the round that
is on (first-B). A mixing that is lost with its message is missed like a round.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from edge_sdk.algebra import lowrank
from edge_sdk.algebra.arrays import Theta
from edge_sdk.algebra.lowrank import Packed
from edge_sdk.algebra.vectors import Layout, Vector
from edge_sdk.contract.method import DOWN, OUT, UP, NodeEnv, Role, Send, Step
from edge_sdk.contract.wrapping import state_around
from edge_sdk.errors import PeerError
from edge_sdk.methods.shared.aggregation import exact, gather
from edge_sdk.methods.shared.aggregation.gather import Sum
from edge_sdk.methods.shared.aggregation.scores import check_scores
from edge_sdk.methods.shared.consensus import mixing
from edge_sdk.methods.shared.evaluation.reports import Progress
from edge_sdk.methods.shared.membership.changing import remaining


# Messages -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Mixed:
    """Down: take this model and open the next phase.

    Attributes:
        model: w_n; in round 0 the common start.
        round: which one begins.
        step: eta_z for all that the hospital adds to the mixing; 0: it adds nothing.
    """

    model: Packed
    round: int
    step: float = 0.0

    def check(self, layout: Layout) -> None:
        check_round(self.round, self.step)


@dataclass(frozen=True)
class Isolated:
    """Down: the round begins without you; your own model goes on. Attributes as above."""

    round: int
    step: float = 0.0

    def check(self, layout: Layout) -> None:
        check_round(self.round, self.step)


@dataclass(frozen=True)
class Ready:
    """Up: a phase is over.

    Attributes:
        model: z_n before its step, where it is this that is mixed.
        sums: what the hospital's devices add to its step, where the aggregator makes steps.
        count: how many devices answered in this phase.
        scores: sums over these.
    """

    model: Theta | None = None
    sums: Sum | None = None
    count: int = 0
    scores: Mapping[str, float] = field(default_factory=dict)

    def check(self, layout: Layout) -> None:
        if self.count < 0:
            raise ValueError(f"{self.count} devices answered, it is 0 or more")
        if self.model is not None and not (np.abs(self.model) <= exact.LARGEST).all():
            raise ValueError(f"a model with a number that is not finite or above {exact.LARGEST:.0f}")
        check_scores(self.scores)

    def contribution(self) -> Vector | None:
        """What is mixed or, where the aggregator makes steps, the devices' mean."""
        return self.model if self.model is not None or self.sums is None else self.sums.contribution()

    def vote(self) -> float:
        """Models that are mixed count alike."""
        return 1.0 if self.model is not None or self.sums is None else self.sums.vote()

    def contributing(self, vector: npt.NDArray[np.floating]) -> Self:
        if self.model is not None or self.sums is None:
            return replace(self, model=None if self.model is None else vector.astype(self.model.dtype))
        return replace(self, sums=self.sums.contributing(vector))


def check_round(round: int, step: float) -> None:
    if round < 0 or not (isfinite(step) and step >= 0):
        raise ValueError(f"round {round} with step {step}: both are 0 or more")


# Hospital -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Pieces:
    """What consensus must know of the role inside. `state` is that role's.

    Attributes:
        ready: (env, state) -> what it shows when a phase is over.
        take: (env, state, mixed model, round, step) -> state with the next round's model; None for its own model.
        ask: (env, state) -> the sends that open a phase.
    """

    ready: Callable[[Any, Any], Ready]
    take: Callable[[Any, Any, Packed | None, int, float], Any]
    ask: Callable[[Any, Any], list[Send]]


@dataclass(frozen=True)
class Phased:
    """A hospital's state around that of the role inside.

    Attributes:
        phase: the one that is on, or will be next.
        round: the aggregator's.
        working: it is on.
        step: eta_z, for the steps alone.
    """

    inner: Any
    phase: int = 0
    round: int = -1
    working: bool = False
    step: float = 0.0


def around(inner: Role, pieces: Pieces) -> Role:
    """The hospital's role. Of `inner`, what its start and its close send is left out: a phase is opened by `ask`."""
    kind = state_around(Phased, inner.state)

    def start(env: Any) -> Step:
        return kind(inner.start(env)[0]), []

    def receive(env: Any, s: Phased, sender: str, message: Any) -> Step:
        if sender != UP:
            state, sends = inner.receive(env, s.inner, sender, message)
            return replace(s, inner=state), sends
        m: Mixed | Isolated = gather.expected(sender, message, Mixed, Isolated)
        s = replace(s, round=m.round, step=m.step)
        if isinstance(m, Mixed):
            return following(env, replace(s, phase=m.round), m.model)
        return (s, []) if s.working else following(env, s, None)

    def close(env: Any, s: Phased) -> Step:
        s = replace(s, inner=inner.close(env, s.inner)[0], phase=s.phase + 1, working=False)
        return following(env, s, None) if s.phase <= s.round else (s, [Send(UP, pieces.ready(env, s.inner))])

    def following(env: Any, s: Phased, mixed: Packed | None) -> Step:
        step = s.step if s.phase else 0.0
        s = replace(s, inner=pieces.take(env, s.inner, mixed, s.phase, step), working=True)
        return s, pieces.ask(env, s.inner)

    return Role(start, receive, close, kind)


# Aggregator -----------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Coordinator:
    """What an aggregator remembers that mixes hospitals.

    Attributes:
        model: the newest global model: the mean of those that were ready.
        round: t.
        ready: hospital -> what it showed in this round.
        past: hospital -> the latest sums of its devices, where the aggregator keeps them.
    """

    model: Packed
    round: int = 0
    ready: Mapping[str, Ready] = field(default_factory=dict)
    past: Mapping[str, Sum] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Cloud:
    """Rules by which the hospitals mix.

    Attributes:
        step: eta_z.
        rigorous: the others step alone.
        graph: as `mixing.matrix` has it.
        repeats: K_z. All but the last step of the members are made here, on the sums that they send.
        by_devices: the members' mean weighs each by the number of its devices, in place of the graph's weights.
        for_all: the mixed model goes to every hospital, also to one that has come since.
    """

    step: float
    rigorous: bool = False
    graph: str = "complete"
    repeats: int = 1
    by_devices: bool = False
    for_all: bool = False


def hear(env: NodeEnv, s: Coordinator, sender: str, message: object) -> Coordinator:
    """The state after one hospital's `Ready`.

    Raises:
        PeerError: it is something else, or counts more devices than the hospital has.
    """
    m: Ready = gather.expected(sender, message, Ready)
    most = env.sizes.get(sender, 1)
    if m.count > most or (m.sums is not None and m.sums.count > most):
        raise PeerError(f"{sender} counts more devices than the {most} that it has")
    return replace(s, ready={**s.ready, sender: m})


def mix(env: NodeEnv, s: Coordinator, cloud: Cloud) -> tuple[Coordinator, list[Send]]:
    """The close of a round: phase I of the protocol, after K_z - 1 repetitions of both phases.

    Nobody is ready only if a deadline was allowed to pass so: then all stay as they are.
    """
    members, next_one = tuple(sorted(remaining(env, s.ready))), s.round + 1
    others = tuple(n for n in env.here if n not in members) if cloud.rigorous else ()
    isolated = Send(others, Isolated(next_one, cloud.step))
    if not members:
        return replace(s, round=next_one), [isolated]
    w = mix_models(s, members, mixing_matrix(env, cloud, members), cloud)
    sends = send_mixed(env, list_hospitals(env) if cloud.for_all else members, w, next_one, cloud.step)
    model = sends[0].message.model if len(sends) == 1 else lowrank.dense(env.layout, w.mean(0, dtype=w.dtype))
    return Coordinator(model, next_one, {}, s.past), [*sends, isolated] if others else sends


def mixing_matrix(env: NodeEnv, cloud: Cloud, members: tuple[str, ...]) -> mixing.Matrix:
    if cloud.by_devices:
        return mixing.by_devices(env.sizes, members)
    return mixing.check_matrix(mixing.matrix(cloud.graph, sorted(env.sizes), members))


def mix_models(s: Coordinator, members: Sequence[str], a: mixing.Matrix, cloud: Cloud) -> Vector:
    """K_z - 1 times: mix, then step; then mix. A row for each member, or a single one if they are all equal."""
    parts = [s.ready[n] for n in members]
    z = np.stack([p.model for p in parts if p.model is not None])
    for _ in range(cloud.repeats - 1):
        w = np.broadcast_to(apply_mixing(a, z), z.shape)
        z = np.stack([step_on_sums(row, p.sums, cloud.step) for row, p in zip(w, parts, strict=True)])
    return apply_mixing(a, z)


def apply_mixing(a: mixing.Matrix, z: Vector) -> Vector:
    """A z, combined before anything is added. One row where all are equal: no rounding tells them apart then."""
    rows = a[:1] if (a == a[0]).all() else a
    result: Vector = rows.astype(z.dtype) @ z
    return result


def step_on_sums(w: Vector, sums: Sum | None, step: float) -> Vector:
    """w - step * sum of gamma_i (w - x_i) = (1 - step * G) w + step * S: what devices add to a mixed model."""
    return w if sums is None or step == 0 else (1 - step * sums.weight) * w + step * sums.total


def send_mixed(env: NodeEnv, members: tuple[str, ...], w: Vector, round: int, step: float) -> list[Send]:
    if len(w) == 1:
        return [Send(members, Mixed(lowrank.dense(env.layout, w[0]), round, step))]
    return [Send(n, Mixed(lowrank.dense(env.layout, row), round, step)) for n, row in zip(members, w, strict=True)]


def list_hospitals(env: NodeEnv) -> tuple[str, ...]:
    """All hospitals, here or not: in first-B, whoever is not asked at the start is never asked."""
    return tuple(sorted({*env.here, *env.sizes}))


def tell_progress(s: Coordinator) -> Send:
    """The training round that is over with this one, before `mix`."""
    scores: dict[str, exact.Exact] = {}
    for m in s.ready.values():
        scores = gather.plus_scores(scores, gather.split_scores(m.scores))
    sums = {name: exact.number(value) for name, value in scores.items()} | measure_disagreement(s)
    return Send(OUT, Progress(s.round + 1, sum(m.count for m in s.ready.values()), sums))


def measure_disagreement(s: Coordinator) -> dict[str, float]:
    """Sum of ||z_n - mean||^2 over the hospitals that are ready, and how many these are."""
    z = [m.model for _, m in sorted(s.ready.items()) if m.model is not None]
    if not z:
        return {}
    mean = sum(z[1:], z[0]) / len(z)
    return {"disagreement": float(sum(np.square(m - mean).sum() for m in z)), "hospitals": float(len(z))}


def replace_model(s: Coordinator, sends: list[Send], model: Packed) -> tuple[Coordinator, list[Send]]:
    """The state and the sends with another model in place of the common one."""
    if model is s.model:
        return s, sends
    told = [
        replace(send, message=replace(send.message, model=model))
        if isinstance(send.message, Mixed) and send.message.model is s.model
        else send
        for send in sends
    ]
    return replace(s, model=model), told


def coordinator(
    first: Callable[[Any], Packed],
    cloud: Callable[[Any], Cloud],
    after: Callable[[Any, Packed], Packed] = lambda env, mixed: mixed,
) -> Role:
    """The aggregator's role around any such hospitals.

    Args:
        first: env -> the common start.
        cloud: env -> how they mix.
        after: (env, mixed model) -> that after a step of the aggregator's own, where the graph is complete.
    """

    def start(env: Any) -> Step:
        s = Coordinator(first(env))
        return s, [Send(DOWN if cloud(env).rigorous else list_hospitals(env), Mixed(s.model, 0))]

    def receive(env: Any, s: Coordinator, sender: str, message: Any) -> Step:
        s = hear(env, s, sender, message)
        if s.ready[sender].model is None:
            raise PeerError(f"{sender} sent no model")
        return s, []

    def close(env: Any, s: Coordinator) -> Step:
        told = tell_progress(s)
        s, sends = mix(env, s, cloud(env))
        s, sends = replace_model(s, sends, after(env, s.model))
        return s, [told, *([] if s.round >= env.rounds else sends)]

    return Role(start, receive, close, Coordinator)
