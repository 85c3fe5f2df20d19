"""A hospital that leads the exchange in which its devices hide their answers and open the sum (among_device.py).

It passes on what devices say to each other, adds up what is masked, and takes masks off that follow from what enough
devices have revealed. In each of the five steps some may be missing: who has not offered, or has not dealt shares, is
left out; who has not sent its masked answer is left out too, and its neighbours tell its key; who is missing after that
is in the sum, and the others' shares are enough. Where too few are left, there is no sum, and the aggregator hears why.

The role inside keeps the books. It hears of answers when the sum is open, and then of all that are in it: it is given
blank ones, and its own sum of these is replaced by the one that was opened. Where none was, nobody has answered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from edge_sdk.algebra.secure_aggregation.neighbours import is_in_one_piece, neighbours, threshold
from edge_sdk.contract.environment.sharing import COMMITTED, SEALED, TAG
from edge_sdk.contract.method import ME, OUT, UP, NodeEnv, Role, Send, Step
from edge_sdk.contract.wrapping import passed_in, state_around
from edge_sdk.errors import PeerError, UsageError
from edge_sdk.methods.secret.among_devices.among_answers import disputes_in, offered, told
from edge_sdk.methods.secret.among_devices.among_blame import LieError, check_disputes, liars_in
from edge_sdk.methods.secret.among_devices.among_opening import NotOpenedError, holders, opened
from edge_sdk.methods.secret.among_devices.among_states import (
    CONFIRMING,
    COVERING,
    DEALING,
    IDLE,
    OFFERING,
    REVEALING,
    AmongState,
)
from edge_sdk.methods.secret.messages.among_messages import (
    FEW,
    REFUSED,
    SPLIT,
    UNSHARED,
    Agreement,
    KeysOffer,
    NoneOpened,
    NoSum,
    PassedShares,
    Survivors,
    Withdrawn,
    pieces,
    to_bits,
    to_octets,
)
from edge_sdk.methods.secret.messages.forms import SumKind
from edge_sdk.methods.secret.messages.messages import NumberedQuestion
from edge_sdk.methods.secret.messages.plan import SecretPlan, asks_children, says_nothing
from edge_sdk.methods.shared.aggregation.guard import Refused


def around(inner: Role, plan: SecretPlan) -> Role:
    """The hospital's role around the method's."""
    led = AmongHospital(inner, plan)
    return Role(led.start, led.receive, led.close, led.state, led.refuse, passed_in(inner.renew))


@dataclass(frozen=True)
class AmongHospital:
    """The functions of a hospital's role around the method's.

    Attributes:
        inner: the method's role, which keeps the books.
        plan: what is summed, and of how many devices at least.
    """

    inner: Role
    plan: SecretPlan

    @property
    def state(self) -> type[AmongState]:
        return state_around(AmongState, self.inner.state)

    def start(self, env: NodeEnv) -> Step:
        if env.reader is None:
            raise UsageError("devices open the sums of this run among themselves, and this hospital was given nothing "
                             "to read them with")  # fmt: skip
        state, sends = self.inner.start(env)
        return self.sent(env, self.state(state), sends)

    def receive(self, env: NodeEnv, s: AmongState, sender: str, m: Any) -> Step:
        if sender in (UP, ME):
            return self.hand_on(env, self.state(s.inner) if sender == UP else s, sender, m)
        if s.stage > OFFERING or isinstance(m, KeysOffer):
            return self.hear(env, s, sender, m)
        if not says_nothing(m) or isinstance(m, Withdrawn):
            raise PeerError(f"{sender} sent {type(m).__name__}, and answers of this run are offered first")
        if sender in s.offers:
            raise PeerError(f"{sender} sent {type(m).__name__}, and has offered an answer before")
        return self.hand_on(env, s, sender, m)

    def hear(self, env: NodeEnv, s: AmongState, sender: str, m: Any) -> Step:
        """The step after a device's part in the exchange; who lies is refused."""
        try:
            if isinstance(m, KeysOffer) and s.stage <= OFFERING:
                return offered(env, self.plan, s, sender, m), []
            return s if isinstance(m, Withdrawn) else told(s, sender, m), disputes_in(s, sender, m)
        except LieError as lie:
            return self.refuse(env, s, sender, str(lie))

    def hand_on(self, env: NodeEnv, s: AmongState, sender: str, m: Any) -> Step:
        """The step after a message for the role inside."""
        state, sends = self.inner.receive(env, s.inner, sender, m)
        return self.sent(env, replace(s, inner=state), sends)

    def close(self, env: NodeEnv, s: AmongState) -> Step:
        if s.stage == IDLE or (s.stage == OFFERING and not s.offers):
            state, sends = self.inner.close(env, s.inner)
            return self.sent(env, self.state(state), sends)
        s, said = self.blame(env, s, liars_in(s) if s.stage == COVERING else {})
        try:
            s, sends = led_on(env, self.plan, s) if s.stage < REVEALING else self.finish(env, s)
        except NotOpenedError as why:
            s, more = self.blame(env, s, why.liars)
            s, sends = self.void(env, s, str(why))
            sends = [*more, *sends]
        return s, [*said, *sends]

    def blame(self, env: NodeEnv, s: AmongState, liars: Mapping[str, str]) -> tuple[AmongState, list[Send]]:
        """The state after devices were refused for what they have done: device -> why."""
        said = list[Send]()
        for name, why in liars.items():
            s, more = self.refuse(env, s, name, why)
            said += more
        return s, said

    def finish(self, env: NodeEnv, s: AmongState) -> Step:
        """The step after the last answers of an exchange: the role inside closes its round, with the sum in place of
        its own. Raises NotOpenedError where there is no sum."""
        kind, message = kind_in(self.plan, s), self.opened_sum(env, s)
        state, passed = self.tell_members(env, s, kind)
        state, sends = self.inner.close(env, state)
        is_sum = [send.to == UP and self.plan.kinds.get(type(send.message)) is kind for send in sends]
        others = [send for send, of_sum in zip(sends, is_sum, strict=True) if not of_sum]
        sums = [replace(send, message=message) for send, of_sum in zip(sends, is_sum, strict=True) if of_sum]
        s, before = self.sent(env, self.state(state), passed)
        s, after = self.sent(env, s, others)
        return s, [*before, *after, *sums]

    def opened_sum(self, env: NodeEnv, s: AmongState) -> Any:
        """The sum of the members' answers, checked. Raises NotOpenedError where it cannot be opened or is none."""
        assert s.form is not None
        flat = opened(env, s)
        try:
            message = kind_in(self.plan, s).restore(s.form, len(s.members), flat, self.plan.cohort)
            message.check(env.layout)
        except (PeerError, ValueError):
            raise NotOpenedError(REFUSED) from None
        return message

    def tell_members(self, env: NodeEnv, s: AmongState, kind: SumKind) -> tuple[Any, list[Send]]:
        """The inner state after it was told of all whose answers are in the sum, by blank ones, and what it sent. It is
        not told of who has lied, as that would be forgiven. Raises NotOpenedError where it does not count one of them:
        the sum has that answer in it."""
        assert s.form is not None
        state, passed = s.inner, list[Send]()
        for name in sorted({*s.members} - {*s.refused}):
            state, sends = self.inner.receive(env, state, name, kind.blank(s.form))
            passed += sends
        if any(isinstance(send.message, Refused) for send in passed):
            raise NotOpenedError(REFUSED)
        return state, passed

    def void(self, env: NodeEnv, s: AmongState, why: str) -> Step:
        """The step after the role inside was told that nobody has answered."""
        state, sends = self.inner.close(env, s.inner)
        count = len(s.offers)
        found = [replace(send, message=NoSum(send.message, count, why)) if send.to == UP else send for send in sends]
        s, found = self.sent(env, self.state(state), found)
        return s, [*found, Send(OUT, NoneOpened(env.me, count, why))]

    def sent(self, env: NodeEnv, s: AmongState, sends: Sequence[Send]) -> tuple[AmongState, list[Send]]:
        """The sends of the role inside: questions with a number, and what is the sum of no answers as no sum."""
        found = list[Send]()
        for send in sends:
            m = send.message
            if send.to == UP and not says_nothing(m) and not isinstance(m, NoSum):
                if self.plan.kinds.get(type(m)) is None:
                    raise ValueError(f"{type(m).__name__} would leave this hospital, and no devices have opened it")
                send = replace(send, message=NoSum(m, 0, FEW))
            elif asks_children(send, OUT, ME, UP):
                s = replace(self.state(s.inner), stage=OFFERING, ticket=env.asked + 1)
                send = replace(send, message=NumberedQuestion(s.ticket, max(1, len(env.sizes)), m))
            found.append(send)
        return s, found

    def refuse(self, env: NodeEnv, s: AmongState, sender: str, why: str) -> Step:
        assert self.inner.refuse is not None
        state, sends = self.inner.refuse(env, s.inner, sender, why)
        refused = s.refused if s.stage == IDLE else tuple(sorted({*s.refused, sender}))
        return replace(s, inner=state, refused=refused), list(sends)


def kind_in(plan: SecretPlan, s: AmongState) -> SumKind:
    kind = None if s.form is None else plan.kind_of(s.form)
    assert kind is not None  # looked at in each offer
    return kind


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
        check_disputes(s, graph)
        if not is_in_one_piece(graph, s.members):
            raise NotOpenedError(SPLIT)
        question = Survivors(s.ticket, to_bits(s.names, s.members))
        return replace(s, stage=CONFIRMING), [Send(s.members, question, all=True)]
    if not s.confirmed:
        raise NotOpenedError(UNSHARED)
    asked = dict.fromkeys(s.confirmed, to_octets([]))  # their words have gone on
    return replace(s, stage=REVEALING, confirmed=asked), [
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
    committed = {name: pieces(octets, COMMITTED, holders(graph, name)) for name, octets in s.committed.items()}
    dealers, sends = to_bits(s.names, s.dealt), list[Send]()
    for name in sorted(s.dealt):
        mine, said = (to_octets([of[p][name] for p in graph[name] if p in sealed]) for of in (sealed, committed))
        sends.append(Send(name, PassedShares(s.ticket, width, dealers, mine, said), all=True))
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
