"""What is tried: three kinds of models, each with a small grid of settings, and how one candidate guesses.

kind      grid
trees     300 trees, at least 1 or 3 samples in a leaf; without and with augmented copies
linear    C = 0.02, 0.2 or 2; without and with augmented copies
network   the run's own, from its initial model, by Adam with batches of 32; 100 to 400 steps alone, 400 to 1600 pooled

Copies are drawn as the run draws its augmentation, and there are none where it has no augmentation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from edge_sdk.data.augment import Augment, augment
from edge_sdk.replay.neighbours.features import Floats, features_of, kind_of_features
from edge_sdk.replay.neighbours.fitted import Scores, fit_linear, fit_trees
from edge_sdk.replay.neighbours.holders import Array, Codes, Part

TREES, LINEAR, NETWORK = "trees", "linear", "network"
KINDS = (TREES, LINEAR, NETWORK)
"""In the order in which equally good ones are preferred; without validation samples it is the first."""
LEAVES, PENALTIES = (1, 3), (0.02, 0.2, 2.0)
STEPS, POOLED_STEPS = (100, 200, 400), (400, 800, 1600)
FEW, MANY = 100, 2000
COPIES = {FEW: 8, MANY: 2}
"""Samples up to which -> copies of each; of more there are none, for they are many without."""


@dataclass(frozen=True)
class Contender:
    """One kind of model with one setting.

    Attributes:
        value: samples in a leaf, C, or steps.
        copies: it also learns from augmented copies.
        own: of a pooled model, a device takes only the classes that it has labels of.
    """

    kind: str
    value: float
    copies: bool = False
    own: bool = False

    @property
    def words(self) -> str:
        """The setting, for people."""
        names = {TREES: "at least {:g} in a leaf", LINEAR: "C = {:g}", NETWORK: "{:g} steps"}
        more = [", with augmented copies"] * self.copies + [", among a device's own classes"] * self.own
        return names[self.kind].format(self.value) + "".join(more)


def copying(how: Augment, count: int) -> Augment | None:
    """Changes of the copies of so many samples; None: there are none. Mixed samples have no label of their own."""
    plain = replace(how, mixup=0.0)
    return plain if plain.changes and 0 < count <= MANY else None


def list_candidates(x: Array, how: Augment, count: int = 1) -> list[Contender]:
    """Candidates of the kinds that look at features, of so many training samples like these."""
    if not kind_of_features(x):
        return []
    ways = (False, True) if copying(how, count) else (False,)
    grid = [(TREES, float(leaf)) for leaf in LEAVES] + [(LINEAR, c) for c in PENALTIES]
    return [Contender(kind, value, copies) for kind, value in grid for copies in ways]


@dataclass(frozen=True)
class Lesson:
    """Features to learn from: of the samples themselves, and of these with their copies."""

    own: tuple[Floats, Codes]
    copied: tuple[Floats, Codes]


def make_lesson(train: Part, how: Augment, random: np.random.Generator) -> Lesson:
    """The features of training samples; with copies, if there are to be some."""
    x, y = train
    own = features_of(x), y
    changed = copying(how, len(y))
    if changed is None:
        return Lesson(own, own)
    count = next(copies for most, copies in COPIES.items() if len(y) <= most)
    more = [features_of(augment(x, changed, random)) for _ in range(count)]
    return Lesson(own, (np.concatenate([own[0], *more]), np.tile(y, 1 + count)))


def fit(candidate: Contender, lesson: Lesson, classes: int, seed: int) -> Scores:
    """The candidate, trained."""
    x, y = lesson.copied if candidate.copies else lesson.own
    if candidate.kind == LINEAR:
        return fit_linear(x, y, lesson.own[0], classes, candidate.value)
    return fit_trees(x, y, classes, int(candidate.value), seed)


def most_likely(scores: Floats, allowed: Codes | None = None) -> Codes:
    """The class with the highest score for each row. `allowed`: codes of those that may be; None: all."""
    if allowed is None:
        return np.asarray(scores.argmax(1), np.int64)
    return np.asarray(allowed[scores[:, allowed].argmax(1)], np.int64)


def labels_of(parts: Sequence[Part]) -> Codes:
    """The classes that occur in some parts."""
    return np.unique(np.concatenate([y for _, y in parts]))
