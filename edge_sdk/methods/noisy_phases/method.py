"""Noise around a method with phases: what these add up leaves devices as short vectors with noise, and nothing else.

    device       computes its counts or means as without noise; what leaves is `NoisySums`, bounded, with noise
    hospital     adds these up unopened, and passes on no sum of fewer devices than the noise is for
    aggregator   opens the sums, and gives the roles inside counts and means that they stand for

Each answer is one more Gaussian mechanism beside those of the rounds, with the same noise in units of its length, so
that epsilon is that of all of them together (`PhasesPlan.answers`). The noise is drawn as that of uploads is, by the
same code, and leaves with the state that is saved: a call that is made again after a kill sends the same bytes if it
had been saved, and draws anew if it had not. A device that is asked its latest question again, as by a hospital that
has lost its disk, sends the same bytes again: these say nothing more. What else it is asked is counted by its own
ledger (nodes/policy/epsilon_ledger.py).

Statistics of features take two questions: first logarithms of scales, which need no unit, then means in units of the
scales that were found. A fleet's scale is the geometric mean of its devices' own, so what differs between devices alone
is not in it.

Leaves the device: its vector of each phase (contents.py), summed by its hospital. Never: counts or means without noise.
When few answer, or nobody: as if nobody had answered: scales of 1, means of 0, no labels, the first candidate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import sqrt
from typing import Any, get_type_hints

import numpy as np
import numpy.typing as npt

from edge_sdk.algebra.arrays import Values
from edge_sdk.algebra.secure_aggregation import rounding
from edge_sdk.contract.method import DOWN, UP, Method, NodeEnv, Role, Send, Step
from edge_sdk.contract.wrapping import passed_in, role_around, state_around
from edge_sdk.errors import PeerError
from edge_sdk.methods.integers.tiers.states import IntegersState, Ring
from edge_sdk.methods.integers.vectors import ledger as ledgers
from edge_sdk.methods.integers.vectors.ledger import NoiseLedger
from edge_sdk.methods.integers.vectors.noise import packed_with_noise
from edge_sdk.methods.integers.vectors.rounded import UPWARD, Rounding
from edge_sdk.methods.noisy_phases.contents import (
    LABELS,
    MEANS,
    SCALES,
    SETTLING,
    blank,
    checked_scales,
    counts_of,
    features_of,
    name_of,
    phase_of,
    scales_of,
    size_of,
    vector_of,
)
from edge_sdk.methods.noisy_phases.messages import InScales, NoisySums
from edge_sdk.methods.noisy_phases.plan import PhasesPlan
from edge_sdk.methods.settling.counting import Counts
from edge_sdk.methods.shared.membership.riders import asks
from edge_sdk.methods.standardising.messages import AskFeatures, FeatureSums

PHASE_NOISE = 0x5048
"""Purpose of the randomness of rounding, beyond those of any method."""


# State ----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Summed:
    """Vectors of a phase, added up unopened. `terms`: of how many devices; `total`: uint32 (k,), their integers."""

    terms: int
    total: Ring


@dataclass(frozen=True)
class NoisyPhasesState:
    """A node's state around the method's own.

    Attributes:
        inner: the method's.
        phase: that is on; "": none.
        answered: device, hospital: questions of phases that it has answered.
        pending: hospital: the vectors so far; aggregator: those of statistics.
        scales: aggregator: of features, as the fleet has answered.
        ledgers: aggregator: phase -> its sums so far.
        latest: device: its latest answer to a phase. asked: `name_of` the question that this was for.
    """

    inner: Any
    phase: str = ""
    answered: int = 0
    pending: Summed | None = None
    scales: Values = field(default_factory=lambda: np.zeros(0, np.float32))
    ledgers: Mapping[str, NoiseLedger] = field(default_factory=dict)
    latest: NoisySums | None = None
    asked: str = ""

    def knows(self, question: Any) -> bool:
        """Has it answered this very question of a phase last?"""
        return self.latest is not None and self.asked != "" and name_of(question) == self.asked


def plus(pending: Summed | None, sender: str, m: NoisySums) -> Summed:
    """A sum with one more. Raises PeerError where it no longer fits."""
    if pending is None:
        return Summed(m.terms, m.steps)
    terms = pending.terms + m.terms
    if rounding.width(m.bits, terms) > rounding.WIDEST:
        raise PeerError(f"{sender}: with it, the sum of {terms} devices no longer fits {rounding.WIDEST} bits")
    return Summed(terms, pending.total + m.steps)


# Around a method ------------------------------------------------------------------------------------------------
def with_noise(method: Method, plan: PhasesPlan) -> Method:
    """The method, whose phases add up vectors with noise.

    Args:
        method: one with integers and noise, and around that settling, with self-training and statistics where the run
            has them.
    """
    show, models, over, spent = method.show, method.models, method.rounds_over, method.spent
    assert spent is not None  # its uploads have noise

    def shown(env: NodeEnv, s: NoisyPhasesState) -> Any:
        return show(env, s.inner)

    shown.__annotations__["return"] = get_type_hints(show)["return"]
    in_the_clear = (Counts, FeatureSums)
    return replace(
        method,
        device=device(method.device, plan),
        hospital=hospital(method.hospital, plan),
        aggregator=aggregator(method.aggregator, plan),
        messages=(*(m for m in method.messages if m not in in_the_clear), NoisySums, InScales),
        show=shown,
        models=lambda env, s, m: models(env, s and s.inner, m),
        rounds_over=None if over is None else lambda s: over(s.inner),
        spent=lambda env, s: spent(env, integers_in(s), rhos_of(env, plan, s)),
    )


def integers_in(state: Any) -> Any:
    """The state of integers, whatever other states are around it."""
    while not isinstance(state, IntegersState):
        state = state.inner
    return state


def rhos_of(env: NodeEnv, plan: PhasesPlan, s: NoisyPhasesState) -> tuple[ledgers.Rhos, ledgers.Rhos]:
    """rho of the sums of all phases so far: of the smallest ones, and of all sums of a question together."""
    smallest: ledgers.Rhos = {}
    together: ledgers.Rhos = {}
    for phase, kept in s.ledgers.items():
        own, all_of_them = ledgers.rhos_of(plan.noise_for(env, phase), kept)
        smallest, together = ledgers.added(smallest, own), ledgers.added(together, all_of_them)
    return smallest, together


# Device ---------------------------------------------------------------------------------------------------------
def device(inner: Role, plan: PhasesPlan) -> Role:
    def receive(env: NodeEnv, s: NoisyPhasesState, sender: str, m: Any) -> Step:
        phase, asked, scales = phase_of(m), name_of(m), np.zeros(0)
        if s.latest is not None and s.knows(m):
            return s, [Send(UP, s.latest)]
        if isinstance(m, InScales):
            scales, m = in_scales(plan, env, m), m.message
        state, sends = inner.receive(env, s.inner, sender, m)
        if phase:
            sends = [noisy(env, plan, s, phase, scales, send) for send in sends]
            latest = next((send.message for send in sends if isinstance(send.message, NoisySums)), None)
            s = replace(s, answered=s.answered + 1, latest=latest, asked=asked)
        return replace(s, inner=state), sends

    def close(env: NodeEnv, s: NoisyPhasesState) -> Step:
        state, sends = inner.close(env, s.inner)
        return replace(s, inner=state), sends

    return role_around(inner, NoisyPhasesState, receive, close, inner.refuse)


def in_scales(plan: PhasesPlan, env: NodeEnv, m: InScales) -> npt.NDArray[np.float64]:
    """The scales of a question. Raises PeerError if they are not of the model's features."""
    if phase_of(m.message) != SCALES:
        raise PeerError(f"the parent told scales with a {type(m.message).__name__}, which asks for no means")
    try:
        return checked_scales(m.values, size_of(plan.settling, env.layout, MEANS))
    except ValueError as error:
        raise PeerError(f"the parent told {error}") from None


