"""Answers as vectors in rings, so that sums of answers are sums of vectors: uploads, scores, counts, features.

    steps    integers of `width` bits: an upload's numbers; how often something is there; histograms
    words    integers of 64 bits: 1 for the device, then exact numbers (weights, scores) in two words each

Nothing is lost: numbers are the fixed-point ones that a hospital adds up in the clear
(methods/shared/aggregation/gather.py), so a sum that is taken apart again is the same to the bit. The first word is 1,
so its sum is how many answers are in a sum. Who takes the masks of other devices off than those whose answers were
added gets random bits there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from edge_sdk.algebra.metrics.classification import BINS, MOST_CLASSES
from edge_sdk.algebra.secure_aggregation.rounding import Steps
from edge_sdk.contract.method import NodeEnv
from edge_sdk.errors import PeerError
from edge_sdk.methods.secret.messages.messages import SumForm
from edge_sdk.methods.settling.counting import Counts
from edge_sdk.methods.shared.aggregation.exact import Exact, bounded, carry_number, number, split_number
from edge_sdk.methods.shared.aggregation.gather import MANY
from edge_sdk.methods.shared.aggregation.scores import (
    LOSS_DEVICES,
    MODELS,
    NAMES,
    OF_SETS,
    PERSONAL_FACTS,
    TEST,
    partial_histograms,
)
from edge_sdk.methods.shared.evaluation.evaluation import Scores
from edge_sdk.methods.standardising.equations import nothing
from edge_sdk.methods.standardising.messages import FeatureSums

MASK_64 = (1 << 64) - 1
MOST_NUMBER = 2.0**28
"""Largest weight or score: more of them than MOST_TERMS fit two words. Only a diverged loss is larger, and is cut."""
WIDE = 32  # bits of counts of samples


@dataclass(frozen=True)
class Flat:
    """An answer, or a sum of some, in rings.

    Attributes:
        steps: uint32 (k,).
        words: uint64 (m,).
    """

    steps: Steps
    words: npt.NDArray[np.uint64]


class SumKind(Protocol):
    """One kind of answer that is added up: how it is written as vectors, and how a sum is read."""

    @property
    def message(self) -> type:
        """Type of the answers."""

    def form(self, env: NodeEnv, message: Any) -> SumForm:
        """What may be read of an answer."""

    def lengths(self, form: SumForm) -> tuple[int, int]:
        """Numbers of steps and of words. Raises PeerError for a form that is not of this kind."""

    def width(self, form: SumForm, terms: int) -> int:
        """Bits of the ring that holds the steps of so many answers."""

    def flatten(self, form: SumForm, message: Any) -> Flat:
        """A device's answer in rings."""

    def restore(self, form: SumForm, terms: int, flat: Flat, cohort: int) -> Any:
        """The sum of so many answers, without what fewer of them than `cohort` have.

        Raises:
            PeerError: no such sum has these vectors.
        """

    def blank(self, form: SumForm) -> Any:
        """An answer of nothing, which a hospital's own role is given in place of a masked one."""

    def nothing(self, form: SumForm) -> Any:
        """What the aggregator's role is given where there is no sum."""


# Numbers --------------------------------------------------------------------------------------------------------
def split_words(value: float) -> tuple[int, int]:
    """A number as two words: multiples of 2**-20 and of 2**-70, in two's complement."""
    high, low = split_number(min(max(value, -MOST_NUMBER), MOST_NUMBER))
    return high & MASK_64, low & MASK_64


def join_words(high: int, low: int, terms: int) -> float:
    """The number that the sums of two words stand for."""
    exact: Exact = (signed(high), signed(low))
    return number(carry_number(exact) if terms >= MANY else exact)  # as `gather.add` does from there on


def signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word


def to_words(values: Sequence[int]) -> npt.NDArray[np.uint64]:
    return np.array(values, np.uint64)


def written_scores(names: Sequence[str], scores: Mapping[str, float]) -> tuple[list[int], list[int]]:
    """Flags of these scores, 1 for each that is there, and their words. The flag of the loss says LOSS_DEVICES."""
    scores = {name: value for name, value in scores.items() if name.removeprefix(TEST) not in OF_SETS}
    if strange := next((name for name in scores if name not in names and name != LOSS_DEVICES), None):
        raise ValueError(f"score {strange!r} is none of those that can be masked")
    there = [int(name in scores) for name in names]
    words = [word for name in names for word in split_words(scores.get(name, 0.0))]
    return there, words


