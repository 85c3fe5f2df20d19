"""A fleet of devices with recorded traces in memory: any method of whole models, then settling, judged in three parts.

The roles are those of the product. After a run every device's own models are judged, and settled from with what the
fleet chooses on validation samples (edge_sdk/methods/settling/equations.py). The models that devices train alone are
the same for all methods, so they are trained once for a seed. All predictions are over the device's own classes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from benchmarks.holders import Holder, Part
from benchmarks.protocol import Gradients, Point, Quiet
from edge_sdk.algebra import lowrank
from edge_sdk.algebra.ensemble import log_probabilities, pooled
from edge_sdk.contract.loopback import ROOT, NetworkFaults
from edge_sdk.contract.method import Method
from edge_sdk.contract.run import Run
from edge_sdk.data.augment import Augment
from edge_sdk.methods import METHODS
from edge_sdk.methods.integers.method import rounded
from edge_sdk.methods.integers.vectors.privacy import Privacy
from edge_sdk.methods.integers.vectors.settings import Uploads
from edge_sdk.methods.settling import equations
from edge_sdk.methods.settling.settings import Candidate, Settling
from edge_sdk.model.model import Model
from edge_sdk.nodes.configuration.settings import from_mapping
from edge_sdk.nodes.kernels import plain
from edge_sdk.nodes.kernels.family import DeviceParts
from edge_sdk.wire.codec.codec import Codec

HOSPITALS = 3
SETTLES = {"optimiser": "adam"}
CALM = NetworkFaults(repeat=0.0, delay=(0.0, 0.0))
WANTED = ("grad_fn", "augmented", "samples", "validation", "held_out", "own_classes")


@dataclass(frozen=True)
class Fleet:
    """Who takes part, and with what."""

    model: Model
    holders: Sequence[Holder]
    augment: Augment = field(default_factory=Augment)

    @cached_property
    def tree(self) -> dict[str, tuple[str, ...]]:
        names = [h.name for h in self.holders]
        return {f"h{k}": tuple(names[k::HOSPITALS]) for k in range(min(HOSPITALS, len(names)))}

    @cached_property
    def run(self) -> Run:
        classes = tuple(str(k) for k in range(self.model.classes))
        return Run(id="fleet", method="fedavg", classes=classes, settle=SETTLES)

    @cached_property
    def fields(self) -> dict[str, dict[str, Any]]:
        """Device -> what the product gives its env."""
        return {h.name: self.device_fields(h) for h in self.holders}

    def device_fields(self, h: Holder) -> dict[str, Any]:
        parts = DeviceParts(
            run=self.run,
            settings=None,
            whose=h.name,
            model=self.model,
            x=h.train.x,
            y=h.train.y,
            held_out=(h.test.x, h.test.y),
            validation=(h.validation.x, h.validation.y),
            augment=self.augment,
        )
        return {key: value for key, value in plain.for_device(parts).items() if key in WANTED}

    def envs(self, method: Method, settings: Any, rounds: int, seed: int) -> dict[str, Any]:
        common: dict[str, Any] = {"seed": seed, "rounds": rounds, "settings": settings}
        common |= {"layout": self.model.layout, "theta0": self.model.theta0}
        common |= {"entropy": os.urandom}
        found = {ROOT: method.env(**common, sizes={h: len(d) for h, d in self.tree.items()})}
        found |= {h: method.env(**common, sizes=dict.fromkeys(d, 1)) for h, d in self.tree.items()}
        return found | {name: method.env(**common, me=name, **own) for name, own in self.fields.items()}


# Judging --------------------------------------------------------------------------------------------------------
def accuracy(fleet: Fleet, holder: Holder, theta: Any, part: Part) -> float | None:
    """Share of windows that are right, among the device's own classes; None: there is no window."""
    if not len(part.y):
        return None
    logits = fleet.model.predict(theta, part.x)
    p = log_probabilities(logits, fleet.fields[holder.name]["own_classes"])
    return float((p.argmax(1) == part.y).mean())