def noisy(
    env: NodeEnv, plan: PhasesPlan, s: NoisyPhasesState, phase: str, scales: npt.NDArray[np.float64], send: Send
) -> Send:
    """What a device sends up, as a short vector with noise in place of its counts or means."""
    if send.to != UP or not isinstance(send.message, (Counts, FeatureSums)):
        return send
    noise, vector = plan.noise_for(env, phase), vector_of(plan.settling, phase, send.message, scales)
    how = Rounding(env.seed, s.answered, UPWARD, noise.bits, rotates=False)
    packed, _ = packed_with_noise(env, noise, how, vector, env.random(s.answered, PHASE_NOISE))
    return replace(send, message=NoisySums(phase, noise.size, noise.bits, noise.half, 1, packed))


# Hospital -------------------------------------------------------------------------------------------------------
def hospital(inner: Role, plan: PhasesPlan) -> Role:
    def receive(env: NodeEnv, s: NoisyPhasesState, sender: str, m: Any) -> Step:
        if sender == UP:
            return ask(env, s, m)
        if isinstance(m, (Counts, FeatureSums)):
            raise PeerError(f"{sender} sent {type(m).__name__} without noise, and this run has noise")
        if isinstance(m, NoisySums):
            plan.check(env, sender, s.phase, m)
            s, m = replace(s, pending=plus(s.pending, sender, m)), blank(plan.settling, env.layout, s.phase)
        state, sends = inner.receive(env, s.inner, sender, m)
        return replace(s, inner=state), sends

    def ask(env: NodeEnv, s: NoisyPhasesState, m: Any) -> Step:
        phase, values = phase_of(m), None
        if isinstance(m, InScales):
            in_scales(plan, env, m)
            values, m = m.values, m.message
        state, sends = inner.receive(env, s.inner, UP, m)
        if values is not None:
            sends = [replace(x, message=InScales(x.message, values)) if asks(x) else x for x in sends]
        return replace(s, inner=state, phase=phase, pending=None, answered=s.answered + bool(phase)), sends

    def close(env: NodeEnv, s: NoisyPhasesState) -> Step:
        state, sends = inner.close(env, s.inner)
        sends = [summed(env, plan, s, send) for send in sends]
        return replace(s, inner=state, phase="", pending=None), sends

    return role_around(inner, NoisyPhasesState, receive, close, inner.refuse, passed_in(inner.renew))