def read_scores(
    names: Sequence[str], there: Sequence[int], words: Sequence[int], terms: int, cohort: int
) -> dict[str, float]:
    """Sums of the scores that at least `cohort` devices have: all of these answered, but not each has each score."""
    if max(there, default=0) > terms:
        raise PeerError(f"a score of {max(there)} devices in a sum of {terms}")
    sums = (join_words(words[2 * i], words[2 * i + 1], terms) for i in range(len(names)))
    counts = dict(zip(names, there, strict=True))
    found = {name: bounded(value) for name, value in zip(names, sums, strict=True) if counts[name] >= cohort}
    return found | ({LOSS_DEVICES: float(counts["loss"])} if "loss" in found else {})


def check_count(words: npt.NDArray[np.uint64], terms: int) -> None:
    """Raises PeerError where the first word is not the number of answers in a sum: the names are not those in it."""
    if int(words[0]) != terms:
        raise PeerError(f"the masks of these {terms} devices do not open it: the answers in it are others")


# Scores of an evaluation ----------------------------------------------------------------------------------------
PLAIN_NAMES = tuple(sorted(NAMES - {LOSS_DEVICES}))
EVALUATION_NAMES = (*PLAIN_NAMES, *(f"{TEST}{name}" for name in PLAIN_NAMES))


class ScoresKind:
    """Scores: which are there and histograms as steps, all others as words. A form's size: classes with histograms."""

    message = Scores

    def form(self, env: NodeEnv, message: Scores) -> SumForm:
        return SumForm(Scores.__name__, size=env.outputs if env.outputs <= MOST_CLASSES else 0, round=message.round)

    def lengths(self, form: SumForm) -> tuple[int, int]:
        if form.size > MOST_CLASSES:
            raise PeerError(f"histograms of {form.size} classes, at most {MOST_CLASSES}")
        return len(EVALUATION_NAMES) + 2 * len(MODELS) * form.size * 2 * BINS, 1 + 2 * len(EVALUATION_NAMES)

    def width(self, form: SumForm, terms: int) -> int:
        return WIDE

    def flatten(self, form: SumForm, message: Scores) -> Flat:
        counts = {name: value for name, value in message.sums.items() if "_auc:" in name}
        others = {n: value for n, value in message.sums.items() if "_auc:" not in n and n not in PERSONAL_FACTS}
        there, words = written_scores(EVALUATION_NAMES, others)
        bins = np.zeros(self.lengths(form)[0] - len(EVALUATION_NAMES), np.uint32)
        for name, value in counts.items():
            bins[place_of(name, form.size)] = int(value)
        return Flat(np.concatenate([np.array(there, np.uint32), bins]), to_words([1, *words]))

    def restore(self, form: SumForm, terms: int, flat: Flat, cohort: int) -> Scores:
        there, bins = np.split(flat.steps, [len(EVALUATION_NAMES)])
        sums = read_scores(EVALUATION_NAMES, there.tolist(), flat.words[1:].tolist(), terms, cohort)
        counts = {name_of(place, form.size): float(bins[place]) for place in np.flatnonzero(bins).tolist()}
        counts = {name: value for name, value in counts.items() if correct_of(name) in sums}
        partial = partial_histograms(sums | counts)
        whole = {name: value for name, value in counts.items() if model_of(name) not in partial}
        return Scores(form.round, sums | whole)

    def blank(self, form: SumForm) -> Scores:
        return Scores(form.round, {})

    def nothing(self, form: SumForm) -> Scores:
        return Scores(form.round, {})


def place_of(name: str, classes: int) -> int:
    """Place of a bin among all. The name is "<model>_auc:<class>:<1 or 0>:<bin>", with TEST before it or not."""
    part, bare = (1, name.removeprefix(TEST)) if name.startswith(TEST) else (0, name)
    model, _, rest = bare.partition("_auc:")
    c, mine, place = (int(text) for text in rest.split(":"))
    if c >= classes:
        raise ValueError(f"score {name!r}, of a model with {classes} classes")
    return (((part * len(MODELS) + MODELS.index(model)) * classes + c) * 2 + mine) * BINS + place


def name_of(place: int, classes: int) -> str:
    """The inverse of `place_of`."""
    rest, place = divmod(place, BINS)
    rest, mine = divmod(rest, 2)
    rest, c = divmod(rest, classes)
    part, model = divmod(rest, len(MODELS))
    return f"{TEST if part else ''}{MODELS[model]}_auc:{c}:{mine}:{place}"