def mean_accuracy(fleet: Fleet, thetas: Mapping[str, Any], part: str) -> float:
    """Mean over the devices that have this part."""
    found = [accuracy(fleet, h, thetas[h.name], getattr(h, part)) for h in fleet.holders]
    return float(np.mean([a for a in found if a is not None]))


def test_accuracies(fleet: Fleet, thetas: Mapping[str, Any]) -> dict[str, float]:
    return {h.name: accuracy(fleet, h, thetas[h.name], h.test) or 0.0 for h in fleet.holders}


# A run ----------------------------------------------------------------------------------------------------------
@dataclass
class Played:
    """A finished run.

    Attributes:
        shared, own: device -> the global model, and its personal one where the method has such a model.
        curve: validation accuracy of the own model, or the global one, beside megabytes to and from all devices.
        gradients: per device. rank: of all matrices of the global model together.
        hops: bytes of each hop and direction, see `protocol.Quiet`.
    """

    shared: dict[str, Any]
    own: dict[str, Any]
    curve: list[Point]
    gradients: float
    megabytes: float
    rank: int
    hops: Mapping[str, int]

    @property
    def best(self) -> dict[str, Any]:
        return self.own or self.shared


def play(
    fleet: Fleet,
    name: str,
    settings: Mapping[str, Any],
    rounds: int,
    seed: int,
    every: int = 0,
    uploads: Uploads | None = None,
    privacy: Privacy | None = None,
    **top: Any,
) -> Played:
    """Trains one method.

    Args:
        every: rounds between points of the curve; 0: one, at the end.
        uploads: how its vectors travel as integers; None: as floats.
        privacy: noise that devices add to these integers; None: they add none.
        top: fields of the aggregator's env.
    """
    method = METHODS[name]
    s = from_mapping(method.settings, settings, name)
    method = method if uploads is None else rounded(method, s, uploads, privacy=privacy)
    envs, gradients = fleet.envs(method, s, rounds, seed), Gradients()
    envs[ROOT] = replace(envs[ROOT], **top)
    envs |= {d: gradients.through(envs[d]) for d in fleet.fields}
    net = Quiet(method, fleet.tree, envs, method.policies(s, envs[ROOT].sizes, 1e9, 1e8, 0), seed, CALM)
    net.codec = Codec(method.messages, layout=fleet.model.layout)
    curve: list[Point] = []

    def models() -> tuple[dict[str, Any], dict[str, Any]]:
        gradients.paused = True
        shown = method.show(net.nodes[ROOT].env, net.nodes[ROOT].record.state)
        found = {d: method.models(envs[d], net.nodes[d].record.state, shown) for d in fleet.fields}
        gradients.paused = False
        own = {d: m["personal"] for d, m in found.items() if "personal" in m}
        return {d: m["global"] for d, m in found.items()}, own if len(own) == len(found) else {}

    def seen(state: Any, now: float) -> None:
        round = getattr(getattr(state, "inner", state), "round", 0)
        if every and round and round % every == 0 and (not curve or curve[-1].round < round):
            shared, own = models()
            curve.append(Point(round, net.bytes / 1e6, mean_accuracy(fleet, own or shared, "validation")))

    net.seen = seen
    net.run()
    shared, own = models()
    if not curve or curve[-1].round < rounds:
        curve.append(Point(rounds, net.bytes / 1e6, mean_accuracy(fleet, own or shared, "validation")))
    count = gradients.count / len(fleet.fields)
    rank = rank_of(fleet, next(iter(shared.values())))
    return Played(shared, own, curve, count, net.bytes / 1e6, rank, dict(net.hops))


def rank_of(fleet: Fleet, theta: Any) -> int:
    """Sum of the ranks of all matrices of a model."""
    layout = fleet.model.layout
    matrices = (lowrank.matrix(slot, layout.view(theta, slot)) for slot in lowrank.matrix_slots(layout))
    return sum(int(np.linalg.matrix_rank(m, tol=1e-5 * np.linalg.norm(m, 2) + 1e-12)) for m in matrices)


