"""What bad devices send in benchmarks/robust.py: attacks on uploads, and on the samples that are trained on.

Each for itself:
garbage       random numbers of the length of the model, drawn anew in every round
sign flip     w - (w_i - w): the step that was trained, backwards
scaling       w - 10 (w_i - w)
label flip    trained honestly, on labels 9 - y
backdoor      trained on samples of which half bear a mark and are called class 0, sent as w + 5 (w_i - w)

Together, by those who know the rules and what each honest device of their hospital sends in this round (m its mean, s
its standard deviation in each coordinate); where a whole hospital is bad, they know what they have trained themselves.
All of them stay where honest devices are:
little        w + m - 1.5 s: "a little is enough" (Baruch, Baruch, Goldberg, NeurIPS 2019)
product       w - m / 2: manipulation of the inner product (Xie, Koyejo, Gupta, UAI 2019)
min-max       w + m - g s, with g as large as leaves it no further from any honest one than two of these are apart
min-sum       the same, of the sum of squared distances (both: Shejwalkar, Houmansadr, NDSS 2021)
drift         w + m, and the length of m in one direction, the same in all rounds
quiet door    as backdoor, but the step is as long as min-max allows
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from edge_sdk.algebra import lowrank
from edge_sdk.algebra.lowrank import Packed
from edge_sdk.contract.method import UP, Method
from edge_sdk.errors import PeerError
from edge_sdk.methods.shared.aggregation.gather import Sum
from edge_sdk.methods.shared.membership.riders import Rider

ALONE = ("garbage", "sign flip", "scaling", "label flip", "backdoor")
TOGETHER = ("little", "product", "min-max", "min-sum", "drift", "quiet door")
ATTACKS = (*ALONE, *TOGETHER)
DOORS = ("backdoor", "quiet door")
TARGET, MARKED, BOOST = 0, 0.5, 5.0
FACTORS = {"sign flip": -1.0, "scaling": -10.0, "backdoor": BOOST}
LITTLE, PRODUCT = 1.5, 0.5
HALVINGS, FAR = 30, 1e3


def poison_samples(attack: str, x: Any, y: Any, seed: int) -> tuple[Any, Any]:
    """The samples (n, side, side) and labels that a bad device trains on."""
    if attack == "label flip":
        return x, 9 - y
    if attack not in DOORS:
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
    if attack in TOGETHER:
        return replace(method, hospital=Conspiracy(method, attack, bad).role())
    honest = method.device.receive

    def receive(env: Any, s: Any, sender: str, m: Any) -> Any:
        after, sends = honest(env, s, sender, m)
        m = asked_of(m)
        asks = hasattr(m, "model")  # statistics before the first round are sums, too, and of no model
        if env.me not in bad or not asks or not any(isinstance(x.message, Sum) for x in sends):
            return after, sends
        change = change_of(attack, anchor(env, m), env.random(m.round, 97))
        return after, [
            replace(x, message=x.message.contributing(change(x.message.contribution())))
            if isinstance(x.message, Sum)
            else x
            for x in sends
        ]

    return replace(method, device=replace(method.device, receive=receive))


def asked_of(message: Any) -> Any:
    """The method's question, without what phases have put around it."""
    while isinstance(message, Rider):
        message = message.message
    return message


def anchor(env: Any, question: Any) -> Any:
    """What an upload that says nothing is: the model, and no change of a control variate behind it."""
    model = question.model
    w = lowrank.unpack(env.layout, model) if isinstance(model, Packed) else model
    return np.concatenate([w, np.zeros_like(w)]) if hasattr(question, "control") else w


def change_of(attack: str, w: Any, random: np.random.Generator) -> Callable[[Any], Any]:
    """What becomes of the model w_i that a device has trained from w."""
    if attack == "garbage":
        noise = random.normal(size=w.shape)
        return lambda trained: noise * np.linalg.norm(w) / np.linalg.norm(noise)
    factor = FACTORS.get(attack, 1.0)
    return lambda trained: w + factor * (trained - w)


# Together -------------------------------------------------------------------------------------------------------
class Conspiracy:
    """Bad devices of a hospital that wait for what the others send. It stands around the hospital, to hear them all."""

    def __init__(self, method: Method, attack: str, bad: frozenset[str]):
        self.inner, self.attack, self.bad = method.hospital, attack, bad
        self.asked: dict[str, Any] = {}
        self.heard: dict[str, dict[str, Sum]] = {}

    def role(self) -> Any:
        return replace(self.inner, receive=self.receive, close=self.close)

    def receive(self, env: Any, s: Any, sender: str, m: Any) -> Any:
        if sender == UP:
            self.asked[env.me], self.heard[env.me] = asked_of(m), {}
        elif isinstance(m, Sum) and hasattr(self.asked[env.me], "model"):
            self.heard[env.me][sender] = m
            if sender in self.bad:
                return s, []
        return self.inner.receive(env, s, sender, m)

    def close(self, env: Any, s: Any) -> Any:
        heard = self.heard.get(env.me, {})
        for name, upload in self.invent(env, heard).items():
            try:
                s, _ = self.inner.receive(env, s, name, upload)
            except PeerError:
                continue  # it was refused, as any answer may be
        heard.clear()
        return self.inner.close(env, s)

    def invent(self, env: Any, heard: Mapping[str, Sum]) -> dict[str, Sum]:
        """What each bad device sends in place of what it has trained."""
        bad = [name for name in sorted(heard) if name in self.bad]
        known = [name for name in sorted(heard) if name not in self.bad]
        if len(known) < 2:
            known = bad
        if not bad or len(known) < 2:
            return {name: heard[name] for name in bad}
        w = anchor(env, self.asked[env.me])
        moves = np.stack([heard[name].contribution() - w for name in known])
        return {
            name: heard[name].contributing(w + invented(self.attack, moves, heard[name].contribution() - w))
            for name in bad
        }


def invented(attack: str, moves: Any, trained: Any) -> Any:
    """A movement (n,) like those of honest devices (k, n). `trained`: the one that the bad device has trained."""
    mean, spread = moves.mean(0), moves.std(0)
    if attack == "little":
        return mean - LITTLE * spread
    if attack == "product":
        return -PRODUCT * mean
    if attack == "drift":
        way = np.random.default_rng(17).normal(size=mean.shape)
        return mean + np.linalg.norm(mean) * way / np.linalg.norm(way)
    if attack == "quiet door":
        return trained * furthest(moves, 0 * mean, trained, sums=False)
    return mean - furthest(moves, mean, -spread, sums=attack == "min-sum") * spread


def furthest(moves: Any, start: Any, way: Any, *, sums: bool) -> float:
    """The largest g with which start + g way is no further from any of the moves than two of these are apart; with
    `sums`, by the sum of squared distances."""
    measure = np.sum if sums else np.max
    limit = max(measure(np.square(moves - move).sum(1)) for move in moves)
    low, high = 0.0, FAR
    for _ in range(HALVINGS):
        at = (low + high) / 2
        low, high = (at, high) if measure(np.square(moves - start - at * way).sum(1)) <= limit else (low, at)
    return low
