"""An aggregator that moves the reference after its model, chooses the scale of uploads, and opens their sums."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from edge_sdk.algebra.secure_aggregation import rounding
from edge_sdk.algebra.vectors import Vector
from edge_sdk.contract.method import DOWN, ME, OUT, UP, NodeEnv, Role, Send, Step
from edge_sdk.contract.wrapping import state_around
from edge_sdk.errors import PeerError
from edge_sdk.methods.integers.tiers.asking import addressed, factors_in, is_shown, model_in
from edge_sdk.methods.integers.tiers.states import (
    IntegersState,
    NoisyState,
    first_state,
)
from edge_sdk.methods.integers.vectors import ledger as ledgers
from edge_sdk.methods.integers.vectors.messages import Behind, Integers
from edge_sdk.methods.integers.vectors.noise import check_noisy, noise_for
from edge_sdk.methods.integers.vectors.reference import move
from edge_sdk.methods.integers.vectors.rounded import upward
from edge_sdk.methods.integers.vectors.uploads import IntegersPlan, Scale, check_upload, is_plain, open_upload

FIRST = rounding.MOST
"""Bits of the first round's uploads, of whose size nothing is known: each is rounded to a scale of its own."""
RANGE, SAMPLES, LEAST_USUAL = 16.0, 64.0, 0.01
"""Range of the first uploads that nobody may open, in root mean squares of the model's numbers; times SAMPLES where
uploads are weighted with a device's samples. A model of smaller numbers than LEAST_USUAL counts as one of these."""
SLOWLY = 0.8
"""A spread that has become smaller is followed by that factor in each round."""


def around(inner: Role, plan: IntegersPlan) -> Role:
    kind = state_around(IntegersState, inner.state) if plan.privacy is None else state_around(NoisyState, inner.state)

    def start(env: NodeEnv) -> Step:
        if plan.privacy is not None:
            ledgers.check_cohorts(env, plan.privacy.cohort)
            noise_for(env, plan, plan.traffic.first(env).size)  # for what is wrong with it, before anybody is asked
        state, sends = inner.start(env)
        return asked(env, first_state(kind, env, plan.traffic, state), sends)

    def receive(env: NodeEnv, s: IntegersState, sender: str, m: Any) -> Step:
        if isinstance(m, Behind):
            return replace(s, reference=s.reference.lost(sender)), []
        if sender != ME and s.scale is not None:
            s = replace(s, reference=s.reference.answered(sender))
        if isinstance(m, Integers):
            s, m = opened(env, s, sender, m)
        elif not is_plain(env, plan.traffic, m):
            raise PeerError(f"{sender} sent {type(m).__name__} with floats; this run's are integers")
        state, sends = inner.receive(env, s.inner, sender, m)
        return asked(env, replace(s, inner=state), sends)

    def opened(env: NodeEnv, s: IntegersState, sender: str, m: Integers) -> tuple[IntegersState, Any]:
        if s.scale is None:
            raise PeerError(f"{sender} sent integers, which the question did not ask for")
        check_upload(env, plan, s.scale, sender, m)
        if isinstance(s, NoisyState):
            check_noisy(m, sender)
            s = replace(s, ledger=ledgers.noted(s.ledger, sender, m.terms))
        base = s.shown if plan.traffic.moves else s.reference.model
        message = open_upload(env, plan, base, s.reference.version, sender, m, env.theta0)
        return replace(s, spreads={**s.spreads, sender: m.spread}), message

    def close(env: NodeEnv, s: IntegersState) -> Step:
        state, sends = inner.close(env, s.inner)
        s = replace(s, inner=state, spread=next_spread(s.spread, s.spreads), spreads={})
        if isinstance(s, NoisyState) and plan.privacy is not None:
            s = replace(s, ledger=ledgers.closed(s.ledger, plan.privacy.cohort))
        return asked(env, s, sends)

    def asked(env: NodeEnv, s: IntegersState, sends: Sequence[Send]) -> Step:
        """The state and the sends, with the reference moved if there is a model for it to follow."""
        if not any(send.to not in (UP, OUT, ME) and send.answer for send in sends):
            return s, sends
        model = model_in(env, plan.traffic, sends)
        if model is None:
            return replace(s, scale=None), sends
        if isinstance(s, NoisyState):
            to = [send.to for send in sends if is_shown(plan.traffic, send)]
            s = replace(s, ledger=ledgers.opened(s.ledger, hospitals_of(env, to), model.size))
        reference = move(env, plan.settings, s.reference, model, factors_in(plan.traffic, sends))
        scale = scale_of(env, plan, s)
        s = replace(s, reference=reference, shown=model, scale=scale)
        return s, addressed(env, plan.traffic, reference, scale, sends)

    return Role(start, receive, close, kind)


def scale_of(env: NodeEnv, plan: IntegersPlan, s: IntegersState) -> Scale:
    """Scale of a round's uploads."""
    bits = plan.settings.bits
    if plan.privacy is not None:
        return Scale(bits, noise_for(env, plan, s.reference.model.size).half)
    if plan.opens:
        return Scale(bits, 0.0)
    if not s.spread:
        return Scale(FIRST, guessed_half(env, s.reference.model) if plan.settings.sums_only else 0.0)
    return Scale(bits, upward(env, plan.settings, s.reference.version, bits).half(s.spread))


def guessed_half(env: NodeEnv, model: Vector) -> float:
    """Range of the first round's uploads, where nobody may look at one to find its size.

    Sixteen bits have room for both errors. A range that is too large costs precision: with RANGE a step is half a
    thousandth of a usual number of the model, and a thirtieth where it is divided by samples later. One that is too
    small clips, and error feedback sends the rest in the next round.
    """
    usual = max(LEAST_USUAL, float(np.sqrt(np.mean(np.square(model.astype(np.float64))))))
    return usual * (RANGE if getattr(env.settings, "weighting", "") != "samples" else RANGE * SAMPLES)


def next_spread(before: float, heard: Mapping[str, float]) -> float:
    """The largest spread of the latest round, or what is left of earlier ones. Nobody was heard: the same."""
    return max(*heard.values(), SLOWLY * before) if heard else before


def hospitals_of(env: NodeEnv, to: Sequence[str | tuple[str, ...]]) -> list[str]:
    """Names of all that some questions go to."""
    return [h for one in to for h in (env.here if one == DOWN else (one,) if isinstance(one, str) else one)]
