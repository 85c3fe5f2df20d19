"""A device that reads questions as changes of the reference and answers with integers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from edge_sdk.contract.method import UP, NodeEnv, Role, Send, Step
from edge_sdk.contract.wrapping import state_around
from edge_sdk.errors import PeerError
from edge_sdk.methods.integers.tiers.asking import read_question
from edge_sdk.methods.integers.tiers.states import (
    BuildingState,
    IntegersState,
    first_state,
)
from edge_sdk.methods.integers.vectors.messages import Behind, Changes
from edge_sdk.methods.integers.vectors.noise import write_noisy
from edge_sdk.methods.integers.vectors.reference import read
from edge_sdk.methods.integers.vectors.uploads import IntegersPlan, Scale, is_plain, write_upload
from edge_sdk.methods.shared.aggregation.gather import Nobody
from edge_sdk.methods.shared.evaluation.healing import heal


def around(inner: Role, plan: IntegersPlan) -> Role:
    kind = (
        state_around(IntegersState, inner.state)
        if plan.traffic.was_counted is None
        else state_around(BuildingState, inner.state)
    )

    def start(env: NodeEnv) -> Step:
        state, sends = inner.start(env)
        return first_state(kind, env, plan.traffic, state), sends

    def receive(env: NodeEnv, s: IntegersState, sender: str, m: Any) -> Step:
        if not isinstance(m, Changes):
            if type(m) in plan.traffic.down:
                raise PeerError(f"{sender} sent {type(m).__name__} with floats; this run's are integers")
            state, sends = inner.receive(env, s.inner, sender, m)
            return replace(s, inner=state), sends
        reference = read(env, plan.settings, s.reference, m)
        if reference is None:
            return s, [Send(UP, Behind())]
        question = read_question(env, plan.traffic, reference.model, m)
        s = resumed(env, plan, s, question)
        before = s.inner
        step = inner.receive(env, s.inner, sender, question)
        if plan.privacy is not None:  # a state that has diverged must not be told by an answer without noise
            step = heal(inner, env, s.inner, step, m.round)
        state, sends = step
        s = replace(s, inner=state, reference=replace(reference, recent=()))
        if plan.privacy is not None:
            return noisy_answer(env, plan, s, Scale(m.bits, m.half), sends, before, question)
        return answered(env, plan, s, Scale(m.bits, m.half), sends)

    def close(env: NodeEnv, s: IntegersState) -> Step:
        state, sends = inner.close(env, s.inner)
        return replace(s, inner=state), sends

    return Role(start, receive, close, kind)


def resumed(env: NodeEnv, plan: IntegersPlan, s: IntegersState, question: Any) -> IntegersState:
    """The state with what rounding has left of the upload that was counted last, where uploads build on each other.

    What is counted together is then what the device has said, but for one rounding: an upload that got lost leaves no
    trace.
    """
    if not isinstance(s, BuildingState) or plan.traffic.was_counted is None:
        return s
    counted = plan.traffic.was_counted(env, s.inner, question)
    left = s.left[:0] if counted is None else s.left if counted else s.before
    return replace(s, left=left, before=left)


def answered(env: NodeEnv, plan: IntegersPlan, s: IntegersState, scale: Scale, sends: Sequence[Send]) -> Step:
    """The state and the sends, with uploads as integers."""
    found, r = list[Send](), s.reference
    for send in sends:
        if send.to == UP and not is_plain(env, plan.traffic, send.message):
            message, left = write_upload(env, plan, r.model, r.version, scale, send.message, s.left)
            s, send = replace(s, left=left), replace(send, message=message)
        found.append(send)
    return s, found


def noisy_answer(
    env: NodeEnv, plan: IntegersPlan, s: IntegersState, scale: Scale, sends: Sequence[Send], before: Any, question: Any
) -> Step:
    """The state and the sends, with noise in the upload, or in an upload of no movement where there is `Nobody`.

    Args:
        before: the method's own state before the question, which is the method's own, too.
    """
    found, r = list[Send](), s.reference
    for send in sends:
        m = send.message
        if send.to == UP and (isinstance(m, Nobody) or not is_plain(env, plan.traffic, m)):
            message, share = write_noisy(env, plan, r.model, r.version, scale, m)
            send = replace(send, message=message)
            if plan.shortened is not None and share < 1.0:  # what moves with uploads has moved as little
                s = replace(s, inner=plan.shortened(env, before, s.inner, question, share))
        found.append(send)
    return s, found
