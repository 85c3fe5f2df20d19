"""Devices of other architectures beside a method with one global model: the two learn from each other's outputs.

Most devices train the shared model (FedSLR, alone or under consensus between hospitals). Their companions have models
of their own, and exchange logits on public inputs as in FedAL. The two meet at the aggregator:

    from    the global model w takes part in FedAL's exchanges like one more device: its logits on the common batch are
            in the companions' consensus, and the discriminator tells it apart from them or does not;
    into    what FedAL answers a device (K(consensus, own) + the adversarial term, pulled back to the parameters) is the
            gradient of a smooth term of the shared objective, with weight `into`: it enters the aggregator's step

    w = prox_{eta_g lambda ||.||_*}(x - eta_g (grad R(w) + into * pull(w))),

beside AugFL's regulariser R, if there is one. So one close of the aggregator is a proximal step, a step of the
discriminator and, with fedslr-b, a mixing of hospitals. `into` = 0: the companions learn from w, and w is as without
them. Each close is a round of the shared method and one exchange of FedAL (a local stage comes every tau + 1 closes).

A hospital knows which of its devices are companions, the aggregator only how many there are. A device is one if its
bundle is not the one that the run names.

Leaves a device: what its method says; no companion sends a parameter. Kind of upload: that of the shared method.
When few answer: as each method has it. A hospital that is not asked in a close sits FedAL out until its next local
stage.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, make_dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from edge_sdk.algebra import lowrank
from edge_sdk.algebra.lowrank import Packed
from edge_sdk.algebra.vectors import Layout, Vector
from edge_sdk.contract.method import DOWN, OUT, UP, Method, NodeEnv, Role, Send, Step
from edge_sdk.contract.round import Policy
from edge_sdk.errors import PeerError, UsageError
from edge_sdk.methods.companions.settings import (
    GLOBAL,
    Both,
    ConsensusEnv,
    ConsensusSettings,
    Env,
    Settings,
    SharedModel,
    clouds,
    outputs_of,
    shared_of,
    wards,
)
from edge_sdk.methods.fedal import aggregator as fedal_server
from edge_sdk.methods.fedal import method as fedal
from edge_sdk.methods.fedal import settings as fedal_settings
from edge_sdk.methods.fedal.messages import LOGITS, Consensus, Feedback, Parcel, Shown
from edge_sdk.methods.fedal.method import FEDAL
from edge_sdk.methods.fedslr import method as fedslr
from edge_sdk.methods.fedslr.method import FEDSLR
from edge_sdk.methods.fedslr_consensus import FEDSLR_B, FIRST_B
from edge_sdk.methods.shared import gather
from edge_sdk.methods.shared.reports import COMPANION, Progress

GAME = ("payoff", "floor", "caught", "gap", "exchanged")  # of FedAL's sums, those that go into the metrics


# Device ---------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Member:
    """A device: the state of the one method in which this device takes part."""

    shared: Any = None
    outputs: Any = None


@dataclass(frozen=True)
class Pair:
    """Hospital and aggregator: the states of both methods.

    Attributes:
        asked: hospital: which of the two wait for answers: (shared, outputs).
        exchanges: aggregator: hospital -> (round, exchange, what was wanted) of FedAL when it was last asked.
    """

    shared: Any
    outputs: Any
    asked: tuple[bool, bool] = (False, False)
    exchanges: Mapping[str, tuple[int, int, str]] = field(default_factory=dict)


@cache
def typed(kind: type, shared: Any, outputs: Any, optional: bool) -> Any:
    """`kind` with the types of what is inside written down, for those who save it; the same class each time."""
    hints: list[Any] = [shared | None, outputs | None] if optional else [shared, outputs]
    names = ("shared", "outputs")
    made = [(n, h, field(default=None)) if optional else (n, h) for n, h in zip(names, hints, strict=True)]
    return make_dataclass(kind.__name__, made, bases=(kind,), frozen=True)


def device_role(base: Method) -> Role:
    kind = typed(Member, base.device.state, FEDAL.device.state, True)

    def start(env: Env) -> Step:
        if env.apart:
            return kind(outputs=FEDAL.device.start(outputs_of(env))[0]), []
        return kind(shared=base.device.start(shared_of(base, env))[0]), []

    def receive(env: Env, s: Member, sender: str, message: object) -> Step:
        if env.apart:
            state, sends = FEDAL.device.receive(outputs_of(env), s.outputs, sender, message)
            return replace(s, outputs=state), sends
        state, sends = base.device.receive(shared_of(base, env), s.shared, sender, message)
        return replace(s, shared=state), sends

    return Role(start, receive, lambda env, s: (s, []), kind)


# Hospital -------------------------------------------------------------------------------------------------------
def hospital_role(base: Method) -> Role:
    kind = typed(Pair, base.hospital.state, FEDAL.hospital.state, False)

    def start(env: Env) -> Step:
        ours, theirs = wards(base, env)
        return kind(base.hospital.start(ours)[0], FEDAL.hospital.start(theirs)[0]), []

    def receive(env: Env, s: Pair, sender: str, message: object) -> Step:
        ours, theirs = wards(base, env)
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
            s, sends = replace(s, shared=state), addressed(ours, asks)
        if m.outputs is not None:
            state, asks = FEDAL.hospital.receive(theirs, s.outputs, UP, m.outputs)
            s, sends = replace(s, outputs=state), sends + addressed(theirs, asks)
        return replace(s, asked=(m.shared is not None, m.outputs is not None)), sends or [Send((), m)]

    def close(env: Env, s: Pair) -> Step:
        ours, theirs = wards(base, env)
        told, answers = Both(), s.asked
        if answers[0]:
            state, sends = base.hospital.close(ours, s.shared)
            s, told = replace(s, shared=state), replace(told, shared=upward(sends))
        if answers[1]:
            state, sends = FEDAL.hospital.close(theirs, s.outputs)
            s, told = replace(s, outputs=state), replace(told, outputs=upward(sends))
        return s, [Send(UP, told)]

    return Role(start, receive, close, kind)


def addressed(env: NodeEnv, sends: Sequence[Send]) -> list[Send]:
    """With the names of those that hear what is said to all."""
    return [replace(send, to=env.here) if send.to == DOWN else send for send in sends]


def upward(sends: Sequence[Send]) -> Any:
    return next((send.message for send in sends if send.to == UP), None)


# Aggregator -----------------------------------------------------------------------------------------------------
def aggregator_role(base: Method) -> Role:
    kind = typed(Pair, base.aggregator.state, FEDAL.aggregator.state, False)

    def start(env: Env) -> Step:
        ours, theirs = clouds(base, env)
        if env.public is None:
            raise UsageError("the aggregator was given no public inputs, which it needs beside devices of other models")
        (shared, asks), (outputs, more) = base.aggregator.start(ours), FEDAL.aggregator.start(theirs)
        return asking(env, kind(shared, outputs), asks, more)

    def receive(env: Env, s: Pair, sender: str, message: object) -> Step:
        ours, theirs = clouds(base, env)
        m: Both = gather.expected(sender, message, Both)
        if m.shared is not None:
            s = replace(s, shared=base.aggregator.receive(ours, s.shared, sender, m.shared)[0])
        if m.outputs is not None and s.exchanges.get(sender) == exchange_of(s):
            s = replace(s, outputs=FEDAL.aggregator.receive(theirs, s.outputs, sender, m.outputs)[0])
        return s, []

    def close(env: Env, s: Pair) -> Step:
        ours, theirs = clouds(base, env)
        outputs, more, pull = exchanged(env, ours, theirs, s)
        shared, sends = base.aggregator.close(together(ours, pull), s.shared)
        sends = [with_game(send, more) for send in sends]
        after = replace(s, shared=shared, outputs=outputs)
        if all(send.to == OUT for send in sends):
            return after, sends  # the last round is over
        return asking(env, after, sends, [send for send in more if send.to not in (OUT, GLOBAL)])

    return Role(start, receive, close, kind)


def exchange_of(s: Pair) -> tuple[int, int, str]:
    return s.outputs.round, s.outputs.exchange, s.outputs.wanted


def asking(env: Env, s: Pair, asks: Sequence[Send], more: Sequence[Send]) -> Step:
    """Each hospital's question of both methods in one. In first-B those at work are left alone."""
    told = [send for send in asks if send.to == OUT]
    ours, theirs = by_name(env, asks), by_name(env, more)
    free = env.here if getattr(env.settings.shared, "cloud", None) != FIRST_B else tuple(ours)
    groups: dict[tuple[int, int], list[str]] = {}
    for h in sorted({*ours, *free}):
        groups.setdefault((id(ours.get(h)), id(theirs.get(h))), []).append(h)
    sends = [Send(tuple(names), Both(ours.get(names[0]), theirs.get(names[0]))) for names in groups.values()]
    sends = [send for send in sends if send.message != Both()]
    asked = {h: exchange_of(s) for send in sends for h in send.to if h in theirs}
    rest = {h: e for h, e in s.exchanges.items() if h not in {n for send in sends for n in send.to}}
    return replace(s, exchanges={**rest, **asked}), [*told, *(sends or [Send((), Both())])]


