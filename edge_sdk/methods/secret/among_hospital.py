"""A hospital that leads the exchange in which its devices hide their answers and open the sum (among_device.py).

It passes on what devices say to each other, adds up what is masked, and takes masks off that follow from what enough
devices have revealed. In each of the five steps some may be missing: who has not offered, or has not dealt shares, is
left out; who has not sent its masked answer is left out too, and its neighbours tell its key; who is missing after that
is in the sum, and the others' shares are enough. Where too few are left, there is no sum, and the aggregator hears why.

The role inside keeps the books. It hears of answers when the sum is open, and then of all that are in it: it is given
blank ones, and its own sum of these is replaced by the one that was opened. Where none was, nobody has answered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from edge_sdk.algebra import rounding
from edge_sdk.algebra.neighbours import is_in_one_piece, neighbours, threshold
from edge_sdk.algebra.shamir import SHARE
from edge_sdk.contract.method import ME, OUT, UP, NodeEnv, Role, Send, Step
from edge_sdk.contract.sharing import SEALED, TAG
from edge_sdk.errors import PeerError, UsageError
from edge_sdk.methods.secret.among_messages import (
    FEW,
    REFUSED,
    SPLIT,
    UNSHARED,
    Agreement,
    Confirmed,
    Covered,
    Dealt,
    KeysOffer,
    NoneOpened,
    NoSum,
    PassedShares,
    Revealed,
    Survivors,
    Withdrawn,
    pieces,
    to_bits,
    to_octets,
)
from edge_sdk.methods.secret.among_opening import NotOpenedError, held_by, opened
from edge_sdk.methods.secret.among_states import (
    CONFIRMING,
    COVERING,
    DEALING,
    IDLE,
    OFFERING,
    REVEALING,
    AmongState,
    among_state_around,
)
from edge_sdk.methods.secret.forms import SumKind
from edge_sdk.methods.secret.masking import cut
from edge_sdk.methods.secret.messages import NumberedQuestion
from edge_sdk.methods.secret.plan import SecretPlan, asks_children, says_nothing
from edge_sdk.methods.shared.guard import Refused
from edge_sdk.methods.shared.suspension import is_suspended


def around(inner: Role, plan: SecretPlan) -> Role:
    """The hospital's role around the method's."""
    kind_of_state = among_state_around(inner.state)

    def start(env: NodeEnv) -> Step:
        if env.reader is None:
            raise UsageError("devices open the sums of this run among themselves, and this hospital was given nothing "
                             "to read them with")  # fmt: skip
        state, sends = inner.start(env)
        return sent(env, kind_of_state(state), sends)

    def receive(env: NodeEnv, s: AmongState, sender: str, m: Any) -> Step:
        if sender in (UP, ME):
            s = kind_of_state(s.inner) if sender == UP else s
            state, sends = inner.receive(env, s.inner, sender, m)
            return sent(env, replace(s, inner=state), sends)
        if s.stage > OFFERING:
            return s if isinstance(m, Withdrawn) else told(s, sender, m), []
        if isinstance(m, KeysOffer):
            return offered(env, plan, s, sender, m), []
        if not says_nothing(m) or isinstance(m, Withdrawn):
            raise PeerError(f"{sender} sent {type(m).__name__}, and answers of this run are offered first")
        state, sends = inner.receive(env, s.inner, sender, m)
        return sent(env, replace(s, inner=state), sends)

    def close(env: NodeEnv, s: AmongState) -> Step:
        if s.stage == IDLE or (s.stage == OFFERING and not s.offers):
            state, sends = inner.close(env, s.inner)
            return sent(env, kind_of_state(state), sends)
        try:
            return led_on(env, plan, s) if s.stage < REVEALING else finished(env, s)
        except NotOpenedError as why:
            return void(env, s, str(why))

    def finished(env: NodeEnv, s: AmongState) -> Step:
        """The state after the role inside has heard of all whose answers are in the sum."""
        kind = kind_in(plan, s)
        assert s.form is not None
        flat, state = opened(env, s), s.inner
        try:
            message = kind.restore(s.form, len(s.members), flat, plan.cohort)
            message.check(env.layout)
        except (PeerError, ValueError):
            raise NotOpenedError(REFUSED) from None
        passed = list[Send]()
        for name in s.members:
            state, sends = inner.receive(env, state, name, kind.blank(s.form))
            passed += sends
        if any(isinstance(send.message, Refused) for send in passed):
            raise NotOpenedError(REFUSED)
        state, sends = inner.close(env, state)
        with_sum = [
            replace(send, message=message) if send.to == UP and plan.kinds.get(type(send.message)) is kind else send
            for send in sends
        ]
        s, before = sent(env, kind_of_state(state), passed)
        s, after = sent(env, s, [send for send in with_sum if send.message is not message])
        return s, [*before, *after, *(send for send in with_sum if send.message is message)]

    def void(env: NodeEnv, s: AmongState, why: str) -> Step:
        """The state after the role inside was told that nobody has answered."""
        state, sends = inner.close(env, s.inner)
        count = len(s.offers)
        found = [replace(send, message=NoSum(send.message, count, why)) if send.to == UP else send for send in sends]
        s, found = sent(env, kind_of_state(state), found)
        return s, [*found, Send(OUT, NoneOpened(env.me, count, why))]

    def sent(env: NodeEnv, s: AmongState, sends: Sequence[Send]) -> tuple[AmongState, list[Send]]:
        """The sends of the role inside: questions with a number, and what is the sum of no answers as no sum."""
        found = list[Send]()
        for send in sends:
            m = send.message
            if send.to == UP and not says_nothing(m) and not isinstance(m, NoSum):
                if plan.kinds.get(type(m)) is None:
                    raise ValueError(f"{type(m).__name__} would leave this hospital, and no devices have opened it")
                send = replace(send, message=NoSum(m, 0, FEW))
            elif asks_children(send, OUT, ME, UP):
                s = replace(kind_of_state(s.inner), stage=OFFERING, ticket=env.asked + 1)
                send = replace(send, message=NumberedQuestion(s.ticket, max(1, len(env.sizes)), m))
            found.append(send)
        return s, found

    def refuse(env: NodeEnv, s: AmongState, sender: str, why: str) -> Step:
        assert inner.refuse is not None
        state, sends = inner.refuse(env, s.inner, sender, why)
        return replace(s, inner=state), sends

    return Role(start, receive, close, kind_of_state, refuse)


def kind_in(plan: SecretPlan, s: AmongState) -> SumKind:
    kind = None if s.form is None else plan.kind_of(s.form)
    assert kind is not None  # looked at in each offer
    return kind


# What devices send ----------------------------------------------------------------------------------------------
def offered(env: NodeEnv, plan: SecretPlan, s: AmongState, sender: str, m: KeysOffer) -> AmongState:
    """The state after a device has said that it has an answer.

    Raises:
        PeerError: none was asked for, or not of that form.
    """
    kind = plan.kind_of(m.form)
    if s.stage != OFFERING or kind is None:
        raise PeerError(f"{sender} offers {m.form.kind}, which was not asked for")
    if m.form != (wanted := kind.form(env, kind.blank(m.form))) or s.form not in (None, m.form):
        raise PeerError(f"{sender} offers {m.form}, expected {s.form or wanted}")
    if is_suspended(env, s.inner.guard, sender):
        return s
    return replace(s, form=m.form, offers={**s.offers, sender: m.public})


def told(s: AmongState, sender: str, m: Any) -> AmongState:
    """The state after a device's answer in the exchange. Raises PeerError for one that was not asked for."""
    graph = neighbours(s.names, s.roster.digest())
    try:
        if s.stage == DEALING and isinstance(m, Dealt):
            pieces(m.sealed, SEALED, graph[sender])
            return replace(s, dealt={**s.dealt, sender: m.sealed})
        if s.stage == COVERING and isinstance(m, Covered):
            return covered(s, sender, m)
        if s.stage == CONFIRMING and isinstance(m, Confirmed):
            pieces(m.words, TAG, [peer for peer in graph[sender] if peer in s.members])
            return replace(s, confirmed={**s.confirmed, sender: m.words})
        if s.stage == REVEALING and isinstance(m, Revealed):
            pieces(m.shares, SHARE, held_by(s, graph, sender))
            return replace(s, revealed={**s.revealed, sender: m.shares})
    except ValueError as why:
        raise PeerError(f"{sender} sent {type(m).__name__}: {why}") from None
    raise PeerError(f"{sender} sent {type(m).__name__}, which was not asked for")


