"""Settings of settling, and the candidates among which the fleet chooses: the [run.settle] table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

from edge_sdk.errors import UsageError
from edge_sdk.methods.shared.training.local import above_zero, one_of, zero_or_more

NETWORK, FOREST, TAUGHT_FOREST = 0, 1, 2
NOISY: Mapping[str, Any] = {
    "steps": (0, 100, 400), "local_steps": (200,), "local_weights": (0.0, 0.5, 1.0),
    "label_weights": (0.5,), "label_thresholds": (0.8, 0.95),
}  # fmt: skip
"""Candidates of a run with noise where [run.settle] does not say: of many noisy counts the best is the luckiest."""


@dataclass(frozen=True)
class Candidate:
    """One way to predict in the end.

    Attributes:
        steps: of the personalised model, from the start that all settle from.
        local_steps: of the local model, from the initial one.
        weight: of the device's own model in the prediction; at 0 and at 1 one of the two does not matter (0).
        forest: what its own model is: the local one (NETWORK), a forest on its labelled samples (FOREST), or one that
            also has the samples which the device has labelled itself (TAUGHT_FOREST).
    """

    steps: int
    local_steps: int
    weight: float
    forest: int = 0

    @property
    def is_alone(self) -> bool:
        """True for a model that a device makes without the others, by their labels or by their model's."""
        return self.weight == 1 and self.forest != TAUGHT_FOREST


@dataclass(frozen=True, kw_only=True)
class Settling:
    """Settings of the settling phase.

    Attributes:
        optimiser: "adam" or "sgd"; the same for the local model.
        rate: its step size.
        weight_decay: pulls the personal component to zero and the local model to the initial one.
        batch: samples per step; 0: all of them.
        steps: candidate numbers of steps of the personalised model.
        local_steps: candidate numbers of steps of the local model, the device's own training from the initial model.
        local_weights: candidate weights of the local model in the prediction: 0 is the personalised model only, 1 the
            local one only.
        personal: "dense", or "sparse": the personal component is penalised, but for the last layer (the head).
        penalty: of a sparse component: soft threshold in units of `rate` after each step. Adam's steps are about
            `rate` long, so between 0 and 1 it is the share of a step that an entry must keep up to leave zero; .4
            leaves about a tenth of the entries, 1 next to none.
        density: largest share of its entries, the head's included, that a sparse component may have outside zero when
            it is judged and kept; the smallest are left out. The penalty alone needs some hundred steps to get there.
        mask: no device predicts a class of which it has never had a label.
        start: the model that all settle from: "global", or "personal" where the method has such a model (FedBCD).
        trees: of a forest on features of a device's own samples (algebra/forest.py), a candidate beside the local model
            for the prediction, and a teacher beside the global one; 0: there is none.
        copies: changed copies of each labelled sample that a forest has too, where the run augments.
        statistics: before the first round the fleet adds up means and variances of features, by which a network that
            has a layer `standardise` standardises them.
        label_times: how often devices label their own unlabelled samples; 0: never.
        label_every: rounds between these times, and after the last.
        label_weights: candidate weights of the forest beside the global model when they do; 0: the global model only.
        label_thresholds: candidate probabilities above which a label is taken.
        label_precision: share of the fleet's validation samples above a threshold that must be right. Where no
            candidate reaches it at first, no device labels anything.
        label_smooth: neighbouring samples of a recording over which probabilities are smoothed before.
        label_sharpness: power to which the mixture's probabilities are raised before: two teachers that agree are surer
            than each of them.
        label_share: largest share of what a device labels itself that may be of one class, in units of an even share.
        keep_own: a device predicts with what it made alone where its own samples say so (own_line.py).
    """

    optimiser: str = "adam"
    rate: float = 1e-3
    weight_decay: float = 0.0
    batch: int = 20
    steps: tuple[int, ...] = (0, 25, 50, 100, 200, 400)
    local_steps: tuple[int, ...] = (100, 200, 400, 800)
    local_weights: tuple[float, ...] = (0.0, 0.25, 0.5, 0.75, 1.0)
    personal: str = "sparse"
    penalty: float = 0.4
    density: float = 0.2
    mask: bool = True
    start: str = "global"
    trees: int = 0
    copies: int = 8
    statistics: bool = False
    label_times: int = 0
    label_every: int = 20
    label_weights: tuple[float, ...] = (0.25, 0.5, 0.75, 1.0)
    label_thresholds: tuple[float, ...] = (0.7, 0.8, 0.9, 0.95, 0.99)
    label_precision: float = 0.85
    label_smooth: int = 7
    label_sharpness: float = 2.0
    label_share: float = 3.0
    keep_own: bool = True

    def __post_init__(self) -> None:
        above_zero(self, "rate")
        above_zero(self, "label_every", "label_smooth", "label_sharpness", "label_share")
        zero_or_more(self, "weight_decay", "batch", "penalty", "trees", "copies", "label_times")
        if not 0 < self.density <= 1:
            raise UsageError(f"density = {self.density}: a share above 0, at most 1")
        one_of(self, ("adam", "sgd"), "optimiser")
        one_of(self, ("dense", "sparse"), "personal")
        one_of(self, ("global", "personal"), "start")
        if not 0 < self.label_precision <= 1:
            raise UsageError(f"label_precision = {self.label_precision}: a share above 0, at most 1")
        for name in ("steps", "local_steps", "local_weights", "label_weights", "label_thresholds"):
            values = getattr(self, name)
            if not values or list(values) != sorted(set(values)) or not all(isfinite(v) and v >= 0 for v in values):
                raise UsageError(f"{name} = {list(values)}: one or more numbers of 0 or more, each once, ascending")
        for name in ("local_weights", "label_weights", "label_thresholds"):
            if getattr(self, name)[-1] > 1:
                raise UsageError(f"{name} = {list(getattr(self, name))}: they lie between 0 and 1")

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """All ways to predict, in the order in which their correct answers are counted; all nodes have the same.

        The local model on its own is always among them, whatever the weights: it is what the fleet must beat.
        """
        inner = [w for w in self.local_weights if 0 < w < 1]
        found = [Candidate(0, k, 1.0) for k in self.local_steps]
        if 0 in self.local_weights:
            found += [Candidate(n, 0, 0.0) for n in self.steps]
        found += [Candidate(n, k, w) for k in self.local_steps for n in self.steps for w in inner]
        if self.trees:
            found += [Candidate(0, 0, 1.0, kind) for kind in self.forests]
            found += [Candidate(n, 0, w, self.forests[-1]) for n in self.steps for w in inner]
        return tuple(found)

    @property
    def forests(self) -> tuple[int, ...]:
        """Kinds of forests that a device makes; the last one is beside the personalised model."""
        return (FOREST, TAUGHT_FOREST) if self.label_times else (FOREST,)
