"""A hospital that adds up masked answers, and passes the sum on with the names of those that are in it.

The role inside keeps the books: who has answered, who is suspended, what is asked next. It is given blank answers in
place of masked ones, and its own sum of these is replaced by the sum of the masked ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from edge_sdk.algebra.secure_aggregation import rounding
from edge_sdk.contract.method import ME, OUT, UP, NodeEnv, Role, Send, Step
from edge_sdk.contract.wrapping import passed_in, state_around
from edge_sdk.errors import PeerError
from edge_sdk.methods.secret.messages.forms import SumKind
from edge_sdk.methods.secret.messages.masking import cut
from edge_sdk.methods.secret.messages.messages import Masked, MaskedSum, NumberedQuestion, TooFew
from edge_sdk.methods.secret.messages.plan import SecretPlan, asks_children, says_nothing
from edge_sdk.methods.secret.messages.states import MaskedPending, SecretState
from edge_sdk.methods.shared.aggregation.guard import Refused
from edge_sdk.methods.shared.aggregation.suspension import is_suspended


def around(inner: Role, plan: SecretPlan) -> Role:
    kind_of_state = state_around(SecretState, inner.state)

    def start(env: NodeEnv) -> Step:
        state, sends = inner.start(env)
        return sent(env, kind_of_state(state), sends)

    def receive(env: NodeEnv, s: SecretState, sender: str, m: Any) -> Step:
        if sender == UP:
            s = replace(s, pending=None, ticket=0, terms=0)
            if isinstance(m, NumberedQuestion):
                s, m = replace(s, ticket=m.ticket, terms=m.terms), m.question
        if sender in (UP, ME):
            state, sends = inner.receive(env, s.inner, sender, m)
            return sent(env, replace(s, inner=state), sends)
        if isinstance(m, Masked):
            return heard(env, s, sender, m)
        if not says_nothing(m):
            raise PeerError(f"{sender} sent {type(m).__name__}, and answers of this run are masked")
        state, sends = inner.receive(env, s.inner, sender, m)
        return sent(env, replace(s, inner=state), sends)

    def heard(env: NodeEnv, s: SecretState, sender: str, m: Masked) -> Step:
        """A device's masked answer. It counts if the role inside has counted a blank one in its place."""
        kind = plan.kind_of(m.form)
        if kind is None or not s.ticket:
            raise PeerError(f"{sender} sent {m.form.kind} under a mask, which was not asked for")
        pending = added(env, s, kind, sender, m)
        state, sends = inner.receive(env, s.inner, sender, kind.blank(m.form))
        counts = not is_suspended(env, state.guard, sender) and not any(isinstance(e.message, Refused) for e in sends)
        return sent(env, replace(s, inner=state, pending=pending if counts else s.pending), sends)

    def close(env: NodeEnv, s: SecretState) -> Step:
        state, sends = inner.close(env, s.inner)
        s, sends = sent(env, replace(s, inner=state), sends)
        return (replace(s, pending=None) if any(send.to == UP for send in sends) else s), sends

    def sent(env: NodeEnv, s: SecretState, sends: Sequence[Send]) -> tuple[SecretState, list[Send]]:
        """The sends of the role inside: questions with their number, and the sum in place of a blank one."""
        found = list[Send]()
        for send in sends:
            if send.to == UP:
                send = replace(send, message=summed(env, plan, s, send.message))
            elif asks_children(send, OUT, ME):
                send = replace(send, message=numbered(s, send.message))
            found.append(send)
        return s, found

    return Role(start, receive, close, kind_of_state, passed_in(inner.refuse), passed_in(inner.renew))


def numbered(s: SecretState, question: Any) -> NumberedQuestion:
    """A question for devices, with the number that the aggregator gave it.

    Raises:
        PeerError: the aggregator gave it none.
    """
    if not s.ticket:
        raise PeerError(
            f"the parent sent {type(question).__name__} without a number, and answers of this run are secret"
        )
    return NumberedQuestion(s.ticket, s.terms, question)


def added(env: NodeEnv, s: SecretState, kind: SumKind, sender: str, m: Masked) -> MaskedPending:
    """The sum of the round with one more answer.

    Raises:
        PeerError: it is in another ring, has other lengths, or is of another form than the question asks for.
    """
    (steps, words), width = kind.lengths(m.form), kind.width(m.form, s.terms)
    if m.form != (wanted := kind.form(env, kind.blank(m.form))):  # the first to answer must not decide for all others
        raise PeerError(f"{sender} sent {m.form}, expected {wanted}")
    if m.width != width or m.steps.size != rounding.packed_size(steps, width) or m.words.size != words:
        raise PeerError(f"{sender} sent {m.steps.size} bytes of {m.width} bits, expected {steps} integers of {width}")
    mine, pending = rounding.unpack(m.steps, steps, width), s.pending
    if pending is None:
        return MaskedPending(m.form, width, {sender: m.tag}, mine, m.words)
    if pending.form != m.form:
        raise PeerError(f"{sender} sent {m.form}, its siblings {pending.form}")
    if len(pending.tags) >= s.terms:
        raise PeerError(f"{sender}: a sum of {s.terms} answers was asked for, and it is complete")
    total = cut(pending.steps + mine, width)
    return replace(pending, tags={**pending.tags, sender: m.tag}, steps=total, words=pending.words + m.words)


def summed(env: NodeEnv, plan: SecretPlan, s: SecretState, message: Any) -> Any:
    """What the role inside sends up, or the sum of masked answers in its place; of too few, only how many they are."""
    kind = plan.kinds.get(type(message))
    if kind is None:
        if not says_nothing(message):
            raise ValueError(f"{type(message).__name__} would leave this hospital unmasked")
        return message
    p = s.pending
    if p is None or kind is not plan.kind_of(p.form) or len(p.tags) < plan.least:
        form = kind.form(env, message) if p is None else p.form
        return TooFew(form, 0 if p is None else len(p.tags))
    names = tuple(sorted(p.tags))
    tags = np.concatenate([p.tags[name] for name in names])
    return MaskedSum(s.ticket, names, tags, p.form, p.width, rounding.pack(p.steps, p.width), p.words)
