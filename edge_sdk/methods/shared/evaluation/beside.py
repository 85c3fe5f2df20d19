"""What is among a device's models that is none: its forest, and that it predicts with what it made alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from edge_sdk.algebra.ensemble import Ensemble
from edge_sdk.algebra.vectors import Vector
from edge_sdk.contract.method import OUT, Send
from edge_sdk.methods.shared.evaluation.reports import Diverged

FOREST = "forest"
"""What a device's ensemble has beside its models: a vector of algebra/forest.pack, of no theta's length."""
OWN = "own"
"""Of a device that is better off alone: (4,), mean losses on its own validation samples of what the fleet has chosen
and of what it made alone, how many samples these are, and the weight of its forest beside its network."""
BESIDE = (FOREST, OWN)


@dataclass(frozen=True)
class OwnKept:
    """Device: it predicts with what it made alone, which is better on its own validation samples.

    Attributes:
        round: rounds that are over.
        loss, loss_own: mean losses of what the fleet has chosen, and of what the device made alone, on `samples`.

    >>> OwnKept(50, loss=1.25, loss_own=0.5, samples=21).what
    'it predicts with what it made alone: the mean loss on 21 own samples is 0.5, 1.25 with what the run made'
    """

    round: int
    loss: float
    loss_own: float
    samples: int

    @property
    def what(self) -> str:
        """A sentence for people."""
        losses = f"the mean loss on {self.samples} own samples is {self.loss_own:.3g}, {self.loss:.3g}"
        return f"it predicts with what it made alone: {losses} with what the run made"


SAID = (Diverged, OwnKept)
"""What a device tells with a sentence for its log: `what`, of a `round`."""


def with_forest(
    models: Mapping[str, Vector], ensemble: Ensemble | None
) -> tuple[Mapping[str, Vector], Ensemble | None]:
    """Models without what is none, and an ensemble with the forest among them, and with the weight that OWN says."""
    rest = {name: theta for name, theta in models.items() if name not in BESIDE}
    if ensemble is not None and OWN in models:
        ensemble = replace(ensemble, weight=float(models[OWN][3]))
    if ensemble is None or FOREST not in models:
        return rest, ensemble
    return rest, replace(ensemble, forest=models[FOREST])


def told_of_own(round: int, models: Mapping[str, Vector]) -> list[Send]:
    """What a device's application is told if it predicts with what it made alone."""
    if OWN not in models:
        return []
    loss, loss_own, samples, _ = models[OWN].tolist()
    return [Send(OUT, OwnKept(round, loss, loss_own, int(samples)))]