def by_name(env: Env, sends: Sequence[Send]) -> dict[str, Any]:
    """Hospital -> what it is sent."""
    found: dict[str, Any] = {}
    for send in sends:
        if send.to not in (OUT, UP):
            names = env.here if send.to == DOWN else (send.to,) if isinstance(send.to, str) else send.to
            found |= dict.fromkeys(names, send.message)
    return found


def exchanged(env: Env, ours: Any, theirs: fedal_settings.Env, s: Pair) -> tuple[Any, Sequence[Send], Vector | None]:
    """FedAL's close with the global model among the devices; and what pulls on that model."""
    state: fedal_server.Aggregator = s.outputs
    if state.wanted != LOGITS or not state.parcels:
        return *FEDAL.aggregator.close(theirs, state), None
    assert env.public is not None  # start has seen it
    w = lowrank.unpack(env.layout, s.shared.model)
    rows = fedal.public_rows(theirs, state.round, state.exchange)
    f = env.public.logits(w, rows)
    joined = replace(state, parcels={**state.parcels, GLOBAL: Parcel((0,), f[None])})
    after, sends = FEDAL.aggregator.close(theirs, joined)
    if env.settings.into == 0:
        return after, sends, None
    m: Consensus = next(send.message for send in sends if send.to == GLOBAL)
    own = None if m.gradients is None else m.gradients[0]
    feedback = Feedback(m.round, m.exchange, m.count, m.mean, own, m.then)
    cotangent = fedal.transfer_cotangent(env.settings.outputs, f, None, feedback)
    if cotangent is None:
        return after, sends, None
    pull = env.public.pull(w, rows, (cotangent / len(rows)).astype(w.dtype))
    return after, sends, np.asarray(env.settings.into * pull, w.dtype)


