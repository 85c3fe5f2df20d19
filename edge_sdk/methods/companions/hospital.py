"""A hospital of the combination: it plays its part in both methods, with a question and an answer for both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from edge_sdk.contract.method import DOWN, UP, Method, NodeEnv, Role, Send, Step, ask_nobody
from edge_sdk.methods.companions.device import Pair, declare_types
from edge_sdk.methods.companions.envs import make_hospital_envs
from edge_sdk.methods.companions.messages import Both
from edge_sdk.methods.companions.settings import Env
from edge_sdk.methods.fedal.method import FEDAL
from edge_sdk.methods.shared.aggregation import gather


def hospital_role(base: Method) -> Role:
    kind = declare_types(Pair, base.hospital.state, FEDAL.hospital.state, False)

    def start(env: Env) -> Step:
        ours, theirs = make_hospital_envs(base, env)
        return kind(base.hospital.start(ours)[0], FEDAL.hospital.start(theirs)[0]), []

    def receive(env: Env, s: Pair, sender: str, message: object) -> Step:
        ours, theirs = make_hospital_envs(base, env)
        if sender in env.companions:
            state, _ = FEDAL.hospital.receive(theirs, s.outputs, sender, message)
            return replace(s, outputs=state), []
        if sender != UP:
            state, _ = base.hospital.receive(ours, s.shared, sender, message)
            return replace(s, shared=state), []
        m: Both = gather.expected(sender, message, Both)
        sends: list[Send] = []
        if m.shared is not None:
            state, asks = base.hospital.receive(ours, s.shared, UP, m.shared)
            s, sends = replace(s, shared=state), name_receivers(ours, asks)
        if m.outputs is not None:
            state, asks = FEDAL.hospital.receive(theirs, s.outputs, UP, m.outputs)
            s, sends = replace(s, outputs=state), sends + name_receivers(theirs, asks)
        return replace(s, asked=(m.shared is not None, m.outputs is not None)), sends or [ask_nobody(m)]

    def close(env: Env, s: Pair) -> Step:
        ours, theirs = make_hospital_envs(base, env)
        told, answers = Both(), s.asked
        if answers[0]:
            state, sends = base.hospital.close(ours, s.shared)
            s, told = replace(s, shared=state), replace(told, shared=find_upward(sends))
        if answers[1]:
            state, sends = FEDAL.hospital.close(theirs, s.outputs)
            s, told = replace(s, outputs=state), replace(told, outputs=find_upward(sends))
        return s, [Send(UP, told)]

    return Role(start, receive, close, kind)


def name_receivers(env: NodeEnv, sends: Sequence[Send]) -> list[Send]:
    """The sends with names in place of DOWN: each method speaks only to its own devices."""
    return [replace(send, to=env.here) if send.to == DOWN else send for send in sends]


def find_upward(sends: Sequence[Send]) -> Any:
    return next((send.message for send in sends if send.to == UP), None)
