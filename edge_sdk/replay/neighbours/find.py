"""The neighbours of a fleet: trained on every device and on all samples in one place, and chosen on validation.

Labels of test samples are not seen here: a candidate is given their inputs, and what it says of them is kept. So no
choice can depend on them; `rows.py` counts what was right.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from edge_sdk.data.augment import Augment
from edge_sdk.model.model import Model
from edge_sdk.replay.neighbours import candidates, fitted
from edge_sdk.replay.neighbours.candidates import KINDS, NETWORK, Contender, fit, labels_of, make_lesson, most_likely
from edge_sdk.replay.neighbours.features import Floats, features_of, kind_of_features
from edge_sdk.replay.neighbours.holders import Array, Codes, Holder, Part, number_of, within_limits
from edge_sdk.replay.neighbours.network import is_classifier, network_scores, train_network

PAUSE = 10.0
"""Seconds between two lines about progress."""
Say = Callable[[str], None]
ALONE, TOGETHER = 21, 22
"""Purposes of the random streams."""
Said = Mapping[Contender, Codes]
"""Contender -> the classes that it takes a device's samples for: those of validation, then those of the test."""


@dataclass(frozen=True)
class BestOfKind:
    """The candidate of one kind that the fleet has chosen.

    Attributes:
        right: validation samples of the fleet that it gets right.
        test: device -> classes that it takes the test samples for.
    """

    candidate: Contender
    right: int
    test: Mapping[str, Codes] = field(repr=False)


@dataclass(frozen=True)
class FoundNeighbours:
    """What was found.

    Attributes:
        holders: the devices that were judged.
        alone, pooled: kind -> what was chosen of it, for models of one device and of all samples in one place.
        on: what the kinds but the network look at; see `features`.
        samples: validation samples of the fleet.
        pool: samples in the one place.
    """

    holders: Sequence[Holder]
    alone: Mapping[str, BestOfKind]
    pooled: Mapping[str, BestOfKind]
    on: str
    samples: int
    pool: int


@dataclass(frozen=True)
class Question:
    """What neighbours are asked for.

    Attributes:
        holders: the devices that are judged, at least one of them no newcomer.
        pool: training samples of all that train, in one place.
        classes: how many.
        how: augmentation of the run.
        model: the run's network; None: no kind of neighbour is a network.
        alone: the network is also trained on each device, because nobody else has done so.
    """

    holders: Sequence[Holder]
    pool: Part
    classes: int
    how: Augment = field(default_factory=Augment)
    seed: int = 0
    model: Model | None = None
    alone: bool = False


def find_neighbours(asked: Question, say: Say = lambda text: None) -> FoundNeighbours:
    """Trains all candidates, and chooses those of each kind. `say`: is told how far it is, where it takes long."""
    holders = [within_limits(h, asked.seed) for h in asked.holders]
    features = {h.name: inputs_of(h) for h in holders}
    progress, alone = SearchProgress(say, len(holders)), dict[str, Said]()
    for k, h in enumerate(holders):
        progress.tell(k)
        alone[h.name] = say_alone(asked, h, features[h.name])
    progress.tell(len(holders))
    pooled = say_pooled(asked, holders, features)
    fleet = [h for h in holders if not h.newcomer]
    return FoundNeighbours(
        holders=asked.holders,
        alone=choose_each(alone, holders),
        pooled=choose_each(pooled, holders),
        on=kind_of_features(asked.pool[0]),
        samples=sum(len(h.validation[1]) for h in fleet),
        pool=len(asked.pool[1]),
    )


@dataclass
class SearchProgress:
    """What people are told while they wait: nothing in the first seconds, then how many devices are done."""

    say: Say
    devices: int
    began: float = field(default_factory=time.monotonic)
    told: float = field(default_factory=time.monotonic)

    def tell(self, done: int) -> None:
        now = time.monotonic()
        if not done or now - self.told < PAUSE:
            return
        self.told = now
        spent, rest = now - self.began, (now - self.began) / done * (self.devices - done)
        ahead = f"some {rest:.0f} s for the others, then" if done < self.devices else "now"
        self.say(f"  {done} of {self.devices} devices after {spent:.0f} s; {ahead} all data in one place")


def inputs_of(holder: Holder) -> Floats | None:
    """Features of the samples that a device judges by; None: they have none."""
    x = judged_inputs(holder)
    return features_of(x) if kind_of_features(x) and fitted.is_installed() else None