def covered(s: AmongState, sender: str, m: Covered) -> AmongState:
    """The state with one more masked answer in the sum. Raises ValueError for one of another size."""
    if m.steps.size != rounding.packed_size(s.steps.size, s.width) or m.words.size != s.words.size:
        raise ValueError(f"{m.steps.size} bytes and {m.words.size} words, expected {s.steps.size} of {s.width} bits")
    steps = cut(s.steps + rounding.unpack(m.steps, s.steps.size, s.width), s.width)
    return replace(s, members=tuple(sorted({*s.members, sender})), steps=steps, words=s.words + m.words)


# What they are asked --------------------------------------------------------------------------------------------
def led_on(env: NodeEnv, plan: SecretPlan, s: AmongState) -> Step:
    """The next question of the exchange. Raises NotOpenedError where too few are left to go on."""
    if s.stage == OFFERING:
        if len(s.offers) < plan.cohort:
            raise NotOpenedError(FEW)
        return replace(s, stage=DEALING), [Send(s.names, s.roster, all=True)]
    graph = neighbours(s.names, s.roster.digest())
    if s.stage == DEALING:
        check_left(plan, graph, (*s.dealt,))
        return ask_to_cover(plan, s, graph)
    check_left(plan, graph, s.members)
    if s.stage == COVERING:
        if not is_in_one_piece(graph, s.members):
            raise NotOpenedError(SPLIT)
        question = Survivors(s.ticket, to_bits(s.names, s.members))
        return replace(s, stage=CONFIRMING), [Send(s.members, question, all=True)]
    if not s.confirmed:
        raise NotOpenedError(UNSHARED)
    return replace(s, stage=REVEALING, confirmed={}), [
        Send(name, Agreement(s.ticket, to_bits(s.names, s.confirmed), said_to(s, graph, name)), all=True)
        for name in sorted(s.confirmed)
    ]


