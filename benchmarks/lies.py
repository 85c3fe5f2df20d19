"""What bad devices of benchmarks/poisoned_labels.py do beside what attacks.py has: lies in counts, and late changes.

counts          uploads are honest; each claims a million validation samples, which the global model as it is gets right
                and nothing else does, and is sure and right with the loosest way to label
flip, counts    sign flip, and these counts
late flip       honest in the first half of the rounds, then sign flip: of a newcomer, or one that is taken over
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.attacks import asked_of, attacked
from edge_sdk.contract.method import Method
from edge_sdk.methods.settling.counting import MOST_SAMPLES, Counts
from edge_sdk.methods.settling.settings import Settling

LIES = ("counts", "flip, counts", "late flip")


def lying(method: Method, attack: str, bad: frozenset[str], settling: Settling) -> Method:
    """The method, whose bad devices do one of LIES."""
    if attack == "late flip":
        return after_half(method, attacked(method, "sign flip", bad))
    if attack == "flip, counts":
        method = attacked(method, "sign flip", bad)
    honest = method.device.receive

    def receive(env: Any, s: Any, sender: str, m: Any) -> Any:
        after, sends = honest(env, s, sender, m)
        if env.me not in bad:
            return after, sends
        return after, [
            replace(x, message=lie(settling, x.message)) if isinstance(x.message, Counts) else x for x in sends
        ]

    return replace(method, device=replace(method.device, receive=receive))


def lie(settling: Settling, told: Counts) -> Counts:
    """The counts of one who wants the global model to be used as it is, and labels to be given by it."""
    correct = np.zeros_like(told.correct)
    if told.correct.size == len(settling.candidates):
        correct[[k for k, c in enumerate(settling.candidates) if c.weight == 0 and c.steps == 0]] = MOST_SAMPLES
    else:
        weights = len(settling.label_weights)
        correct[0] = correct[weights] = correct[weights + 1] = MOST_SAMPLES
    return Counts(correct, MOST_SAMPLES, 1)


def after_half(method: Method, bad: Method) -> Method:
    """The method, and in the second half of its rounds the one with attackers."""

    def receive(env: Any, s: Any, sender: str, m: Any) -> Any:
        late = getattr(asked_of(m), "round", 0) >= env.rounds // 2
        return (bad if late else method).device.receive(env, s, sender, m)

    return replace(method, device=replace(method.device, receive=receive))