def summed(env: NodeEnv, plan: PhasesPlan, s: NoisyPhasesState, send: Send) -> Send:
    """What a hospital sends up, with the sum in place of blank counts or means; of too few, nothing but that."""
    if send.to != UP or not isinstance(send.message, (Counts, FeatureSums)):
        return send
    noise, pending = plan.noise_for(env, s.phase), s.pending
    if pending is None or pending.terms < plan.privacy.cohort:
        return replace(send, message=NoisySums(s.phase, 0, noise.bits, noise.half, 0, np.zeros(0, np.uint8)))
    packed = rounding.pack(pending.total, rounding.width(noise.bits, pending.terms))
    return replace(send, message=NoisySums(s.phase, noise.size, noise.bits, noise.half, pending.terms, packed))


# Aggregator -----------------------------------------------------------------------------------------------------
def aggregator(inner: Role, plan: PhasesPlan) -> Role:
    kind = state_around(NoisyPhasesState, inner.state)

    def start(env: NodeEnv) -> Step:
        for phase in plan.phases():
            plan.noise_for(env, phase)  # for what is wrong with it, before anybody is asked
        state, sends = inner.start(env)
        return opened(env, kind(state), sends)

    def receive(env: NodeEnv, s: NoisyPhasesState, sender: str, m: Any) -> Step:
        if isinstance(m, (Counts, FeatureSums)):
            raise PeerError(f"{sender} sent {type(m).__name__} without noise, and this run has noise")
        if isinstance(m, NoisySums):
            plan.check(env, sender, s.phase, m)
            s, m = heard(env, plan, s, sender, m)
        state, sends = inner.receive(env, s.inner, sender, m)
        return opened(env, replace(s, inner=state), sends)

    def close(env: NodeEnv, s: NoisyPhasesState) -> Step:
        s = settled_ledger(plan, s)
        if s.phase == SCALES:
            return asked_again(env, s)
        if s.phase == MEANS:
            s = with_statistics(env, s)
        state, sends = inner.close(env, s.inner)
        return opened(env, replace(s, inner=state, phase="", pending=None), sends)

    def asked_again(env: NodeEnv, s: NoisyPhasesState) -> Step:
        s = replace(s, scales=scales_of(*numbers_in(plan, env, s)), phase="", pending=None)
        return opened(env, s, [Send(DOWN, InScales(AskFeatures(), s.scales), all=True)])

    def with_statistics(env: NodeEnv, s: NoisyPhasesState) -> NoisyPhasesState:
        """The state, whose role inside has heard the fleet's statistics as if they were those of one device."""
        total, terms, noise = numbers_in(plan, env, s)
        if not terms:
            return s
        state, _ = inner.receive(env, s.inner, min(env.sizes), features_of(total, terms, s.scales, noise))
        return replace(s, inner=state)

    return Role(start, receive, close, kind, inner.refuse)


