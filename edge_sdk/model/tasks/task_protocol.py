"""Protocols of a task: what all that trains, judges and shows a model needs to know of what it predicts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt

from edge_sdk.errors import UsageError
from edge_sdk.label_names import label_key

CLASS = "class"
"""The kind of a bundle that says nothing else: one class for each sample."""
VALUE = "value"
LABELS = "labels"
STEPS = "steps"
STEP_VALUES = "step_values"
RECONSTRUCTION = "reconstruction"
FORECAST = "forecast"
"""The kinds of the other tasks here, each of a module that is loaded for a bundle of that kind."""
Array = npt.NDArray[Any]
Floats = npt.NDArray[np.floating]
Label = str | float | tuple[float, ...] | frozenset[str]
"""What somebody has said of a sample: the name of its class, a number or several, or a set of labels (or its text)."""
MOST_STEPS = 4096
MOVED = "a window that is moved in time has something else at its steps; leave shift out"


class ModelTask(Protocol):
    """What a model predicts."""

    @property
    def kind(self) -> str:
        """Name of the task, as the manifest has it."""

    @property
    def histograms(self) -> int:
        """Outputs of whose scores evaluations tell histograms; 0: they tell none, and `evaluate` is not called."""

    @property
    def evaluates(self) -> bool:
        """Do evaluations tell more than `counts`? Then `evaluate` is called."""

    @property
    def needs_labels(self) -> bool:
        """Is a window without a label of no use?"""

    @property
    def augments(self) -> bool:
        """Is what a sample is trained with the same after the sample was changed at random?"""

    @property
    def steps(self) -> int:
        """Steps of a window, of each of which something is predicted by itself; 0: one thing is, of the whole window.
        The "samples" of scores are such steps, then."""

    @property
    def calibrates(self) -> bool:
        """Does a device need samples to make choices on, also in a run that has no phase of choices?"""

    def fits(self, names: Sequence[str]) -> bool:
        """Are these the names of a run for this task, in their order?"""

    def named(self, names: Sequence[str] = ()) -> tuple[str, ...]:
        """Names of the outputs: those of the bundle or of a run, or numbers."""

    def in_words(self, names: Sequence[str] = ()) -> str:
        """What is predicted."""

    def identity(self, names: Sequence[str]) -> tuple[str, ...]:
        """What tells apart models whose predictions cannot be compared. `names`: of the outputs."""

    def listed(self, labels: Sequence[Label], names: Sequence[str]) -> npt.NDArray[np.bool_]:
        """The samples that a model may be trained on in a run with these names of outputs, by their labels: (N,)."""

    def unlisted(self, labels: Sequence[str], names: Sequence[str]) -> str:
        """Why samples with these labels are not `listed`, as the end of a sentence on a run."""

    def targets(self, labels: Iterable[Label], names: Sequence[str], where: str, x: Array) -> Array:
        """What a model is trained with, of labels and samples x (N, ...).

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

    def output_of(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Shape of a model's output for a sample of this shape."""

    def entry(self) -> dict[str, Any]:
        """The manifest's entry."""

    def shown(self, outputs: Floats, x: Array) -> npt.NDArray[np.float64]:
        """Predictions (N, K) as people see them, of samples x: probabilities, values in their units, errors."""

    def judged_by(self, labels: Sequence[Label], names: Sequence[str]) -> npt.NDArray[np.bool_]:
        """The samples that models are judged by when a run is over, as a mask (N,)."""

    def truths(self, labels: Sequence[Label], names: Sequence[str], where: str, x: Array) -> Array:
        """What models are judged by then, of labels and samples x (N, ...)."""

    def limit_of(self, y: Array, outputs: Floats) -> float | None:
        """What a device learns from its validation samples to judge with; None: nothing. `y`: of `truths`."""

    def judged(self, y: Array, outputs: Floats, limit: float | None = None) -> dict[str, float]:
        """Sums over samples of all that is told of a model when a run is over, beside their number.

        Args:
            y: of `truths`. limit: of `limit_of`.
        """

    def badness(self, sums: Mapping[str, float]) -> float:
        """By how much a model with these sums is worse than a perfect one; `sums`: as `judged`, added up."""

    @property
    def settles(self) -> bool:
        """Does it have `credits`, by which devices that settle choose?"""

    def credits(self, y: Array, outputs: Floats) -> npt.NDArray[np.float64]:
        """Shares (N,) to which outputs are right for targets y, sample by sample: from 0, as wrong as can be, to 1."""

    def baseline(self, y: Array) -> Floats:
        """Outputs (1, K) that say the same of each sample: what others must beat. `y`: targets to learn it from."""

    def sample_losses(self, labels: Sequence[Label], rows: Floats, where: str) -> npt.NDArray[np.float64]:
        """What is lost on each sample, (N,), from 0 up. `rows`: predictions (N, K), as people see them."""


class StepTask(OutputTask, Protocol):
    """A task of something at each of `steps` steps of a window, or of values, whose windows are as a step is."""

    def in_step(self, lasted: Mapping[str, float], unknown: float) -> str:
        """What a step is, by what people have said of its time, as a text; "": too little was said.

        Args:
            lasted: what was said, as `write` has it -> seconds. unknown: seconds of which nothing was said.
        """

    def write_along(self, said: Any) -> tuple[str | None, ...]:
        """What was said of equal parts of a stretch of time, one after the other, as `write` has each; None: nobody
        knows. UsageError: it is none of this task."""


def combines(task: ModelTask) -> bool:
    """Is a label made of all that was said of its time? So it is of steps and of values; a class is one throughout."""
    return task.steps > 0 or task.kind == VALUE


def write_said(task: ModelTask, said: Any) -> str | tuple[str | None, ...]:
    """What somebody has said of a stretch of time, as it is kept: of a model of steps or values a list or an array is
    of equal parts of it. UsageError: it is none of the task."""
    if combines(task) and (isinstance(said, list) or (isinstance(said, np.ndarray) and said.ndim)):
        return cast(StepTask, task).write_along(said)
    return task.write(frozenset(said) if isinstance(said, Set) else said)


def check_steps(kind: str, steps: Any) -> None:
    """Raises UsageError if a window of a task has no such number of steps."""
    if type(steps) is not int or not 1 <= steps <= MOST_STEPS:
        raise UsageError(f"task {kind}: steps = {steps!r:.60}, expected a number of 1 to {MOST_STEPS}")


def lacking(kind: str, labels: Sequence[str], names: Sequence[str]) -> str:
    """A run has no outputs of these names, in words."""
    return f"has no {kind} {', '.join(labels)}; it has {', '.join(names)}"


class ByTargets:
    """A part of a task whose models are judged by what they are trained with, on samples that they could be trained on.

    Attributes:
        outputs, named, listed, targets: as of `OutputTask`.
    """

    needs_labels, augments, calibrates, steps = True, True, False, 0

    @property
    def settles(self) -> bool:
        return False

    def credits(self: OutputTask, y: Array, outputs: Floats) -> npt.NDArray[np.float64]:
        raise TypeError(f"task {self.kind}: nothing is chosen by its outputs")

    def output_of(self: OutputTask, shape: Sequence[int]) -> tuple[int, ...]:
        return (self.outputs,)

    def fits(self: OutputTask, names: Sequence[str]) -> bool:
        """Spellings of one name do not differ."""
        return len(names) == self.outputs and [*map(label_key, self.named(names))] == [*map(label_key, names)]

    def unlisted(self: OutputTask, labels: Sequence[str], names: Sequence[str]) -> str:
        return lacking(self.kind, labels, names)

    def judged_by(self: OutputTask, labels: Sequence[Label], names: Sequence[str]) -> npt.NDArray[np.bool_]:
        return self.listed(labels, names)

    def truths(self: OutputTask, labels: Sequence[Label], names: Sequence[str], where: str, x: Array) -> Array:
        return self.targets(labels, names, where, x)

    def limit_of(self, y: Array, outputs: Floats) -> float | None:
        return None
