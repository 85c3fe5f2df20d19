"""Bounds on what one child may contribute, taken from what the others contribute.

An upload is judged by two numbers: its length ||total|| / weight, and its weight per device. Both are compared with the
median over this node's children of the latest such numbers, as they were when the round began. So a bound does not
depend on the order in which uploads arrive, and a repetition gives the same. A refused upload costs that upload and
nothing else: it is not added, its sender is not waited for, and the node's application is told (`Refused`).

Refused uploads are remembered like others. If most children send larger numbers than before, because the step size has
grown or a new era began, the median follows them in the next round and nobody is refused for ever; as long as fewer
than half of the children are bad, it does not follow these. Two children have no majority: with fewer than `ENOUGH` of
them only the loose bound of the first round holds.

The second thing that is limited is votes: an answer whose type says `voids_round` makes a round count for nothing and
begins anew what all nodes remember (FedSLR's eras). A child that has said so is heard again only after some rounds, and
each time after twice as many. In between it is left out like one that has not answered.

Source of the median: D. Yin et al., "Byzantine-Robust Distributed Learning", ICML 2018; of bounds that follow the
norms of the rounds before: G. Andrew et al., "Differentially Private Learning with Adaptive Clipping", NeurIPS 2021.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

import numpy as np

from edge_sdk.contract.method import NodeEnv
from edge_sdk.methods.shared.gather import Sum

ENOUGH = 3  # children of whom something is known
LONGER, HEAVIER = 10.0, 100.0  # than the median, at most; numbers of samples differ more than lengths of models
SHORTEST = 1e-3  # median below which lengths are not told apart: uploads may begin at zero
FIRST_LONGER = 1000.0  # than the first model, as long as nothing is known of others
FIRST_WEIGHT = 2.0**20  # per device, as long as nothing is known of others


@dataclass(frozen=True)
class Refused:
    """To the application of a hospital or the aggregator: a child's answer was not counted, and why."""

    sender: str
    reason: str


@dataclass(frozen=True)
class Guard:
    """What a node has seen of its children.

    Attributes:
        lengths, weights: child -> of its latest upload, when this round began.
        newest_lengths, newest_weights: the same, with this round's uploads.
        round: rounds that have begun here.
        votes: child -> how often it has made a round count for nothing.
        silent_until: child -> the first round in which it may do so again.
    """

    lengths: Mapping[str, float] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)
    newest_lengths: Mapping[str, float] = field(default_factory=dict)
    newest_weights: Mapping[str, float] = field(default_factory=dict)
    round: int = 0
    votes: Mapping[str, int] = field(default_factory=dict)
    silent_until: Mapping[str, int] = field(default_factory=dict)


def begin_round(guard: Guard) -> Guard:
    """The guard when a question is about to go down: from now on this round's uploads are judged."""
    return replace(guard, lengths=guard.newest_lengths, weights=guard.newest_weights, round=guard.round + 1)


def judge_answer(env: NodeEnv, guard: Guard, sender: str, message: Any) -> tuple[Guard, str]:
    """The guard after a child's answer, and why that answer is refused; "" if it is not."""
    if getattr(message, "voids_round", False):
        return judge_vote(guard, sender, env.sizes.get(sender, 1))
    if not isinstance(message, Sum):
        return guard, ""
    length = float(np.linalg.norm(message.total.astype(np.float64))) / message.weight
    weight = message.weight / message.count
    newest = {**guard.newest_lengths, sender: length}, {**guard.newest_weights, sender: weight}
    why = judge_length(env, guard, length) or judge_weight(guard, weight)
    return replace(guard, newest_lengths=newest[0], newest_weights=newest[1]), why


def judge_length(env: NodeEnv, guard: Guard, length: float) -> str:
    if len(guard.lengths) < ENOUGH:
        first = max(1.0, float(np.linalg.norm(env.theta0.astype(np.float64))))
        return "" if length <= FIRST_LONGER * first else f"length {length:.3g}, the first model has {first:.3g}"
    usual = max(median(guard.lengths.values()), SHORTEST)
    return "" if length <= LONGER * usual else f"length {length:.3g}, its siblings' median is {usual:.3g}"


def judge_weight(guard: Guard, weight: float) -> str:
    if len(guard.weights) < ENOUGH:
        return "" if weight <= FIRST_WEIGHT else f"weight {weight:.3g}, at first it is at most {FIRST_WEIGHT:.3g}"
    usual = median(guard.weights.values())
    return "" if weight <= HEAVIER * usual else f"weight {weight:.3g}, its siblings' median is {usual:.3g}"


def judge_vote(guard: Guard, sender: str, devices: int) -> tuple[Guard, str]:
    """A child may vote at once, once for each device behind it; then it is silent for 2, 4, 8, ... rounds."""
    until = guard.silent_until.get(sender, 0)
    if guard.round < until:
        return guard, f"it has lost its memory {guard.votes[sender]} times; it is heard again in {until - guard.round}"
    votes = guard.votes.get(sender, 0) + 1
    silent = guard.round + 2 ** min(max(votes - devices + 1, 0), 30)
    guard = replace(guard, votes={**guard.votes, sender: votes})
    return replace(guard, silent_until={**guard.silent_until, sender: silent}), ""
