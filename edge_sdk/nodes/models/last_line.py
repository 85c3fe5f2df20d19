"""The last line against a bad run: its models predict only where they are not worse than those before.

Each time a run has made new models, they are compared with those that predicted before the run, on the device's own
validation samples (held-out ones where there are no others). A poisoned fleet can so spoil a run, and costs a device
what the run would have gained, no more. McNemar's test decides: of the samples that just one of the two gets right,
those of the old models must outnumber those of the new ones by more than SURE standard deviations of chance. So few
samples seldom keep a model out, and small losses never do. Of values, |errors| are compared in place of wrong samples,
and of sets of labels the shares of labels that are wrong.

Source: Q. McNemar, "Note on the sampling error of the difference between correlated proportions", Psychometrika 1947.

    before     the run that it was written for, and the one whose models predicted before it; a line each
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from edge_sdk.atomic import write_text
from edge_sdk.data.samples import Samples
from edge_sdk.model.model import Model
from edge_sdk.model.tasks.task import OneClass
from edge_sdk.nodes.models.versions import mark_losses
from edge_sdk.nodes.models.working_model import BEFORE, WorkingModel, initial_model, load_run, read_before

SURE = 2.0
MOST = 1024
"""Samples that models are compared on, spread over all there are: the network waits while they are predicted."""
LARGEST = 1e100
"""Of losses, whose squares are added up."""


def are_worse(losses: npt.NDArray[Any], before: npt.NDArray[Any]) -> bool:
    """True if new models are surely worse than those before, by the losses (n,) of both on the same samples.

    The loss of a class is 1 where it is wrong, else 0; then this is McNemar's test.
    """
    lost = bounded(losses) - bounded(before)
    return bool(lost.sum() > SURE * sqrt(np.square(lost).sum()))


def bounded(losses: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Losses (n,) that can be squared and added up: at most LARGEST, which one that is no number is, too."""
    return np.fmin(losses.astype(np.float64), LARGEST)


def spread(samples: Samples) -> Samples:
    """The samples, or MOST of them at equal distances."""
    if len(samples) <= MOST:
        return samples
    rows = np.linspace(0, len(samples) - 1, MOST).astype(np.intp)
    return Samples(samples.x[rows], tuple(samples.labels[i] for i in rows))


@dataclass(frozen=True)
class ModelsDeclined:
    """An event: a run has made models that do not predict here, because those before it are better on own samples.

    Attributes:
        run: id of the run. before: of the run whose models predict on; "": the bundle's initial model does.
        right, right_before: own samples that the new models, and those before, get right; `samples`: of so many.
        loss, loss_before: mean loss on a sample: the share that is wrong; of sets of labels the share of the labels
            that are wrong; of values, which have no right ones, the mean absolute error in halves of the range.

    >>> ModelsDeclined("run-2", "run-1", right=10, right_before=30, samples=40).before
    'run-1'
    """

    run: str
    before: str
    right: int
    right_before: int
    samples: int
    loss: float = field(default=0.0, compare=False)
    loss_before: float = field(default=0.0, compare=False)


class LastLine:
    """What a device asks before new models predict.

    Args:
        directory: the device's.
        model: that of the application's bundle.
        tell: is handed `ModelsDeclined`, once for each time that models are declined.
    """

    def __init__(
        self, name: str, directory: Path, model: Model, threads: int, tell: Callable[[Any], Any], log: logging.Logger
    ):
        self.whose, self.directory, self.model, self.threads = f"device {name}", directory, model, threads
        self.tell, self.log = tell, log

    def choose(self, working: WorkingModel, new: WorkingModel, samples: Samples | None) -> WorkingModel:
        """The models that are to predict: those of a run, or the ones that predicted before it.

        Args:
            working: those that predict now.
            samples: the device's own, apart from those that it trains on; None: it has none.
        """
        before = self.find_before(working, new.run)
        if before is None or samples is None or not len(samples) or new.model.bundle.is_split:
            return new
        if what_of(before) != what_of(new):
            return new  # they predict something else
        samples = spread(samples)
        old, other = mark_losses(before, samples), mark_losses(new, samples)
        if not are_worse(other, old):
            return new
        right = right_before = 0
        if not isinstance(new.model.task, OneClass):
            told = f"the mean loss on {len(samples)} own samples is {other.mean():.3g}, {old.mean():.3g}"
        else:
            right, right_before = (len(samples) - round(float(losses.sum())) for losses in (other, old))
            told = f"{right} of {len(samples)} own samples are right, {right_before}"
        declined = ModelsDeclined(
            new.run, before.run, right, right_before, len(samples), float(other.mean()), float(old.mean())
        )
        words = "%s: the models of run %s are declined: %s with those before (%s)"
        self.log.warning(words, self.whose, new.run, told, before.run or "the initial model")
        self.tell(declined)
        return before

    def find_before(self, working: WorkingModel, run: str) -> WorkingModel | None:
        """The model that predicted before a run began here; None: nothing that was trained."""
        found = working
        if working.run != run:
            write_text(self.directory / BEFORE, f"{run}\n{working.run}\n", lasting=True)
        else:
            noted, earlier = read_before(self.directory)
            if noted != run:
                return None
            kept = load_run(self.directory, earlier, self.whose, self.model, self.threads)
            found = kept or initial_model(self.whose, self.model)
        return found if found.run or found.model.bundle.class_names else None


def what_of(working: WorkingModel) -> tuple[str, ...]:
    """What a model predicts: classes, whichever they are, or these values."""
    return working.model.task.identity(working.classes)