# Settling -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Walked:
    """A model after so many steps. `validation`: log-probabilities of the validation windows."""

    theta: Any
    validation: Any


Walks = dict[str, dict[int, Walked]]
"""Device -> steps -> model."""


def walks_of(fleet: Fleet, s: Settling, seed: int, starts: Mapping[str, Any] | None) -> Walks:
    """Models that begin at each device's start or, where there is none, those that it trains alone."""
    method = METHODS["fedavg"]
    envs, found = fleet.envs(method, method.settings(), 1, seed), Walks()
    for h in fleet.holders:
        env, steps = envs[h.name], s.local_steps if starts is None else s.steps
        if starts is None:
            walk = equations.local_model(env, s, steps)
        else:
            walk = equations.component(env, s, starts[h.name], steps)
        found[h.name] = {
            n: Walked(theta.copy(), scored(fleet, h, theta, h.validation)) for n, theta in zip(steps, walk, strict=True)
        }
    return found


def scored(fleet: Fleet, h: Holder, theta: Any, part: Part) -> Any:
    """Log-probabilities over the device's own classes, (windows, classes)."""
    if not len(part.y):
        return np.zeros((0, fleet.model.classes))
    return log_probabilities(fleet.model.predict(theta, part.x), fleet.fields[h.name]["own_classes"])


@dataclass
class Settled:
    """What the fleet chose, with the models of that candidate.

    Attributes:
        choice: steps, steps of the local model, its weight.
        right: validation windows that are right with it.
        personal, alone: device -> test accuracy of it, and of training alone.
        density: mean share of entries that are not the start's; 0 where it chose to train alone.
    """

    choice: tuple[int, int, float]
    right: int
    personal: dict[str, float]
    alone: dict[str, float]
    density: float


def settle(fleet: Fleet, s: Settling, personal: Walks, local: Walks, starts: Mapping[str, Any]) -> Settled:
    """The choice of the fleet, by the counts that it would send; only what is chosen is judged on test windows."""
    right = np.array([count_right(fleet, c, personal, local) for c in s.candidates])
    index, alone, _ = equations.choose(s, right)
    c, a = s.candidates[index], s.candidates[alone]
    moved = [np.mean(personal[d][c.steps].theta != starts[d]) for d in personal] if c.weight < 1 else [0.0]
    found, by = tested(fleet, c, personal, local), tested(fleet, a, personal, local)
    return Settled((c.steps, c.local_steps, c.weight), int(right[index]), found, by, float(np.mean(moved)))


def count_right(fleet: Fleet, c: Candidate, personal: Walks, local: Walks) -> int:
    """Validation windows of all devices that a candidate gets right."""
    found = 0
    for h in fleet.holders:
        mine, other = models_of(c, personal[h.name], local[h.name])
        found += int((pooled(mine.validation, other.validation, c.weight).argmax(1) == h.validation.y).sum())
    return found


def tested(fleet: Fleet, c: Candidate, personal: Walks, local: Walks) -> dict[str, float]:
    """Device -> accuracy of a candidate on its test windows."""
    found = {}
    for h in fleet.holders:
        mine, other = (scored(fleet, h, m.theta, h.test) for m in models_of(c, personal[h.name], local[h.name]))
        found[h.name] = float((pooled(mine, other, c.weight).argmax(1) == h.test.y).mean())
    return found


def models_of(c: Candidate, personal: Mapping[int, Walked], local: Mapping[int, Walked]) -> tuple[Walked, Walked]:
    """The two models of a candidate; of weight 0 or 1 the other one stands for both."""
    mine, other = personal.get(c.steps), local.get(c.local_steps)
    if c.weight in (0, 1):
        mine = other = other if c.weight else mine
    assert mine is not None and other is not None  # every candidate is of these steps
    return mine, other
