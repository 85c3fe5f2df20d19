"""An aggregator that is given hospitals' sums as they were opened there, or the reason why there is none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from edge_sdk.contract.method import OUT, NodeEnv, Role, Send, Step
from edge_sdk.errors import PeerError
from edge_sdk.methods.secret.messages.among_messages import NoneOpened, NoSum
from edge_sdk.methods.secret.messages.plan import SecretPlan, says_nothing


def around(inner: Role, plan: SecretPlan) -> Role:
    """The aggregator's role around the method's, with the same state."""

    def receive(env: NodeEnv, s: Any, sender: str, m: Any) -> Step:
        if not isinstance(m, NoSum):
            step: Step = inner.receive(env, s, sender, m)
            return step
        if not says_nothing(m.nothing) and type(m.nothing) not in plan.kinds:
            raise PeerError(f"{sender} sent no sum of {type(m.nothing).__name__}, which this run does not add up")
        state, sends = inner.receive(env, s, sender, m.nothing)
        return state, [Send(OUT, NoneOpened(sender, m.devices, m.why)), *sends]

    return replace(inner, receive=receive)
