"""Vectors that a device and the aggregator hold two ends of, kept consistent under absences and lost disks.

SCAFFOLD's control variates and FedDyn's gradients work alike: each device holds a vector c_i, the aggregator holds
their mean over all devices and moves it with each upload. It stays their mean only if c_i moves exactly when the
device's upload was counted. A device cannot know that when it sends: its answer may come too late, or its hospital's
sum may. So

    a device keeps c_i twice: as it was, and as it is if its last upload was counted (`tried`);
    each question says, for each receiver, the round of its last upload that was counted;
    a device that is told of its last upload goes on with `tried`, and one that is told of the upload before with c_i.

A hospital asks all that it has drawn with one message, so these read each other's names and rounds.
A node whose disk was lost remembers another round than it is told, and says `Unremembered`. Nobody knows its c_i any
more, so the mean cannot be mended: the aggregator drops this round and begins a new era, in which every c_i is zero
again, as in the first round, while the model stays. FedSLR does the same for its gamma, with roles of its own.
A hospital that is put back from a backup of the round's middle has heard fewer devices than its sum had. It would tell
the others that they were not counted, so it says `Unremembered` too: its questions have other numbers since.
A device that comes during a run has c_i = 0: the mean is over one more, so it shrinks. One that leaves for good takes
its c_i with it, which nobody else knows: its hospital says `Unremembered`, as of a lost disk, if it was ever counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from edge_sdk.algebra.vectors import Layout, Vector
from edge_sdk.contract.method import UP, NodeEnv, Role, Send, Step, ask_nobody, unchanged
from edge_sdk.contract.round import life_of
from edge_sdk.errors import UsageError
from edge_sdk.methods.shared.aggregation import draw, gather, uploads
from edge_sdk.methods.shared.aggregation.gather import Nobody, Tally
from edge_sdk.methods.shared.aggregation.uploads import VectorSum
from edge_sdk.methods.shared.evaluation.reports import progress
from edge_sdk.methods.shared.membership.changing import departed

Size = Callable[[NodeEnv], int]
"""How many numbers an upload has."""
Gathered = Callable[[NodeEnv, Tally | None, str, object, int], Tally | None]
Answer = Callable[[Tally | None, npt.NDArray[np.floating]], Any]
Train = Callable[[Any, Any, Vector], tuple[Vector, VectorSum]]
"""(env, question, c_i) -> c_i if the upload is counted, and the upload."""
ServerStep = Callable[[Any, Any, VectorSum], tuple[Vector, Vector]]


# Messages -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class CountedQuestion:
    """Down: a round. A method's own question adds the model to it.

    Attributes:
        round: t, global.
        pick: how many devices of the receiving hospital take part.
        counted: receiver -> the last round of this era in which its upload was counted.
        era: how often all vectors have begun at zero again.
    """

    round: int
    pick: int
    counted: Mapping[str, int]
    era: int

    def check(self, layout: Layout) -> None:
        if min(self.round, self.pick, self.era) < 0:
            raise ValueError(f"round {self.round}, {self.pick} devices, era {self.era}: all are 0 or more")


@dataclass(frozen=True)
class Unremembered:
    """Up, in place of an upload: what this node remembers is not what the aggregator's mean was made of."""

    voids_round: ClassVar[bool] = True


# What was counted -----------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Account:
    """What a node remembers of its uploads in an era.

    Attributes:
        era: which.
        round: of its last upload, or -1.
        counted: the round of the last one of which it knows that it was counted, or -1.
    """

    era: int = 0
    round: int = -1
    counted: int = -1


class Counting(Protocol):
    """What every question says of uploads; see `CountedQuestion`."""

    @property
    def counted(self) -> Mapping[str, int]: ...
    @property
    def era(self) -> int: ...


Kept = TypeVar("Kept", bound=Account)


def recalled(account: Kept, me: str, question: Counting) -> Kept | None:
    """What this node knows now that it was told what was counted; None: it remembers something else than it is told."""
    account = account if account.era == question.era else type(account)(question.era)
    told = question.counted.get(me, -1)
    return replace(account, counted=told) if told in (account.round, account.counted) else None


def own_vector(before: Account, account: Account, kept: Vector, tried: Vector) -> Vector:
    """c_i as the aggregator's mean has it.

    Args:
        before: what the device remembered of its uploads when it was asked.
        account: what it knows since, as of `recalled`.
        kept: c_i if its last upload was not counted.
        tried: c_i if it was.
    """
    if account.era != before.era:
        return np.zeros_like(kept)
    return tried if account.counted == account.round else kept


