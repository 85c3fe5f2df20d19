"""A device whose answers leave under a mask."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from edge_sdk.contract.method import UP, NodeEnv, Role, Send, Step
from edge_sdk.errors import PeerError
from edge_sdk.methods.secret.messages.masking import put_on
from edge_sdk.methods.secret.messages.messages import Masked, NumberedQuestion
from edge_sdk.methods.secret.messages.plan import SecretPlan, says_nothing


def around(inner: Role, plan: SecretPlan) -> Role:
    def start(env: NodeEnv) -> Step:
        state, sends = inner.start(env)
        return state, unmasked(sends)

    def receive(env: NodeEnv, s: Any, sender: str, m: Any) -> Step:
        if not isinstance(m, NumberedQuestion):
            state, sends = inner.receive(env, s, sender, m)
            return state, unmasked(sends)
        state, sends = inner.receive(env, s, sender, m.question)
        return state, [masked(env, m, send) for send in sends]

    def masked(env: NodeEnv, m: NumberedQuestion, send: Send) -> Send:
        if send.to != UP or says_nothing(send.message):
            return send
        kind = plan.kinds.get(type(send.message))
        if kind is None:
            raise ValueError(f"{type(send.message).__name__} is no answer that can be masked")
        hidden: Masked = put_on(env, kind, m.ticket, m.terms, permitted(env, send.message))
        return Send(UP, hidden)

    def close(env: NodeEnv, s: Any) -> Step:
        state, sends = inner.close(env, s)
        return state, unmasked(sends)

    return Role(start, receive, close, inner.state, inner.refuse)


def permitted(env: NodeEnv, message: Any) -> Any:
    """The part of an answer that the device's holder lets leave."""
    return message if env.allowed is None else env.allowed(message)


def unmasked(sends: Sequence[Send]) -> Sequence[Send]:
    """The sends of a call that answers no numbered question: nothing that could be read may be among them.

    Raises:
        PeerError: there is an answer, so its question should have had a number.
    """
    for send in sends:
        if send.to == UP and not says_nothing(send.message):
            raise PeerError("the parent has asked without a number, and answers of this run are secret")
    return sends