def correct_of(name: str) -> str:
    """Name of the score that each device has which has a bin of this name; a bin does not tell of how many it is."""
    return f"{model_of(name)}_correct"


def model_of(name: str) -> str:
    """Model of a bin, with TEST before it or not."""
    return name.partition("_auc:")[0]


# Counts of settling ---------------------------------------------------------------------------------------------
class CountsKind:
    """Counts of right answers of each candidate, all of them as words."""

    message = Counts

    def form(self, env: NodeEnv, message: Counts) -> SumForm:
        return SumForm(Counts.__name__, size=message.correct.size)

    def lengths(self, form: SumForm) -> tuple[int, int]:
        return 0, 3 + form.size

    def width(self, form: SumForm, terms: int) -> int:
        return WIDE

    def flatten(self, form: SumForm, message: Counts) -> Flat:
        numbers = [1, message.samples, message.devices]
        words = np.concatenate([to_words(numbers), message.correct.astype(np.uint64)])
        return Flat(np.zeros(0, np.uint32), words)

    def restore(self, form: SumForm, terms: int, flat: Flat, cohort: int) -> Counts:
        samples, devices = int(flat.words[1]), int(flat.words[2])
        if devices < cohort:
            return self.nothing(form)
        return Counts(flat.words[3:].view(np.int64), samples, devices)

    def blank(self, form: SumForm) -> Counts:
        return Counts(np.zeros(form.size, np.int64))

    def nothing(self, form: SumForm) -> Counts:
        return Counts(np.zeros(form.size, np.int64))


# Features before the first round --------------------------------------------------------------------------------
class FeatureSumsKind:
    """Means of features and of their squares: fixed-point integers, in two's complement, all of them as words."""

    message = FeatureSums

    def form(self, env: NodeEnv, message: FeatureSums) -> SumForm:
        return SumForm(FeatureSums.__name__, size=nothing(env.layout).high.size)

    def lengths(self, form: SumForm) -> tuple[int, int]:
        return 0, 2 + 2 * form.size

    def width(self, form: SumForm, terms: int) -> int:
        return WIDE

    def flatten(self, form: SumForm, message: FeatureSums) -> Flat:
        if message.high.size != form.size:
            raise ValueError(f"means of {message.high.size // 2} features, the model standardises {form.size // 2}")
        numbers = np.concatenate([message.high, message.low]).astype(np.int64).view(np.uint64)
        return Flat(np.zeros(0, np.uint32), np.concatenate([to_words([1, message.devices]), numbers]))

    def restore(self, form: SumForm, terms: int, flat: Flat, cohort: int) -> FeatureSums:
        devices = int(flat.words[1])
        if devices > terms:
            raise PeerError(f"means of {devices} devices in a sum of {terms}")
        if devices < cohort:
            return self.nothing(form)
        high, low = np.split(flat.words[2:].view(np.int64), 2)
        return FeatureSums(high, low, devices)

    def blank(self, form: SumForm) -> FeatureSums:
        zero = np.zeros(form.size, np.int64)
        return FeatureSums(zero, zero, 0)

    def nothing(self, form: SumForm) -> FeatureSums:
        return self.blank(form)


# Whole numbers --------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class NumbersKind:
    """Answers that are nothing but whole numbers, 0 or more, each of which is added up: a word for each."""

    message: type

    def form(self, env: NodeEnv, message: Any) -> SumForm:
        return SumForm(self.message.__name__)

    def lengths(self, form: SumForm) -> tuple[int, int]:
        return 0, 1 + len(fields(self.message))

    def width(self, form: SumForm, terms: int) -> int:
        return WIDE

    def flatten(self, form: SumForm, message: Any) -> Flat:
        numbers = [getattr(message, f.name) for f in fields(message)]
        return Flat(np.zeros(0, np.uint32), to_words([1, *numbers]))

    def restore(self, form: SumForm, terms: int, flat: Flat, cohort: int) -> Any:
        if (flat.words[1:] > np.uint64(MOST_NUMBER * terms)).any():
            raise PeerError(f"numbers that no sum of {terms} answers has")
        return self.message(*flat.words[1:].tolist())

    def blank(self, form: SumForm) -> Any:
        return self.message(*[0] * len(fields(self.message)))

    def nothing(self, form: SumForm) -> Any:
        return self.blank(form)
