"""A hospital that passes the reference on, and adds up integers unopened where the method allows it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from edge_sdk.algebra.secure_aggregation import rounding
from edge_sdk.contract.method import ME, UP, NodeEnv, Role, Send, Step, ask_nobody
from edge_sdk.contract.wrapping import state_around
from edge_sdk.errors import PeerError
from edge_sdk.methods.integers.tiers.asking import addressed, model_in, read_question
from edge_sdk.methods.integers.tiers.device import answered
from edge_sdk.methods.integers.tiers.states import IntegersState, Pending, first_state
from edge_sdk.methods.integers.vectors.labels import take_label
from edge_sdk.methods.integers.vectors.messages import Behind, Changes, Integers
from edge_sdk.methods.integers.vectors.noise import check_noisy
from edge_sdk.methods.integers.vectors.reference import read
from edge_sdk.methods.integers.vectors.uploads import (
    IntegersPlan,
    Scale,
    check_upload,
    is_plain,
    open_upload,
    without_numbers,
)
from edge_sdk.methods.shared.aggregation.gather import Nobody


def around(inner: Role, plan: IntegersPlan) -> Role:
    """The hospital's role around that of the method, which reads and sends floats."""
    hospital = IntegersHospital(inner, plan)
    return Role(hospital.start, hospital.receive, hospital.close, state_around(IntegersState, inner.state))


@dataclass(frozen=True)
class IntegersHospital:
    """The three functions of a hospital's role in a run whose uploads are integers.

    Attributes:
        inner: the method's own role.
        plan: what does not change in the run.
    """

    inner: Role
    plan: IntegersPlan

    def start(self, env: NodeEnv) -> Step:
        state, sends = self.inner.start(env)
        return first_state(state_around(IntegersState, self.inner.state), env, self.plan.traffic, state), sends

    def receive(self, env: NodeEnv, s: IntegersState, sender: str, m: Any) -> Step:
        if sender == UP:
            return self.ask(env, s, m)
        if sender == ME:
            return self.hand_on(env, s, sender, m)
        return self.hear(env, s, sender, m)

    def ask(self, env: NodeEnv, s: IntegersState, m: Any) -> Step:
        """The step after the parent's question."""
        s = replace(s, pending=None, opened=0, behind=False)
        if not isinstance(m, Changes):
            if type(m) in self.plan.traffic.down:
                raise PeerError(f"the parent sent {type(m).__name__} with floats; this run's are integers")
            return self.hand_on(env, replace(s, scale=None), UP, m)
        reference = read(env, self.plan.settings, s.reference, m)
        if reference is None:
            return replace(s, behind=True), [ask_nobody(m)]
        question = read_question(env, self.plan.traffic, reference.model, m)
        return self.hand_on(env, replace(s, reference=reference, scale=Scale(m.bits, m.half)), UP, question)

    def hand_on(self, env: NodeEnv, s: IntegersState, sender: str, m: Any) -> Step:
        """The step after a message for the method itself, whose questions go down with the reference."""
        state, sends = self.inner.receive(env, s.inner, sender, m)
        s = replace(s, inner=state)
        model = model_in(env, self.plan.traffic, sends)
        if model is None:
            return s, sends
        if s.scale is None or not np.array_equal(model, s.reference.model):
            raise ValueError("this hospital shows its devices another model than it was shown")
        return s, addressed(env, self.plan.traffic, s.reference, s.scale, sends)

    def hear(self, env: NodeEnv, s: IntegersState, sender: str, m: Any) -> Step:
        """The step after a device's answer."""
        if isinstance(m, Behind):
            return replace(s, reference=s.reference.lost(sender)), []
        if s.scale is not None:
            s = replace(s, reference=s.reference.answered(sender))
        if isinstance(m, Integers):
            return self.count(env, s, sender, m)
        if not is_plain(env, self.plan.traffic, m):
            raise PeerError(f"{sender} sent {type(m).__name__} with floats; this run's are integers")
        return self.hand_on(env, s, sender, m)

    def count(self, env: NodeEnv, s: IntegersState, sender: str, m: Integers) -> Step:
        """The step after a device's integers, which are added up unopened, or opened for the method.

        Raises:
            PeerError: they are not what was asked for.
        """
        if s.scale is None:
            raise PeerError(f"{sender} sent integers, which the question did not ask for")
        check_upload(env, self.plan, s.scale, sender, m)
        if self.plan.privacy is not None:
            check_noisy(m, sender)
        if s.scale.half and not self.plan.opens:
            state, sends = self.inner.receive(env, s.inner, sender, without_numbers(env, m))
            return replace(s, inner=state, pending=added(s.pending, sender, m)), sends
        r = s.reference
        message = open_upload(env, self.plan, r.model, r.version, sender, m, env.theta0)
        return self.hand_on(env, replace(s, opened=s.opened + 1), sender, message)

    def close(self, env: NodeEnv, s: IntegersState) -> Step:
        if s.behind:
            return replace(s, behind=False), [Send(UP, Behind())]
        state, sends = self.inner.close(env, s.inner)
        s = replace(s, inner=state)
        return (s, sends) if s.scale is None else self.answer(env, s, s.scale, sends)

    def answer(self, env: NodeEnv, s: IntegersState, scale: Scale, sends: Sequence[Send]) -> Step:
        """The state and the sends of the method, with its upload as integers of that scale."""
        privacy, pending = self.plan.privacy, s.pending
        if pending is None and privacy is not None:
            return s, sends  # noise is the devices': of these nobody has answered
        if pending is None:
            return answered(env, self.plan, s, own_scale(scale, s.opened), sends)
        s = replace(s, pending=None)
        if privacy is not None and pending.terms < privacy.cohort:
            return s, [Send(UP, Nobody())]  # too few: their noise would not be enough
        return s, [summed(env, self.plan, scale, pending, send) for send in sends]


def own_scale(scale: Scale, terms: int) -> Scale:
    """Scale of a sum that is rounded anew: as many more bits as its terms would have taken unopened."""
    return Scale(min(rounding.MOST, rounding.width(scale.bits, max(1, terms))), 0.0)


def added(pending: Pending | None, sender: str, m: Integers) -> Pending:
    """The sum of the round with one more upload.

    Raises:
        PeerError: it has other vectors than those before.
    """
    if pending is None:
        return Pending(m.there, m.terms, m.spread, m.steps)
    if pending.there != m.there or pending.total.size != m.size:
        raise PeerError(f"{sender} sent {m.size} integers of {m.there}, its siblings {pending.total.size}")
    terms = pending.terms + m.terms
    if rounding.width(m.bits, terms) > rounding.WIDEST:
        raise PeerError(f"{sender}: with it, the sum of {terms} uploads no longer fits {rounding.WIDEST} bits")
    return Pending(m.there, terms, max(pending.spread, m.spread), pending.total + m.steps)


def summed(env: NodeEnv, plan: IntegersPlan, scale: Scale, pending: Pending, send: Send) -> Send:
    """What the method sends up, with the sum of the integers in it."""
    if send.to != UP or is_plain(env, plan.traffic, send.message):
        return send
    label = take_label(send.message, plan.traffic.up[type(send.message)])
    packed = rounding.pack(pending.total, rounding.width(scale.bits, pending.terms))
    size, terms, spread = pending.total.size, pending.terms, pending.spread
    return replace(send, message=Integers(label, pending.there, size, scale.bits, scale.half, terms, spread, packed))
