"""What FedAL's nodes say to each other. No array in it has the size of a model, unless parameters are averaged.

A question says with `then` what it wants: LOGITS of the next public batch, the MODEL (`Share`), or that the round is
SETTLED.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from edge_sdk.algebra.arrays import Values
from edge_sdk.algebra.vectors import Layout
from edge_sdk.methods.fedal.distillation import Logits, Stack
from edge_sdk.methods.shared.aggregation.exact import LARGEST
from edge_sdk.methods.shared.aggregation.gather import Sum
from edge_sdk.methods.shared.aggregation.guard import Measure, norm

LOGITS, MODEL, SETTLED = "logits", "model", "settled"  # what a question wants to be answered with
ANSWERS = (LOGITS, MODEL, SETTLED)
FIRST_MODEL, FIRST_LOGIT, USUAL_LOGIT = 1e4, 10.0, 1.0
"""Usual lengths: of a model and of logits as long as there is no majority, and of logits of untrained models."""


@dataclass(frozen=True)
class Local:
    """Down: a round begins with the local stage. `then`: what is wanted after it, LOGITS or MODEL."""

    round: int
    then: str

    def check(self, layout: Layout) -> None:
        check_question(self.round, 0, self.then)


@dataclass(frozen=True)
class Consensus:
    """Aggregator -> hospital: what an exchange has brought.

    Attributes:
        round, exchange: t, i.
        count: devices in it.
        mean: fbar (B, K); None: kd = 0.
        slots: numbers of the hospital's devices that were in it.
        gradients: g_n of each of these (D, B, K); None: al = 0, or nobody to be told apart from.
        then: LOGITS of the next batch, or what ends the stage.
    """

    round: int
    exchange: int
    count: int
    mean: Logits | None
    slots: tuple[int, ...]
    gradients: Stack | None
    then: str

    def check(self, layout: Layout) -> None:
        check_question(self.round, self.exchange, self.then)
        check_slots(self.slots, self.gradients)
        if self.count < len(self.slots):
            raise ValueError(f"an exchange of {self.count} devices, {len(self.slots)} of them here")


@dataclass(frozen=True)
class Feedback:
    """Hospital -> device: the same for one device. `gradient`: its own g_n (B, K)."""

    round: int
    exchange: int
    count: int
    mean: Logits | None
    gradient: Logits | None
    then: str

    def check(self, layout: Layout) -> None:
        check_question(self.round, self.exchange, self.then)
        if self.count < 0:
            raise ValueError(f"an exchange of {self.count} devices, 0 or more")


@dataclass(frozen=True)
class Averages:
    """Aggregator -> hospital: architecture -> mean model of its devices, where there are at least two."""

    round: int
    models: Mapping[str, Values]
    then: str

    def check(self, layout: Layout) -> None:
        check_question(self.round, 0, self.then)


@dataclass(frozen=True)
class Average:
    """Hospital -> device: the model of its architecture; None: keep your own."""

    round: int
    model: Values | None
    then: str

    def check(self, layout: Layout) -> None:
        check_question(self.round, 0, self.then)


@dataclass(frozen=True)
class Outputs:
    """Device -> hospital: f_n on the batch of the exchange."""

    logits: Logits

    def check(self, layout: Layout) -> None:
        check_logits(self.logits)

    def measure(self) -> Measure:
        return measure_logits(self.logits)


@dataclass(frozen=True)
class HospitalLogits:
    """Hospital -> aggregator: the logits (D, B, K) of its devices, which are numbers."""

    written_as: ClassVar[str] = "Parcel"

    slots: tuple[int, ...]
    logits: Stack

    def check(self, layout: Layout) -> None:
        check_slots(self.slots, self.logits)
        check_logits(self.logits)

    def measure(self) -> Measure:
        return measure_logits(self.logits)


@dataclass(frozen=True)
class Share:
    """Device -> hospital: |D_n| theta_n and |D_n|; in `Shares` their sums over an architecture's devices."""

    architecture: str
    total: Values
    weight: float
    count: int = 1

    def check(self, layout: Layout) -> None:
        Sum(self.total, self.weight, self.count).check(layout)

    def measure(self) -> Measure:
        """Length and weight of a model; lengths differ as architectures do."""
        return Measure(norm(self.total) / self.weight, self.weight / self.count, 30.0, "model", FIRST_MODEL)


@dataclass(frozen=True)
class Shares:
    """Hospital -> aggregator: one for each architecture."""

    parts: tuple[Share, ...]


@dataclass(frozen=True)
class Settled:
    """Up: the round is done, by `count` devices. `scores`: sums over them."""

    count: int = 1
    scores: Mapping[str, float] = field(default_factory=dict)

    def check(self, layout: Layout) -> None:
        Sum(np.zeros(0), 1.0, self.count, self.scores).check(layout)


@dataclass(frozen=True)
class Shown:
    """For evaluation: there is no model to be shown, each device judges its own."""

    round: int


def check_question(round: int, exchange: int, then: str) -> None:
    if round < 0 or exchange < 0 or then not in ANSWERS:
        raise ValueError(f"round {round}, exchange {exchange}, then {then!r}: numbers from 0, and one of {ANSWERS}")


def check_logits(logits: Logits | Stack) -> None:
    """Raises ValueError for logits whose sum over many devices would not be a number."""
    if not (np.abs(logits) <= LARGEST).all():
        raise ValueError(f"a logit that is not finite or above {LARGEST:.0f}: the sender's training diverged")


def measure_logits(logits: Logits | Stack) -> Measure:
    """The root mean square of logits, which hardly depends on how many there are; every device counts alike.

    One device whose logits are ten times as large as those of all others would be most of their mean.
    """
    return Measure(norm(logits.ravel()) / max(1.0, logits.size**0.5), 1.0, 10.0, "logits", FIRST_LOGIT, USUAL_LOGIT)


def check_slots(slots: tuple[int, ...], arrays: Stack | None) -> None:
    if list(slots) != sorted(set(slots)) or any(s < 0 for s in slots):
        raise ValueError(f"slots {slots}: numbers from 0 on, rising")
    if arrays is not None and len(arrays) != len(slots):
        raise ValueError(f"{len(arrays)} arrays for {len(slots)} slots")
