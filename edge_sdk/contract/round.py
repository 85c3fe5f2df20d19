"""Who owes this node an answer. Sans-I/O: no clock of its own, no network.

One rule: a question creates a debt, an answer with the number of that question pays it. Everything else follows:

    duplicate           the debt is paid already           refused
    stale               the debt carries a newer number    refused
    stranger            there is no debt                   refused
    late, barrier       closing erases all debts           refused
    late, first-B       those not asked again keep theirs  counts next time

Numbers belong to the asking node. A node between two others has two independent ones: those of its parent, which it
echoes, and its own. Nested intervals need nothing more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from math import inf
from typing import Any, ClassVar

from edge_sdk.contract.children.patience import Times, measured_deadline, note_time, usual_time
from edge_sdk.contract.records import changed
from edge_sdk.contract.versions import copied, with_name, without
from edge_sdk.errors import UsageError


@dataclass(frozen=True)
class Policy:
    """When a round of one node is over.

    Attributes:
        need: answers that end it at once; None: one from everybody who was asked.
        quorum: answers without which the deadline is extended and the question repeated; where fewer are asked, all.
        deadline: seconds from question to close; inf: everybody who was asked is waited for.
        keep_late: debts survive the next question (first-B); otherwise a late answer is refused.
        idle: seconds after which a node that asked nobody is closed all the same: its own clock tick.
        measured: the deadline follows the times that rounds take (see patience.py); `deadline` holds until then.
        least: seconds that a measured deadline has at least.
    """

    encode_once: ClassVar[bool] = True  # as of Round

    need: int | None = None
    quorum: int = 0
    deadline: float = inf
    keep_late: bool = False
    idle: float = inf
    measured: bool = False
    least: float = 60.0

    def __post_init__(self) -> None:
        if self.need is not None and self.need < 1:
            raise UsageError(f"policy: need = {self.need}, at least 1 answer ends a round (leave it out for all)")
        if self.quorum < 0:
            raise UsageError(f"policy: quorum = {self.quorum}, it counts answers: 0 or more")
        for name in ("deadline", "idle", "least"):
            if not getattr(self, name) > 0:
                raise UsageError(f"policy: {name} = {getattr(self, name)}, it is in seconds and above 0")


def barriers(
    settings: Any, sizes: Mapping[str, int], deadline: float, hospital_deadline: float, evaluate_every: int = 0
) -> Mapping[str, Policy]:
    """Tier -> when its rounds are over, for a method that waits for everybody it has asked.

    Args:
        sizes: at the aggregator: hospital -> number of its devices; elsewhere one entry, the devices from here on down.
        deadline: seconds after which the aggregator goes on with the hospitals that have answered (at least one).
        hospital_deadline: seconds after which a hospital goes on with the devices that have answered (perhaps none).
        evaluate_every: rounds between evaluations on all devices; 0: only at the end.

    Raises:
        UsageError: these do not go together.
    """
    return {
        "aggregator": Policy(quorum=1, deadline=deadline),
        "hospital": Policy(deadline=hospital_deadline),
        "device": Policy(),
    }


@dataclass(frozen=True)
class Round:
    """The debts of one node's children.

    Attributes:
        number: of this node's latest question.
        owed: child -> number of the question it owes an answer to.
        all: who has been asked is waited for, all of them, whatever `need` is.
        heard: children whose answers counted since the last close.
        open: answers are being waited for.
        deadline: when to close (or repeat the question), in the caller's clock.
        closes: how often it has closed.
        kind: of the latest question.
        asked_at: when that was asked, in the caller's clock; inf: by another process, so nobody knows.
        slowest: seconds that the slowest of the answers has taken.
        times: what was measured in earlier rounds.
    """

    encode_once: ClassVar[bool] = True  # the codec keeps the bytes of the latest (see wire/codec/composites.py)

    policy: Policy
    number: int = 0
    owed: Mapping[str, int] = field(default_factory=dict)
    heard: Set[str] = frozenset()
    open: bool = False
    deadline: float = inf
    closes: int = 0
    all: bool = False
    kind: str = ""
    asked_at: float = inf
    slowest: float = 0.0
    times: Times = field(default_factory=dict)


def begin(policy: Policy, now: float) -> Round:
    """Before the first question."""
    return Round(policy, deadline=now + policy.idle)


LEAP = 2**32
"""More questions than a node asks in its life. A node that begins anew, or goes on from a backup, numbers its questions
from another multiple of this on, so that no answer to a question of its earlier life fits one of the present."""


def count_questions(r: Round) -> int:
    """Number of the latest question as people count them, in this life of the node."""
    return r.number % LEAP


def life_of(number: int) -> int:
    """Which life of the node asked the question of this number; another than before: it has gone on from a backup."""
    return number // LEAP


def patience(r: Round) -> float:
    """Seconds from the latest question to the close of its round."""
    if not r.policy.measured:
        return r.policy.deadline
    return measured_deadline(r.times, r.kind, r.policy.least, r.policy.deadline)


def quorum(r: Round) -> int:
    """Answers without which the round goes on: at most as many as were asked for. Where it is not known yet what
    a round takes, one answer is waited for, or a run with long rounds would have rounds of nobody."""
    asked, wanted = len(r.heard) + len(r.owed), r.policy.quorum
    if r.policy.measured and usual_time(r.times, r.kind) is None:
        wanted = max(wanted, min(asked, 1))
    return min(wanted, max(asked, 1))


def ask(r: Round, children: Iterable[str], waits: bool, now: float, all: bool = False, kind: str = "") -> Round:
    """The next question. `children` owe an answer to it; `waits`: an answer was asked for, if only of nobody.

    Args:
        all: it is over when all of them have answered. Older debts are forgotten, even where late answers count.
        kind: of question; rounds of one kind take about the same time.
    """
    number, late = r.number + 1, r.policy.keep_late and not all
    owed = (copied(r.owed) if late else {}) | {c: number for c in children}
    wait = waits or bool(owed)
    heard = r.heard if late else frozenset()
    r = changed(r, number=number, owed=owed, heard=heard, open=wait, all=all, kind=kind, asked_at=now, slowest=0.0)
    return limited(r, now, now + (patience(r) if wait else r.policy.idle))


def hear(r: Round, child: str, number: int, now: float = -inf) -> tuple[Round, str | None]:
    """The round after an answer and, if the answer does not count, the reason why."""
    if child not in r.owed:
        return r, f"{child} owes nothing"
    if number != r.owed[child]:
        return r, f"{child} answers question {number}, owed is {r.owed[child]}"
    owed = without(r.owed, child)
    slowest = max(r.slowest, now - r.asked_at) if number == r.number else r.slowest
    return changed(r, owed=owed, heard=with_name(r.heard, child), slowest=slowest), None


EMPTY = 60.0
"""Seconds after which a round ends in which too few answers counted and nobody is left who owes one. Without that a run
without deadlines would stand still for good, also after what was wrong with the answers has been put right."""


def excuse(r: Round, child: str, number: int, now: float = inf) -> Round:
    """The round without this debt: the answer has come, and cannot be counted."""
    if r.owed.get(child) != number:
        return r
    owed = without(r.owed, child)
    return limited(changed(r, owed=owed), now, r.deadline)


def limited(r: Round, now: float, deadline: float) -> Round:
    """The round with a deadline, which is near if nobody is left who could answer."""
    empty = r.open and not r.owed and len(r.heard) < quorum(r)
    return changed(r, deadline=min(deadline, now + EMPTY) if empty else deadline)


def is_over(r: Round, now: float) -> bool:
    """All answers are in, or the first `need`, or the time is up with a quorum (or with nobody left to wait for)."""
    if not r.open:
        return now >= r.deadline
    if r.policy.need is not None and not r.all and len(r.heard) >= r.policy.need:
        return True
    enough = len(r.heard) >= quorum(r)
    return (enough and not r.owed) or (now >= r.deadline and (enough or not r.owed))


def may_close(r: Round) -> bool:
    """True if the next answer may end the round."""
    return len(r.owed) <= 1 or r.policy.need is not None


def next_look(r: Round) -> float:
    """The time from which `is_over` or `is_stuck` is true, if nothing else happens."""
    return -inf if is_over(r, -inf) else r.deadline


def is_stuck(r: Round, now: float) -> bool:
    """The time is up without a quorum, and somebody still owes an answer."""
    return r.open and now >= r.deadline and not is_over(r, now)


def close(r: Round, now: float) -> Round:
    owed = r.owed if r.policy.keep_late else {}
    times, deadline = note_time(r.times, r.kind, r.slowest), now + r.policy.idle
    return changed(
        r, owed=owed, heard=frozenset(), open=False, closes=r.closes + 1, deadline=deadline, slowest=0.0, times=times
    )


def resume(r: Round, policy: Policy, now: float) -> Round:
    """The round in a new process, with the policy as the settings say it now.

    Clocks of two processes have nothing to do with each other, and the wall clock may have been set meanwhile. So the
    time is counted anew: those who are asked have as long as if the question had been asked at this moment.
    """
    r = changed(r, policy=policy, asked_at=inf, slowest=0.0)
    return limited(r, now, now + (patience(r) if r.open else policy.idle))


def with_policy(r: Round, policy: Policy, now: float) -> Round:
    """The round with another policy, from its question on."""
    r = changed(r, policy=policy)
    return limited(r, now, (r.asked_at if r.asked_at < inf else now) + patience(r)) if r.open else r


def extend(r: Round, now: float) -> Round:
    """The question stands for another deadline."""
    return changed(r, deadline=now + patience(r))
