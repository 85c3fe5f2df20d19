"""Protocols of a task: what all that trains, judges and shows a model needs to know of what it predicts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.floating]
Label = str | float | tuple[float, ...] | frozenset[str]
"""What somebody has said of a sample: the name of its class, a number or several, or a set of labels (or its text)."""


class ModelTask(Protocol):
    """What a model predicts."""

    @property
    def kind(self) -> str:
        """Name of the task, as the manifest has it."""

    @property
    def histograms(self) -> int:
        """Outputs of whose scores evaluations tell histograms; 0: they tell none, and `evaluate` is not called."""

    def named(self, names: Sequence[str] = ()) -> tuple[str, ...]:
        """Names of the outputs: those of the bundle or of a run, or numbers."""

    def in_words(self, names: Sequence[str] = ()) -> str:
        """What is predicted."""

    def identity(self, names: Sequence[str]) -> tuple[str, ...]:
        """What tells apart models whose predictions cannot be compared. `names`: of the outputs."""

    def listed(self, labels: Sequence[Label], names: Sequence[str]) -> npt.NDArray[np.bool_]:
        """The samples whose labels are of use in a run with these names of outputs, as a mask (N,)."""

    def targets(self, labels: Iterable[Label], names: Sequence[str], where: str) -> Array:
        """Labels as a model is trained with them.

        Raises:
            UsageError: one is no target of this task. `where` says whose label it is.
        """

    def write(self, label: Label) -> str:
        """A label as a text, in which form it is kept beside what was observed. UsageError: it is none of this task."""

    def counts(self, y: Array, outputs: Floats) -> dict[str, float]:
        """Sums of scores over targets y and outputs (N, ...), but for the loss and the number of samples."""

    def of_a_device(self, sums: Mapping[str, float]) -> dict[str, float]:
        """Further scores of one device, by its own sums: what does not add up over its samples, and is a mean over
        devices all the same."""

    def evaluate(self, y: Array, outputs: Floats, losses: Floats) -> dict[str, float]:
        """Sums of an evaluation: samples, their loss, `counts`, and histograms as of `classification.histogram`."""

    def fleet_scores(self, sums: Mapping[str, float]) -> dict[str, Any]:
        """What a line of metrics has beside the sums of an evaluation, in JSON's types."""

    def describe(self, sums: Mapping[str, float]) -> str:
        """Scores of one device's models in words, "" where there are none; `sums`: as `reports.judge` names them."""


class OutputTask(ModelTask, Protocol):
    """A task whose models are judged by sums over their outputs, and not by who was taken for whom."""

    @property
    def outputs(self) -> int:
        """Numbers that a model predicts for each sample."""

    def entry(self) -> dict[str, Any]:
        """The manifest's entry."""

    def shown(self, outputs: Floats) -> npt.NDArray[np.float64]:
        """Predictions (N, K) as people see them: probabilities, or values in their units."""

    def judged(self, y: Array, outputs: Floats) -> dict[str, float]:
        """Sums over test samples of all that is told of a model when a run is over, beside their number."""

    def badness(self, sums: Mapping[str, float]) -> float:
        """By how much a model with these sums is worse than a perfect one; `sums`: as `judged`, added up."""

    def baseline(self, y: Array) -> Floats:
        """Outputs (1, K) that say the same of each sample: what others must beat. `y`: targets to learn it from."""

    def sample_losses(self, labels: Sequence[Label], rows: Floats, where: str) -> npt.NDArray[np.float64]:
        """What is lost on each sample, (N,), from 0 up. `rows`: predictions (N, K), as people see them."""
