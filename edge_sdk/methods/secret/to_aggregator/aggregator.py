"""An aggregator that gives each question a number, and opens one sum of each hospital's answers to it.

A mask must not be taken off two different sums: their difference would be the answer of those by whom they differ. So
a sum is opened only if it answers the question that is on, if none of that hospital was opened before, and if no device
in it was in another one. What was opened is saved with the state that the sum has changed, in one transaction. A
question's number is one that no question of this aggregator ever had, also after its disk was lost or a backup put
back; what it had asked before that is opened no more, because nobody remembers whether it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from edge_sdk.contract.method import ME, OUT, UP, NodeEnv, Role, Send, Step
from edge_sdk.contract.wrapping import passed_in, state_around
from edge_sdk.errors import PeerError, UsageError
from edge_sdk.methods.secret.messages.masking import take_off
from edge_sdk.methods.secret.messages.messages import MOST_TERMS, MaskedSum, NumberedQuestion, TooFew
from edge_sdk.methods.secret.messages.plan import SecretPlan, asks_children, says_nothing
from edge_sdk.methods.secret.messages.states import SecretState

Opening = tuple[SecretState, Any]
"""The state after a sum was opened, and the sum as the role inside takes it."""


@dataclass(frozen=True)
class NotSummed:
    """Event of the aggregator: a hospital has made no sum, or none that may be opened.

    Attributes:
        sender: the hospital.
        devices: how many have answered there.
        cohort: of how many a sum is made at least.
    """

    sender: str
    devices: int
    cohort: int

    def to_metrics(self) -> dict[str, Any]:
        return {"kind": "not summed", **asdict(self)}

    def to_sentence(self) -> str:
        return f"{self.sender}: {self.devices} devices have answered, and a sum is made of {self.cohort} at least"


def around(inner: Role, plan: SecretPlan) -> Role:
    kind_of_state = state_around(SecretState, inner.state)

    def start(env: NodeEnv) -> Step:
        if env.masks is None:
            raise UsageError("this run's uploads are secret, and the aggregator has no keys to open their sums with")
        state, sends = inner.start(env)
        return asked(env, kind_of_state(state), sends)

    def asked(env: NodeEnv, s: SecretState, sends: Sequence[Send]) -> tuple[SecretState, list[Send]]:
        return numbered(env, s, sends, plan.hospitals > 0)

    def receive(env: NodeEnv, s: SecretState, sender: str, m: Any) -> Step:
        told = list[Send]()
        try:
            if isinstance(m, TooFew):
                m, told = nothing(plan, m), [Send(OUT, NotSummed(sender, m.devices, plan.cohort))]
            elif isinstance(m, MaskedSum):
                s, m = opened(env, plan, s, sender, m)
            elif sender != ME and not says_nothing(m):
                raise PeerError(f"{sender} sent {type(m).__name__}, and sums of this run are masked")
        except PeerError as error:
            return refuse(env, s, sender, str(error))
        state, sends = inner.receive(env, s.inner, sender, m)
        s, sends = asked(env, replace(s, inner=state), sends)
        return s, [*told, *sends]

    def close(env: NodeEnv, s: SecretState) -> Step:
        state, sends = inner.close(env, s.inner)
        return asked(env, replace(s, inner=state), sends)

    def refuse(env: NodeEnv, s: SecretState, sender: str, why: str) -> Step:
        assert inner.refuse is not None
        state, sends = inner.refuse(env, s.inner, sender, why)
        return asked(env, replace(s, inner=state), sends)

    return Role(start, receive, close, kind_of_state, refuse, passed_in(inner.renew))


def numbered(
    env: NodeEnv, s: SecretState, sends: Sequence[Send], pools: bool = False
) -> tuple[SecretState, list[Send]]:
    """The state and the sends, with the number that the node gives to the question that is among them.

    Args:
        pools: sums are of devices of all hospitals.
    """
    if not any(asks_children(send, UP, OUT, ME) for send in sends):
        return s, list(sends)
    s = replace(s, ticket=env.asked + 1, terms=most_terms(env, pools), opened={})
    wrapped = [
        replace(send, message=NumberedQuestion(s.ticket, s.terms, send.message))
        if asks_children(send, UP, OUT, ME)
        else send
        for send in sends
    ]
    return s, wrapped


def most_terms(env: NodeEnv, pools: bool) -> int:
    """Devices of the largest hospital, or of all. Raises UsageError if they are more than one sum can have."""
    most = env.devices if pools else max(env.sizes.values(), default=1)
    if most >= MOST_TERMS:
        whose = "hospitals" if pools else "a hospital"
        raise UsageError(f"{whose} with {most} devices: a secret sum is of less than {MOST_TERMS}")
    return max(1, most)


def nothing(plan: SecretPlan, m: TooFew) -> Any:
    """What the role inside is given where there is no sum. Raises PeerError for one of a kind that there is not."""
    if (kind := plan.kind_of(m.form)) is None:
        raise PeerError(f"no sum of {m.form.kind}, which this run does not add up")
    return kind.nothing(m.form)


def opened(env: NodeEnv, plan: SecretPlan, s: SecretState, sender: str, m: MaskedSum) -> Opening:
    """Take the masks off a sum, once.

    Raises:
        PeerError: a rule forbids it, or the masks do not open it.
    """
    kind = plan.kind_of(m.form)
    if kind is None:
        raise PeerError(f"{sender} sent a sum of {m.form.kind}, which this run does not add up")
    check_opening(env, plan, s, sender, m)
    if m.width != kind.width(m.form, s.terms) or m.words.size != kind.lengths(m.form)[1]:
        raise PeerError(f"{sender} sent a sum in a ring of {m.width} bits and {m.words.size} words, not asked for")
    flat = take_off(env, kind, m)
    s = replace(s, opened={**s.opened, sender: m.names})
    message = kind.restore(m.form, len(m.names), flat, plan.cohort)
    try:
        message.check(env.layout)
    except ValueError as error:
        raise PeerError(f"{sender}: the sum of {len(m.names)} answers cannot be: {error}") from None
    return s, message


def check_opening(env: NodeEnv, plan: SecretPlan, s: SecretState, sender: str, m: MaskedSum) -> None:
    """Raises PeerError for a sum that must not be opened, whatever is in it."""
    if m.ticket != s.ticket or s.ticket != env.asked:
        raise PeerError(f"{sender} sent a sum of question {m.ticket}, and {env.asked} is open")
    if len(m.names) < plan.cohort:
        raise PeerError(f"{sender} sent a sum of {len(m.names)} devices, and none is opened of less than {plan.cohort}")
    if len(m.names) > env.sizes.get(sender, 0):
        raise PeerError(f"{sender} sent a sum of {len(m.names)} devices, it has {env.sizes.get(sender, 0)}")
    if sender in s.opened:
        differ = sorted({*m.names} ^ {*s.opened[sender]})
        raise PeerError(f"{sender}: a sum of this question was opened already; they differ by {', '.join(differ) or 0}")
    for other, names in s.opened.items():
        if twice := sorted({*m.names} & {*names}):
            raise PeerError(f"{sender} sent a sum with {twice[0]}, who is in that of {other}")