def heard(
    env: NodeEnv, plan: PhasesPlan, s: NoisyPhasesState, sender: str, m: NoisySums
) -> tuple[NoisyPhasesState, Any]:
    """The state after a hospital's sum, and what the role inside hears in its place."""
    if not m.terms:
        return s, blank(plan.settling, env.layout, s.phase)
    kept = ledgers.noted(s.ledgers.get(s.phase, NoiseLedger()), sender, m.terms)
    s = replace(s, ledgers={**s.ledgers, s.phase: kept})
    if s.phase in (LABELS, SETTLING):
        return s, counts_of(plan.settling, s.phase, m.numbers(), m.terms)
    return replace(s, pending=plus(s.pending, sender, m)), blank(plan.settling, env.layout, s.phase)


def numbers_in(plan: PhasesPlan, env: NodeEnv, s: NoisyPhasesState) -> tuple[npt.NDArray[np.float64], int, float]:
    """The sum of the phase that is on, of how many devices it is, and the standard deviation of its noise."""
    noise = plan.noise_for(env, s.phase)
    if s.pending is None:
        return np.zeros(noise.size), 0, 0.0
    terms = s.pending.terms
    found = rounding.to_numbers(s.pending.total, noise.half, noise.bits, terms, np.zeros(0))
    return found.astype(np.float64, copy=False), terms, noise.step * sqrt(terms * noise.variance)


def opened(env: NodeEnv, s: NoisyPhasesState, sends: Sequence[Send]) -> Step:
    """The state and the sends, with the phase that a question among these opens."""
    phase = next((phase_of(send.message) for send in sends if asks(send) and phase_of(send.message)), "")
    if not phase:
        return s, sends
    names = [h for send in sends if asks(send) for h in asked_by(env, send)]
    kept = ledgers.opened(s.ledgers.get(phase, NoiseLedger()), names, 0)
    return replace(s, phase=phase, pending=None, ledgers={**s.ledgers, phase: kept}), sends


def asked_by(env: NodeEnv, send: Send) -> Sequence[str]:
    return env.here if send.to == DOWN else (send.to,) if isinstance(send.to, str) else send.to


def settled_ledger(plan: PhasesPlan, s: NoisyPhasesState) -> NoisyPhasesState:
    """The state, with the open phase's sums counted."""
    if not s.phase:
        return s
    kept = ledgers.closed(s.ledgers[s.phase], plan.privacy.cohort)
    return replace(s, ledgers={**s.ledgers, s.phase: kept})
