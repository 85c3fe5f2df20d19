"""Settings of settling, and the candidates among which the fleet chooses: the [run.settle] table."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

from edge_sdk.errors import UsageError
from edge_sdk.methods.shared.local import above_zero, one_of, zero_or_more


@dataclass(frozen=True)
class Candidate:
    """One way to predict in the end.

    Attributes:
        steps: of the personalised model, from the start that all settle from.
        local_steps: of the local model, from the initial one.
        weight: of the local model in the prediction; at 0 and at 1 one of the two step counts does not matter (0).
    """

    steps: int
    local_steps: int
    weight: float


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

    def __post_init__(self) -> None:
        above_zero(self, "rate")
        zero_or_more(self, "weight_decay", "batch", "penalty")
        if not 0 < self.density <= 1:
            raise UsageError(f"density = {self.density}: a share above 0, at most 1")
        one_of(self, ("adam", "sgd"), "optimiser")
        one_of(self, ("dense", "sparse"), "personal")
        one_of(self, ("global", "personal"), "start")
        for name in ("steps", "local_steps", "local_weights"):
            values = getattr(self, name)
            if not values or list(values) != sorted(set(values)) or not all(isfinite(v) and v >= 0 for v in values):
                raise UsageError(f"{name} = {list(values)}: one or more numbers of 0 or more, each once, ascending")
        if self.local_weights[-1] > 1:
            raise UsageError(f"local_weights = {list(self.local_weights)}: they lie between 0 and 1")

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """All ways to predict, in the order in which their correct answers are counted; all nodes have the same.

        The local model on its own is always among them, whatever the weights: it is what the fleet must beat.
        """
        inner = [w for w in self.local_weights if 0 < w < 1]
        found = [Candidate(0, k, 1.0) for k in self.local_steps]
        if 0 in self.local_weights:
            found += [Candidate(n, 0, 0.0) for n in self.steps]
        return tuple(found + [Candidate(n, k, w) for k in self.local_steps for n in self.steps for w in inner])