# Device ---------------------------------------------------------------------------------------------------------
def device(question: type[CountedQuestion], state: type[Any], kept: str, train: Train) -> Role:
    """The device of a method with such vectors.

    Args:
        state: made of c_i if its last upload was not counted, c_i if it was ("tried"), and an `Account`, "account".
        kept: what the state calls the first of these.
        train: what it does in a round; at least one sample is there.
    """

    def start(env: NodeEnv) -> Step:
        zero = np.zeros_like(env.theta0)
        return state(zero, zero), []

    def receive(env: NodeEnv, s: Any, sender: str, message: object) -> Step:
        m = gather.expected(sender, message, question)
        account = recalled(s.account, env.me, m)
        if account is None:
            return s, [Send(UP, Unremembered())]
        own = own_vector(s.account, account, getattr(s, kept), s.tried)
        if env.samples == 0:
            return state(own, own, account), [Send(UP, Nobody())]
        tried, upload = train(env, m, own)
        return state(own, tried, replace(account, round=m.round)), [Send(UP, upload)]

    return Role(start, receive, unchanged, state)


def shortened(kept: str) -> Callable[[NodeEnv, Any, Any, Any, float], Any]:
    """A `Method.shortened`: where only a share of an upload has left, c_i moves as the aggregator's mean does.

    Args:
        kept: as of `device`.
    """

    def shorten(env: NodeEnv, before: Any, after: Any, m: Any, share: float) -> Any:
        account = recalled(before.account, env.me, m)
        if account is None:
            return after
        own = own_vector(before.account, account, getattr(before, kept), before.tried)
        tried = own + share * (after.tried - own) if share else own
        return replace(after, **{kept: own, "tried": tried, "account": replace(account, round=m.round)})

    return shorten


# Hospital -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class MirrorHospital:
    """What a hospital remembers.

    Attributes:
        account: the round of the latest question, and what became of the sums.
        tally: the uploads of that round.
        counted: device -> the last round of this era in which its upload was counted.
        forgotten: a node has lost its memory, this one or a device.
        life: in which it was asked last in this era; -1: not yet, or that was not noted.
    """

    account: Account = field(default_factory=Account)
    tally: Tally | None = None
    counted: Mapping[str, int] = field(default_factory=dict)
    forgotten: bool = False
    life: int = -1


def hospital(
    question: type[CountedQuestion],
    size: Size,
    gathered: Gathered = uploads.gathered,
    answer: Answer = uploads.answer,
) -> Role:
    """The hospital of a method with such vectors.

    Args:
        size: how many numbers an upload has.
        gathered, answer: how uploads are added up, and what is made of their tally.
    """

    def start(env: NodeEnv) -> Step:
        return MirrorHospital(), []

    def receive(env: NodeEnv, s: MirrorHospital, sender: str, message: object) -> Step:
        if sender == UP:
            return pass_on(env, s, gather.expected(sender, message, question))
        if isinstance(message, Unremembered):
            return replace(s, forgotten=True), []
        return replace(s, tally=gathered(env, s.tally, sender, message, size(env))), []

    def close(env: NodeEnv, s: MirrorHospital) -> Step:
        return s, [Send(UP, Unremembered() if s.forgotten else answer(s.tally, env.theta0))]

    return Role(start, receive, close, MirrorHospital)


def pass_on(env: NodeEnv, s: MirrorHospital, m: Any) -> Step:
    """Passes a question on to devices that are drawn; to nobody, where this hospital cannot say what was counted.

    Args:
        s: its state, or that of a method with more in it. m: says what a `CountedQuestion` does.
    """
    account = recalled(s.account, env.me, m)
    if account is None or was_put_back(env, s.life, in_same_era=account.era == s.account.era):
        return replace(s, tally=None, forgotten=True), [ask_nobody(m)]
    counted = confirmed(s, account)
    if departed(env, counted):
        return replace(s, tally=None, counted=counted, forgotten=True), [ask_nobody(m)]
    chosen = draw.chosen(env, m.round, m.pick)
    question = replace(m, counted={d: counted[d] for d in chosen if d in counted})
    account, life = replace(account, round=m.round), life_of(env.asked)
    s = replace(s, account=account, tally=None, counted=counted, forgotten=False, life=life)
    return s, [Send(chosen, question)]


