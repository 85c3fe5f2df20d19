"""Bounds on what one child may contribute, taken from what the others contribute.

An upload is judged by two numbers (`Measure`): its length per unit of weight, and its weight per device. Each is
compared with the median over this node's children of their latest such numbers, as these were when the round began. So
a bound does not depend on the order in which uploads arrive, and a repetition gives the same. A refused upload costs
that upload and nothing else: it is not added, its sender is not waited for, and the node's application is told who was
refused and why (`Refused`).

Refused uploads are remembered like others. If most children send larger numbers than before, because the step size has
grown or a new era has begun, then the median follows them: that costs a round on each tier, and nobody is refused for
ever. As long as fewer than half of the children are bad, it does not follow these. Where fewer than `ENOUGH` children
are known there is no majority: an upload is compared with the first model and with the largest that has come so far.

Votes are limited, too. An answer that `voids_round` makes a round count for nothing, and all nodes begin anew (FedSLR's
eras). A child that has voided a round is heard again with such an answer only after 2 rounds, then after 4, 8 and so
on; in between it is left out like a child that has not answered.

Source of the median: D. Yin et al., "Byzantine-Robust Distributed Learning", ICML 2018; of bounds that follow the norms
of earlier rounds: G. Andrew et al., "Differentially Private Learning with Adaptive Clipping", NeurIPS 2021.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf, nan, sqrt
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from edge_sdk.algebra.vectors import Vector, length, pieces
from edge_sdk.contract.method import NodeEnv
from edge_sdk.contract.records import changed
from edge_sdk.contract.versions import with_entry

ENOUGH = 3
"""Children of whom something must be known before their median is a bound."""
HEAVIER = 100.0
"""Times the median that a weight may be: devices have between ten and ten thousand samples."""
SHORTEST = 1e-3
"""Least median of lengths: where uploads begin at zero, the first that is not must not look too long."""
FIRST_LONGER, FIRST_WEIGHT = 2.0, 2.0**24
"""As long as there is no majority: the usual length, in lengths of the first model; the largest weight per device."""


class Measure(NamedTuple):
    """What is compared between uploads.

    Attributes:
        length: Euclidean norm per unit of weight.
        weight: per device.
        longer: times the median that the length may be. Models of one round hardly differ in length (1 % on recorded
            traces); updates, which grow with the number of a device's steps, differ more (2.4 times).
        kind: of upload, where a method has several; only uploads of one kind are compared.
        first: usual length as long as there is no majority; 0: as FIRST_LONGER says.
        least: length to which a median is raised.
    """

    length: float
    weight: float
    longer: float = 3.0
    kind: str = ""
    first: float = 0.0
    least: float = SHORTEST


@runtime_checkable
class Measurable(Protocol):
    """An upload that is added to others."""

    def measure(self) -> Measure | None:
        """What is compared; None: there is nothing in it that is added."""


MEASURABLE: dict[type, bool] = {}
"""Types of messages, and whether they are `Measurable`: to ask each message costs more than to measure it."""


def is_measurable(message: Any) -> bool:
    """True for an upload that is added to others."""
    kind = type(message)
    if kind not in MEASURABLE:
        MEASURABLE[kind] = isinstance(message, Measurable)
    return MEASURABLE[kind]


MEASURED = "_measured"
"""Attribute of a message, beside its fields, that keeps its measure: an answer passes several checks."""


def measure_of(message: Any) -> Measure | None:
    """What is compared of a message; None: there is nothing in it that is added."""
    kept = vars(message)
    if MEASURED not in kept:
        kept[MEASURED] = message.measure() if is_measurable(message) else None
    found: Measure | None = kept[MEASURED]
    return found


TINY = 1e-20
"""A squared length from which on squares that were too small for float32 do not count."""


def norm(x: Vector) -> float:
    """Euclidean norm of a vector (k,) to some six digits, which is enough for a bound.

    Squares are added up in the vector's own precision, which saves a copy in another; a piece at a time, as the sum of
    a long vector would depend on the number of threads. What is too large or too small for that is added up exactly.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        square = sum([float(np.dot(part, part)) for part in [x[piece] for piece in pieces(x.size)]])
        return sqrt(square) if TINY <= square < inf else length(x)


@dataclass(frozen=True)
class Refused:
    """To the application of a hospital or the aggregator: a child's answer was not counted, and why."""

    sender: str
    reason: str

    def to_metrics(self) -> dict[str, Any]:
        return {"kind": "refused", "sender": self.sender, "reason": self.reason}

    def to_sentence(self) -> str:
        return f"an answer of {self.sender} was not counted: {self.reason}"


