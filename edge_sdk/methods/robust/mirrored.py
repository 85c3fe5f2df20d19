"""Robust rules where the aggregator mirrors a mean of devices' own vectors: a rule chooses who is counted in a round.

FedSLR, SCAFFOLD, FedDyn and running sums keep at the aggregator what devices keep one by one (gamma_i, c_i, g_i, their
latest contributions): it stays their mean only if each of them moves by what was counted of its upload. Another vector
in its place would part the two. So here an upload is counted as it is, or not at all. The others are as though they
had not answered, which every such method has a sound answer to: their vectors stay, and the next question says so.
Whatever is proved of a method with some of its devices in each round holds with a rule, and nothing travels that did
not before.

A child is counted that is near the rule's result in two ways:

    what its own vector would be with this upload      within `keep` times the median distance
    what this upload moves                             within `keep` times the largest median distance so far

The first, for an attacker who stays within the usual length in each round would otherwise add that length to the
mirrored mean in every round, without end. The second, for who has been left out has its vector at zero, where the mean
of honest ones tends to: one jump from there may end among them. And the largest so far, since honest devices move less
as their vectors settle, and one that was left out still has to make its first movement: it is not left out for ever.

So a node keeps each child's own vector, as the uploads that were counted make it: as of the last of them, and as of the
one before where the next question has yet to say which of the two is right (shared/membership/mirror.py). That is 4
bytes for each parameter and child, or 8, beside the uploads of the round that is on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from edge_sdk.algebra.arrays import Values
from edge_sdk.contract.method import ME, OUT, UP, Movement, NodeEnv, Role, Send, Step
from edge_sdk.contract.wrapping import state_around
from edge_sdk.methods.shared.aggregation.guard import is_measurable
from edge_sdk.methods.shared.membership.changing import as_they_came, remaining, with_size

Distances = Callable[[npt.NDArray[np.floating]], npt.NDArray[np.float64]]
"""Rows (children, n) -> their distances (children,) from what a rule makes of them."""


MAJORITY = 3
"""Uploads of which most may be taken for honest: of two, one that is far off would also widen what is usual."""


@dataclass(frozen=True)
class OwnAt:
    """A child's own vector (k,), summed over its devices, as it is once its upload of a round was counted."""

    round: int
    vector: Values


@dataclass(frozen=True)
class ChoosingState:
    """A node's state around the method's own.

    Attributes:
        inner: the method's.
        asked: the question of the round that is on, as one child was sent it.
        counted: child -> the last round of this era in which its upload was counted, of those that were asked.
        own: child -> its own vector, as of the last upload that was counted, or of the last two.
        uploads: child -> its upload in the round that is on.
        widest: largest median distance of movements in a round so far.
        sizes: child -> number of devices behind it when its upload came, where these are several.
    """

    inner: Any
    asked: Any = None
    counted: Mapping[str, int] = field(default_factory=dict)
    own: Mapping[str, tuple[OwnAt, ...]] = field(default_factory=dict)
    uploads: Mapping[str, Any] = field(default_factory=dict)
    widest: float = 0.0
    sizes: Mapping[str, int] = field(default_factory=dict)


def choosing(inner: Role, movement: Movement, distances: Distances, keep: float) -> Role:
    """The role of a node that counts those of its children whom a rule finds near: within `keep` times a median."""
    kind = state_around(ChoosingState, inner.state)

    def start(env: NodeEnv) -> Step:
        state, sends = inner.start(env)
        return after_questions(kind(state), sends), sends

    def receive(env: NodeEnv, s: ChoosingState, sender: str, message: Any) -> Step:
        state, sends = inner.receive(env, s.inner, sender, message)
        if is_upload(sender, message):  # shown, for the checks inside, but not yet counted
            uploads, sizes = {**s.uploads, sender: message}, with_size(env, s.sizes, sender)
            return replace(s, uploads=uploads, sizes=sizes), []
        s = replace(s, inner=state)
        return (after_questions(s, sends) if sender == UP else s), sends

    def close(env: NodeEnv, s: ChoosingState) -> Step:
        state, own, then = s.inner, remaining(env, s.own), as_they_came(env, s.sizes)
        found, widest = choose_children(then, s, movement, distances, keep)
        for name, vector in found.items():
            state = inner.receive(then, state, name, s.uploads[name])[0]
            own[name] = (*own_at(s, name), OwnAt(s.asked.round, vector))
        state, sends = inner.close(env, state)
        s = replace(s, inner=state, own=own, uploads={}, sizes={}, widest=widest)
        return after_questions(s, sends), sends

    return Role(start, receive, close, kind)


def is_upload(sender: str, message: Any) -> bool:
    """True for what a child sends to be added up."""
    return sender not in (UP, ME) and is_measurable(message)


def asks(sends: Sequence[Send]) -> bool:
    """True if a new question goes down, be it to nobody: what has been answered so far was of another round."""
    return any(is_question(send) for send in sends)


def is_question(send: Send) -> bool:
    return send.to not in (UP, OUT, ME) and send.answer


def after_questions(s: ChoosingState, sends: Sequence[Send]) -> ChoosingState:
    """The state when questions go down, which say whose last upload was counted; the same, where none do."""
    questions = [send.message for send in sends if is_question(send)]
    if not questions:
        return s
    counted = {child: at for m in questions for child, at in getattr(m, "counted", {}).items()}
    own = {child: tuple(o for o in kept if counted.get(child, o.round) == o.round) for child, kept in s.own.items()}
    return replace(s, asked=questions[0], counted=counted, own=own, uploads={}, sizes={})


def choose_children(
    env: NodeEnv, s: ChoosingState, movement: Movement, distances: Distances, keep: float
) -> tuple[dict[str, Values], float]:
    """Child -> its own vector (k,) from now on, for those that are counted; and the widest movements so far."""
    names = sorted(s.uploads)
    devices = [env.sizes.get(name, 1) for name in names]
    moves = [movement(env, s.asked, s.uploads[name]) for name in names]
    own = [sum((o.vector for o in own_at(s, name)), move[0]) for name, move in zip(names, moves, strict=True)]
    if len(names) < MAJORITY:
        return dict(zip(names, own, strict=True)), s.widest
    moved = distances(np.stack([move[1] / n for move, n in zip(moves, devices, strict=True)]))
    apart = distances(np.stack([vector / n for vector, n in zip(own, devices, strict=True)]))
    widest = max(s.widest, float(np.median(moved)))
    near = (moved <= keep * widest) & (apart <= keep * float(np.median(apart)))
    return {name: vector for name, vector, is_near in zip(names, own, near, strict=True) if is_near}, widest


def own_at(s: ChoosingState, child: str) -> tuple[OwnAt, ...]:
    """A child's own vector as of its last upload that was counted, as the question that is on says; (): at zero."""
    return tuple(o for o in s.own.get(child, ()) if o.round == s.counted.get(child))