def was_put_back(env: NodeEnv, life: int, in_same_era: bool) -> bool:
    """True for a node that has lost a part of what it knew in this era, in which it was asked last in this life."""
    return in_same_era and life not in (-1, life_of(env.asked))


def confirmed(s: MirrorHospital, account: Account) -> Mapping[str, int]:
    """Device -> round, as it is now: a device's upload was counted only if its hospital's sum was."""
    if account.era != s.account.era:
        return {}
    heard = s.tally.heard if s.tally is not None and account.counted == s.account.round else ()
    return {**s.counted, **dict.fromkeys(heard, s.account.round)}


# Aggregator -----------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Ledger:
    """What the aggregator remembers of uploads.

    Attributes:
        counted: hospital -> the last round of this era in which its sum was counted.
        era: how often all vectors have begun at zero again.
        forgotten: in this round a node has said that it lost its memory.
        tally: the uploads of this round.
        devices: over which the mean was, when it was moved last; 0: it is zero, or that was not noted.
    """

    counted: Mapping[str, int] = field(default_factory=dict)
    era: int = 0
    forgotten: bool = False
    tally: Tally | None = None
    devices: int = 0

    def told(self, hospital: str) -> dict[str, int]:
        """What a question to this hospital says of its sums."""
        return {h: r for h, r in self.counted.items() if h == hospital}

    def closed(self, round: int, devices: int) -> Ledger:
        """The ledger after a round that was counted, with so many devices in the fleet."""
        heard = () if self.tally is None else self.tally.heard
        return Ledger({**self.counted, **dict.fromkeys(heard, round)}, self.era, devices=devices)

    def next_era(self) -> Ledger:
        return Ledger(era=self.era + 1)


def noted(env: NodeEnv, ledger: Ledger, sender: str, message: object, size: int) -> Ledger:
    """The ledger after a hospital's answer.

    Raises:
        PeerError: as of `uploads.gathered`.
    """
    if isinstance(message, Unremembered):
        return replace(ledger, forgotten=True)
    return replace(ledger, tally=uploads.gathered(env, ledger.tally, sender, message, size))


def aggregator(
    state: type[Any], question: Callable[[Any, str, int], Any], step: ServerStep, size: Size, show: Any
) -> Role:
    """The aggregator of a method with such vectors: rounds of questions, uploads noted in `ledger`, a step of its own.

    A round that begins an era moves nothing but zeroes the mean, and one in which nobody answers leaves all as it is.

    Args:
        state: made of the model, "model", the mean, "round" and "ledger".
        question: (state, hospital, how many devices) -> what the hospital is asked.
        step: (env, state, sums of the uploads) -> model and mean after a round.
        size: how many numbers an upload has.
        show: as of `Method`; sent to nobody where nobody is drawn, so that the round has a question.
    """

    def start(env: Any) -> Step:
        if env.devices < 1:
            raise UsageError("the aggregator knows of no device: sizes names each hospital with its number of devices")
        s = state(env.theta0, np.zeros_like(env.theta0))
        return s, questions(env, s)

    def questions(env: Any, s: Any) -> list[Send]:
        quotas = draw.quotas(env, s.round, env.settings.participation, env.settings.selection)
        return [Send(h, question(s, h, k)) for h, k in quotas.items()] or [ask_nobody(show(env, s))]

    def receive(env: Any, s: Any, sender: str, message: object) -> Step:
        return replace(s, ledger=noted(env, s.ledger, sender, message, size(env))), []

    def close(env: Any, s: Any) -> Step:
        done = progress(s.round + 1, s.ledger.tally)
        heard = () if s.ledger.tally is None else s.ledger.tally.heard
        if departed(env, {*s.ledger.counted, *heard}):  # a hospital has left with all its devices
            s = replace(s, ledger=replace(s.ledger, forgotten=True))
        s = moved(env, s)
        return s, [done] if s.round >= env.rounds else [done, *questions(env, s)]

    def moved(env: Any, s: Any) -> Any:
        if s.ledger.forgotten:
            return state(s.model, np.zeros_like(env.theta0), s.round + 1, s.ledger.next_era())
        if s.ledger.tally is None:
            return replace(s, round=s.round + 1)
        model, mean = step(env, s, uploads.total(s.ledger.tally, env.theta0))
        return state(model, mean, s.round + 1, s.ledger.closed(s.round, env.devices))

    return Role(start, receive, close, state)