@dataclass(frozen=True)
class Guard:
    """What a node has seen of its children.

    Attributes:
        lengths, weights: child -> measures of its latest upload, as they were when this round began.
        newest_lengths, newest_weights: the same, of this round's uploads.
        round: rounds that have begun here.
        votes: child -> how many rounds it has voided.
        silent_until: child -> the first round that it may void again.
        claims: device -> the samples that it has claimed first.
        refusals: child -> its uploads that were refused since one was counted.
        suspended: child -> how often it has been suspended.
    """

    lengths: Mapping[str, float] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)
    newest_lengths: Mapping[str, float] = field(default_factory=dict)
    newest_weights: Mapping[str, float] = field(default_factory=dict)
    round: int = 0
    votes: Mapping[str, int] = field(default_factory=dict)
    silent_until: Mapping[str, int] = field(default_factory=dict)
    claims: Mapping[str, float] = field(default_factory=dict)
    refusals: Mapping[str, int] = field(default_factory=dict)
    suspended: Mapping[str, int] = field(default_factory=dict)


def begin_round(guard: Guard) -> Guard:
    """The guard when a question is about to go down: the uploads so far are what the next ones are compared with.

    Each answer adds to the newest ones, so these are of one round only, and are put to all others here.
    """
    lengths, weights = {**guard.lengths, **guard.newest_lengths}, {**guard.weights, **guard.newest_weights}
    return replace(guard, lengths=lengths, weights=weights, newest_lengths={}, newest_weights={}, round=guard.round + 1)


def judge_answer(env: NodeEnv, guard: Guard, sender: str, message: Any) -> tuple[Guard, str]:
    """The guard after a child's answer, and why the answer is refused; "" if it is not."""
    if is_vote(message):
        return judge_vote(guard, sender, env.sizes.get(sender, 1))
    found = measure_of(message)
    if found is None:
        return guard, ""
    why = judge_length(env, guard, found) or judge_weight(guard, found)
    key = f"{found.kind}/{sender}" if found.kind else sender
    lengths = with_entry(guard.newest_lengths, key, found.length)
    weights = with_entry(guard.newest_weights, key, found.weight)
    return changed(guard, newest_lengths=lengths, newest_weights=weights), why


def is_vote(message: Any) -> bool:
    """True for an answer that makes its round count for nothing."""
    return bool(getattr(message, "voids_round", False))


def judge_length(env: NodeEnv, guard: Guard, found: Measure) -> str:
    known, usual = usual_of(guard.lengths, found.kind)
    of = "the median of its siblings"
    if known < ENOUGH:
        first = found.first or FIRST_LONGER * max(1.0, norm(env.theta0))
        usual, of = max([first, *of_kind(guard.lengths, found.kind)]), "what is known so far"
    limit = found.longer * max(usual, found.least)
    return (
        ""
        if found.length <= limit
        else f"its length {found.length:.3g} is over {found.longer:g} times {of}, {usual:.3g}"
    )


def of_kind(measures: Mapping[str, float], kind: str) -> list[float]:
    """Measures of uploads of one kind, by whomever: what is kept of other kinds has their name before the child's."""
    if not kind:  # as nearly always
        return [value for key, value in measures.items() if "/" not in key]
    return [value for key, value in measures.items() if key.rpartition("/")[0] == kind]


Measures = Mapping[str, float]
RECENT: dict[tuple[int, str], tuple[Measures, int, float]] = {}
"""What `usual_of` has found lately. A mapping that is held here keeps its id to itself."""
REMEMBERED = 512


def usual_of(measures: Measures, kind: str) -> tuple[int, float]:
    """Number of uploads of a kind among measures, and their median (nan of none).

    Within a round all answers are compared with the same measures: their median is computed once, or a round of a
    thousand devices would sort a thousand numbers a thousand times.
    """
    found = RECENT.get((id(measures), kind))
    if found is None:
        known = of_kind(measures, kind)
        if len(RECENT) >= REMEMBERED:
            RECENT.pop(next(iter(RECENT)), None)
        found = RECENT[id(measures), kind] = (measures, len(known), float(np.median(known)) if known else nan)
    return found[1:]


def judge_weight(guard: Guard, found: Measure) -> str:
    weight, (known, usual) = found.weight, usual_of(guard.weights, found.kind)
    if known < ENOUGH:
        return "" if weight <= FIRST_WEIGHT else f"its weight {weight:.3g} is over {FIRST_WEIGHT:.0f} per device"
    if weight <= HEAVIER * usual:
        return ""
    return f"its weight {weight:.3g} is over {HEAVIER:.0f} times the median of its siblings, {usual:.3g}"


def judge_vote(guard: Guard, sender: str, devices: int) -> tuple[Guard, str]:
    """A child may void a round at once, as often as there are devices behind it; then it waits for 2, 4, 8, ... rounds.

    So a hospital whose devices lose their memory one after the other is heard, and one that says so again and again
    costs a run of T rounds no more than its number of devices plus log2(T) rounds.
    """
    until = guard.silent_until.get(sender, 0)
    if guard.round < until:
        times = guard.votes[sender]
        return guard, f"it has lost its memory {times} times before; it is heard again in {until - guard.round} rounds"
    votes = guard.votes.get(sender, 0) + 1
    wait = 2 ** min(votes - devices + 1, 30) if votes >= devices else 1
    silent = {**guard.silent_until, sender: guard.round + wait}
    return replace(guard, votes={**guard.votes, sender: votes}, silent_until=silent), ""
