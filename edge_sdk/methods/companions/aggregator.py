"""The aggregator of the combination: one close is a close of both methods, which meet in the global model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from edge_sdk.algebra import lowrank
from edge_sdk.algebra.lowrank import Packed
from edge_sdk.algebra.vectors import Vector
from edge_sdk.contract.method import DOWN, OUT, UP, Method, Role, Send, Step, ask_nobody
from edge_sdk.errors import UsageError
from edge_sdk.methods.companions.device import Pair, declare_types
from edge_sdk.methods.companions.envs import make_aggregator_envs
from edge_sdk.methods.companions.messages import Both, SharedModel
from edge_sdk.methods.companions.settings import GLOBAL, Env
from edge_sdk.methods.fedal import aggregator as fedal_server
from edge_sdk.methods.fedal import equations as fedal_equations
from edge_sdk.methods.fedal import settings as fedal_settings
from edge_sdk.methods.fedal.messages import LOGITS, Consensus, Feedback, HospitalLogits
from edge_sdk.methods.fedal.method import FEDAL
from edge_sdk.methods.fedslr_consensus import FIRST_B
from edge_sdk.methods.shared.aggregation import gather
from edge_sdk.methods.shared.evaluation.reports import Progress

GAME = ("payoff", "floor", "caught", "gap", "exchanged")  # of FedAL's sums, those that go into the metrics


def aggregator_role(base: Method) -> Role:
    kind = declare_types(Pair, base.aggregator.state, FEDAL.aggregator.state, False)

    def start(env: Env) -> Step:
        ours, theirs = make_aggregator_envs(base, env)
        if env.public is None:
            raise UsageError("the aggregator was given no public inputs, which it needs beside devices of other models")
        (shared, asks), (outputs, more) = base.aggregator.start(ours), FEDAL.aggregator.start(theirs)
        return ask_both(env, kind(shared, outputs), asks, more)

    def receive(env: Env, s: Pair, sender: str, message: object) -> Step:
        ours, theirs = make_aggregator_envs(base, env)
        m: Both = gather.expected(sender, message, Both)
        if m.shared is not None:
            s = replace(s, shared=base.aggregator.receive(ours, s.shared, sender, m.shared)[0])
        if m.outputs is not None and s.exchanges.get(sender) == name_exchange(s):
            s = replace(s, outputs=FEDAL.aggregator.receive(theirs, s.outputs, sender, m.outputs)[0])
        return s, []

    def close(env: Env, s: Pair) -> Step:
        ours, theirs = make_aggregator_envs(base, env)
        outputs, more, pull = close_outputs(env, ours, theirs, s)
        shared, sends = base.aggregator.close(add_pull(ours, pull), s.shared)
        sends = [add_game(send, more) for send in sends]
        after = replace(s, shared=shared, outputs=outputs)
        if all(send.to == OUT for send in sends):
            return after, sends  # the last round is over
        return ask_both(env, after, sends, [send for send in more if send.to not in (OUT, GLOBAL)])

    return Role(start, receive, close, kind)


def name_exchange(s: Pair) -> tuple[int, int, str]:
    return s.outputs.round, s.outputs.exchange, s.outputs.wanted


def ask_both(env: Env, s: Pair, asks: Sequence[Send], more: Sequence[Send]) -> Step:
    """Each hospital's question of both methods in one. In first-B those at work are left alone."""
    told = [send for send in asks if send.to == OUT]
    ours, theirs = list_by_hospital(env, asks), list_by_hospital(env, more)
    free = env.here if getattr(env.settings.shared, "cloud", None) != FIRST_B else tuple(ours)
    groups: dict[tuple[int, int], list[str]] = {}
    for h in sorted({*ours, *free}):
        groups.setdefault((id(ours.get(h)), id(theirs.get(h))), []).append(h)
    sends = [Send(tuple(names), Both(ours.get(names[0]), theirs.get(names[0]))) for names in groups.values()]
    sends = [send for send in sends if send.message != Both()]
    asked = {h: name_exchange(s) for send in sends for h in send.to if h in theirs}
    rest = {h: e for h, e in s.exchanges.items() if h not in {n for send in sends for n in send.to}}
    return replace(s, exchanges={**rest, **asked}), [*told, *(sends or [ask_nobody(Both())])]


def list_by_hospital(env: Env, sends: Sequence[Send]) -> dict[str, Any]:
    """Hospital -> what it is sent."""
    found: dict[str, Any] = {}
    for send in sends:
        if send.to not in (OUT, UP):
            names = env.here if send.to == DOWN else (send.to,) if isinstance(send.to, str) else send.to
            found |= dict.fromkeys(names, send.message)
    return found


def close_outputs(
    env: Env, ours: Any, theirs: fedal_settings.Env, s: Pair
) -> tuple[Any, Sequence[Send], Vector | None]:
    """FedAL's close with the global model among the devices; and what pulls on that model."""
    state: fedal_server.AggregatorState = s.outputs
    if state.wanted != LOGITS or not state.parcels:
        return *FEDAL.aggregator.close(theirs, state), None
    assert env.public is not None  # start has seen it
    w = lowrank.unpack(env.layout, s.shared.model)
    rows = fedal_equations.draw_public_rows(theirs, state.round, state.exchange)
    f = env.public.logits(w, rows)
    joined = replace(state, parcels={**state.parcels, GLOBAL: HospitalLogits((0,), f[None])})
    after, sends = FEDAL.aggregator.close(theirs, joined)
    if env.settings.into == 0:
        return after, sends, None
    m: Consensus = next(send.message for send in sends if send.to == GLOBAL)
    own = None if m.gradients is None else m.gradients[0]
    feedback = Feedback(m.round, m.exchange, m.count, m.mean, own, m.then)
    cotangent = fedal_equations.transfer_cotangent(env.settings.outputs, f, None, feedback)
    if cotangent is None:
        return after, sends, None
    pull = env.public.pull(w, rows, (cotangent / len(rows)).astype(w.dtype))
    return after, sends, np.asarray(env.settings.into * pull, w.dtype)


def add_pull(env: Any, pull: Vector | None) -> Any:
    """The env with the companions' pull, measured at the model of this round, added to the smooth term."""
    if pull is None:
        return env
    known = env.smooth_grad
    return replace(env, smooth_grad=lambda theta: pull if known is None else known(theta) + pull)


def add_game(send: Send, more: Sequence[Send]) -> Send:
    """The shared method's report of a round, with FedAL's measures of this close added."""
    found = next((m.message.sums for m in more if m.to == OUT and isinstance(m.message, Progress)), {})
    if send.to != OUT or not isinstance(send.message, Progress):
        return send
    sums = {**send.message.sums, **{name: found[name] for name in GAME if name in found}}
    return replace(send, message=replace(send.message, sums=sums))


def show(env: Env, s: Pair) -> SharedModel:
    model: Packed = s.shared.model
    return SharedModel(s.shared.round, model.ranks, model.values)