def check_left(plan: SecretPlan, graph: Any, left: Sequence[str]) -> None:
    """Raises NotOpenedError where fewer are left than a cohort, or than hold a device's secret."""
    if len(left) < plan.cohort:
        raise NotOpenedError(FEW)
    if min(1 + len({*graph[name]} & {*left}) for name in left) < threshold(len(graph)):
        raise NotOpenedError(SPLIT)


def ask_to_cover(plan: SecretPlan, s: AmongState, graph: Any) -> Step:
    kind = kind_in(plan, s)
    assert s.form is not None
    (steps, words), width = kind.lengths(s.form), kind.width(s.form, len(s.names))
    sealed = {name: pieces(octets, SEALED, graph[name]) for name, octets in s.dealt.items()}
    dealers, sends = to_bits(s.names, s.dealt), list[Send]()
    for name in sorted(s.dealt):
        mine = to_octets([sealed[peer][name] for peer in graph[name] if peer in sealed])
        sends.append(Send(name, PassedShares(s.ticket, width, dealers, mine), all=True))
    s = replace(s, dealt=dict.fromkeys(s.dealt, to_octets([])))  # who has dealt is all that is needed from here on
    zeros = np.zeros(steps, np.uint32), np.zeros(words, np.uint64)
    return replace(s, stage=COVERING, width=width, steps=zeros[0], words=zeros[1]), sends


def said_to(s: AmongState, graph: Any, name: str) -> Any:
    """What neighbours have confirmed to a device."""
    words = []
    for peer in graph[name]:
        if peer in s.confirmed:
            others = [other for other in graph[peer] if other in s.members]
            words.append(pieces(s.confirmed[peer], TAG, others)[name])
    return to_octets(words)
