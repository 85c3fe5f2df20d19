"""Lies of bad devices in benchmarks/poisoned_labels.py: what they count, and when they begin."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from benchmarks.lies import after_half, lie, lying
from edge_sdk.contract.method import UP, Role, Send
from edge_sdk.methods.fedavg import FEDAVG
from edge_sdk.methods.settling.counting import MOST_SAMPLES, Counts
from edge_sdk.methods.settling.labelling import choose_labelling, count_size, options
from edge_sdk.methods.settling.settings import Settling

S = Settling(trees=5, label_times=2, local_weights=(0.0, 0.5, 1.0))


def test_a_liar_wants_the_global_model_as_it_is_and_labels_by_the_loosest_rule() -> None:
    told = lie(S, Counts(np.zeros(len(S.candidates), np.int64), 21, 1))
    (wanted,) = np.flatnonzero(told.correct)
    assert (S.candidates[wanted].steps, S.candidates[wanted].weight) == (0, 0.0)
    of_labels = lie(S, Counts(np.zeros(count_size(S), np.int64), 21, 1))
    assert options(S)[choose_labelling(S, of_labels.correct)] == (S.label_weights[0], S.label_thresholds[0])
    assert told.samples == of_labels.samples == MOST_SAMPLES
    told.check(None)  # type: ignore[arg-type]  # a message that a node would take
    of_labels.check(None)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Question:
    round: int


@dataclass(frozen=True)
class Env:
    rounds: int = 10
    me: str = "bad"


def answering(word: Any) -> Any:
    role = FEDAVG.device
    return replace(
        FEDAVG, device=Role(role.start, lambda env, s, sender, m: (s, [Send(UP, word)]), role.close, role.state)
    )


def test_who_turns_bad_late_is_honest_in_the_first_half() -> None:
    device = after_half(answering("honest"), answering("bad")).device
    said = [device.receive(Env(), None, UP, Question(t))[1][0].message for t in range(10)]  # type: ignore[arg-type]
    assert said == ["honest"] * 5 + ["bad"] * 5


def test_only_bad_devices_lie() -> None:
    honest = Counts(np.zeros(len(S.candidates), np.int64), 21, 1)
    device = lying(answering(honest), "counts", frozenset({"bad"}), S).device
    for me, samples in (("bad", MOST_SAMPLES), ("good", 21)):
        (send,) = device.receive(Env(me=me), None, UP, Question(0))[1]  # type: ignore[arg-type]
        assert send.message.samples == samples
