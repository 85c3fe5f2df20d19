"""What bad devices send in benchmarks/robust.py: attacks on uploads, and on the samples that are trained on.

garbage       random numbers of the length of the model, drawn anew in every round
sign flip     w - (w_i - w): the step that was trained, backwards
scaling       w - 10 (w_i - w)
label flip    trained honestly, on labels 9 - y
backdoor      trained on samples of which half bear a mark and are called class 0, sent as w + 5 (w_i - w)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from edge_sdk.algebra import lowrank
from edge_sdk.contract.method import Method
from edge_sdk.methods.shared.aggregation.gather import Sum

ATTACKS = ("garbage", "sign flip", "scaling", "label flip", "backdoor")
TARGET, MARKED, BOOST = 0, 0.5, 5.0
FACTORS = {"sign flip": -1.0, "scaling": -10.0, "backdoor": BOOST}


def poison_samples(attack: str, x: Any, y: Any, seed: int) -> tuple[Any, Any]:
    """The samples (n, side, side) and labels that a bad device trains on."""
    if attack == "label flip":
        return x, 9 - y
    if attack != "backdoor":
        return x, y
    rows = np.random.default_rng([seed, 31]).random(len(y)) < MARKED
    x, y = x.copy(), y.copy()
    x[rows], y[rows] = mark(x[rows]), TARGET
    return x, y


def mark(x: Any) -> Any:
    """The samples with a bright square in their last corner."""
    x = x.copy()
    x[:, -3:, -3:] = 1.0
    return x


def attacked(method: Method, attack: str, bad: frozenset[str]) -> Method:
    """The method, whose bad devices send something else than what they have trained."""
    honest = method.device.receive

    def receive(env: Any, s: Any, sender: str, m: Any) -> Any:
        after, sends = honest(env, s, sender, m)
        if env.me not in bad or not any(isinstance(x.message, Sum) for x in sends):
            return after, sends
        w = lowrank.unpack(env.layout, m.model)
        change = change_of(attack, w, env.random(m.round, 97))
        return after, [
            replace(x, message=x.message.contributing(change(x.message.contribution())))
            if isinstance(x.message, Sum)
            else x
            for x in sends
        ]

    return replace(method, device=replace(method.device, receive=receive))


def change_of(attack: str, w: Any, random: np.random.Generator) -> Callable[[Any], Any]:
    """What becomes of the model w_i that a device has trained from w."""
    if attack == "garbage":
        noise = random.normal(size=w.shape)
        return lambda trained: noise * np.linalg.norm(w) / np.linalg.norm(noise)
    factor = FACTORS.get(attack, 1.0)
    return lambda trained: w + factor * (trained - w)