def judged_inputs(holder: Holder) -> Array:
    """The inputs of validation and test samples, in this order."""
    return np.concatenate([holder.validation[0], holder.test[0]])


# What candidates say --------------------------------------------------------------------------------------------
def say_alone(asked: Question, holder: Holder, features: Floats | None) -> Said:
    """What each candidate says that has learned from one device's samples."""
    seed, found = [asked.seed, ALONE, number_of(holder.name)], dict[Contender, Codes]()
    if features is not None:
        lesson = make_lesson(holder.train, asked.how, np.random.default_rng(seed))
        for one in candidates.list_candidates(holder.train[0], asked.how):
            if one.copies and lesson.copied is lesson.own:
                found[one] = found[replace(one, copies=False)]  # it has so many samples that there are no copies
                continue
            found[one] = most_likely(fit(one, lesson, asked.classes, state_of(seed))(features))
    if asked.alone and asked.model is not None and is_classifier(asked.model, holder.train[0], asked.classes):
        for one, scores in say_network(asked, holder.train, candidates.STEPS, [holder], seed):
            found[one] = most_likely(scores[holder.name], labels_of([holder.train]))
    return found


def say_pooled(asked: Question, holders: Sequence[Holder], features: Mapping[str, Floats | None]) -> Mapping[str, Said]:
    """What each candidate says that has learned from all samples in one place; once among all classes, and once among
    those that the device has labels of."""
    found: dict[str, dict[Contender, Codes]] = {h.name: {} for h in holders}
    seed = [asked.seed, TOGETHER]

    def keep(one: Contender, scores: Mapping[str, Floats]) -> None:
        for h in holders:
            own = replace(one, own=True)
            found[h.name][one] = most_likely(scores[h.name])
            found[h.name][own] = most_likely(scores[h.name], labels_of([h.train, h.validation]))

    known = {name: f for name, f in features.items() if f is not None}
    if len(known) == len(holders):
        lesson = make_lesson(asked.pool, asked.how, np.random.default_rng(seed))
        for one in candidates.list_candidates(asked.pool[0], asked.how, len(asked.pool[1])):
            scores = fit(one, lesson, asked.classes, state_of(seed))
            keep(one, {name: scores(f) for name, f in known.items()})
    if asked.model is not None and is_classifier(asked.model, asked.pool[0], asked.classes):
        for one, by_name in say_network(asked, asked.pool, candidates.POOLED_STEPS, holders, seed):
            keep(one, by_name)
    return found


def say_network(
    asked: Question, train: Part, steps: Sequence[int], holders: Sequence[Holder], seed: Sequence[int]
) -> list[tuple[Contender, dict[str, Floats]]]:
    """For each number of steps the scores that the network gives to the samples of some devices."""
    assert asked.model is not None
    judged = {h.name: judged_inputs(h) for h in holders}
    models = train_network(asked.model, train, steps, asked.how, np.random.default_rng(seed))
    return [
        (
            Contender(NETWORK, n),
            {name: network_scores(asked.model, theta, x, asked.classes) for name, x in judged.items()},
        )
        for n, theta in zip(steps, models, strict=True)
    ]


def state_of(seed: Sequence[int]) -> int:
    """A seed as scikit-learn takes it."""
    return int(np.random.default_rng(seed).integers(2**31))


# Choices --------------------------------------------------------------------------------------------------------
def choose_each(said: Mapping[str, Said], holders: Sequence[Holder]) -> dict[str, BestOfKind]:
    """For each kind the first of the candidates with which the fleet gets most validation samples right."""
    every, found = list(said[holders[0].name]), {}
    fleet = [h for h in holders if not h.newcomer]
    for kind in KINDS:
        if some := [one for one in every if one.kind == kind]:
            counts = [count_right(one, said, fleet) for one in some]
            best = some[counts.index(max(counts))]
            test = {h.name: said[h.name][best][len(h.validation[1]) :] for h in holders}
            found[kind] = BestOfKind(best, max(counts), test)
    return found


def count_right(one: Contender, said: Mapping[str, Said], fleet: Sequence[Holder]) -> int:
    """Validation samples of the fleet that a candidate gets right."""
    return sum(int((said[h.name][one][: len(h.validation[1])] == h.validation[1]).sum()) for h in fleet)