def together(env: Any, pull: Vector | None) -> Any:
    """With what pulls on the global model added to the smooth term. It was measured at the model of this round."""
    if pull is None:
        return env
    known = env.smooth_grad
    return replace(env, smooth_grad=lambda theta: pull if known is None else known(theta) + pull)


def with_game(send: Send, more: Sequence[Send]) -> Send:
    """The shared method's report of a round with what FedAL measured in this close."""
    found = next((m.message.sums for m in more if m.to == OUT and isinstance(m.message, Progress)), {})
    if send.to != OUT or not isinstance(send.message, Progress):
        return send
    sums = {**send.message.sums, **{name: found[name] for name in GAME if name in found}}
    return replace(send, message=replace(send.message, sums=sums))


# For evaluation -------------------------------------------------------------------------------------------------
def show(env: Env, s: Pair) -> SharedModel:
    model: Packed = s.shared.model
    return SharedModel(s.shared.round, model.ranks, model.values)


def models_of(base: Method) -> Callable[[Env, Member | None, SharedModel], dict[str, Vector]]:
    def models(env: Env, s: Member | None, m: SharedModel) -> dict[str, Vector]:
        if s is not None and env.apart:
            return {COMPANION: s.outputs.theta}
        packed = checked(env.layout, m)
        question = fedslr.Global(packed, m.round, 0, {})
        found: dict[str, Vector] = dict(base.models(shared_of(base, env), s and s.shared, question))
        return found

    return models


def checked(layout: Layout, m: SharedModel) -> Packed:
    """Raises PeerError if it is no model of this layout."""
    try:
        m.model.check(layout)
    except ValueError as error:
        raise PeerError(f"the model of round {m.round}: {error}") from None
    return m.model


def with_companions(base: Method, name: str, settings: type[Settings], env: type[Env]) -> Method:
    """The method with devices of other architectures beside its own."""

    def policies(
        s: Settings, sizes: Mapping[str, int], deadline: float, hospital_deadline: float, evaluate_every: int = 0
    ) -> Mapping[str, Policy]:
        return base.policies(s.shared, sizes, deadline, hospital_deadline, evaluate_every)

    def warnings(s: Settings, sizes: Mapping[str, int]) -> Sequence[str]:
        return [*base.warnings(s.shared, sizes), *FEDAL.warnings(s.outputs, sizes)]

    outputs = tuple(m for m in FEDAL.messages if m is not Shown)
    return Method(
        name=name,
        device=device_role(base),
        hospital=hospital_role(base),
        aggregator=aggregator_role(base),
        messages=tuple(dict.fromkeys((*base.messages, *outputs, Both, SharedModel))),
        settings=settings,
        env=env,
        show=show,
        models=models_of(base),
        policies=policies,
        warnings=warnings,
        kernels="companions",
    )


FEDSLR_FEDAL = with_companions(FEDSLR, "fedslr+fedal", Settings, Env)
FEDSLR_B_FEDAL = with_companions(FEDSLR_B, "fedslr-b+fedal", ConsensusSettings, ConsensusEnv)
