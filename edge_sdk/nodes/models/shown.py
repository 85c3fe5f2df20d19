"""Predictions of models that predict no class, as people see them: values, sets of labels, steps, scores."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import sqrt
from typing import Protocol

import numpy as np
import numpy.typing as npt

from edge_sdk.algebra.metrics.label_sets import choose_thresholds
from edge_sdk.algebra.metrics.reconstruction import QUANTILE
from edge_sdk.algebra.metrics.regression import NINETY, SQUARED
from edge_sdk.model.model import Model
from edge_sdk.model.tasks.task import FORECAST, LABELS, RECONSTRUCTION, STEPS
from edge_sdk.model.tasks.values import Values
from edge_sdk.nodes.models.kept_models import KeptModels
from edge_sdk.nodes.models.predictions import Predictions


class Working(Protocol):
    """The model that predicts, as far as its predictions need it; see `working_model.WorkingModel`."""

    @property
    def model(self) -> Model: ...
    @property
    def kept(self) -> KeptModels: ...
    @property
    def classes(self) -> tuple[str, ...]: ...
    @property
    def run(self) -> str: ...


def show_values(working: Working, name: str, rows: npt.NDArray[np.floating]) -> Predictions:
    """Values (N, K), or of steps (N, K, S), in their units, with intervals where the model has been judged here."""
    task, kept = working.model.task, working.kept
    assert isinstance(task, Values)
    squared = [kept.scores.get(f"{name}_{SQUARED}:{k}") for k in range(len(task.units))]
    samples = kept.scores.get("samples", 0.0)
    known = samples > 0 and None not in squared
    scores = [(s or 0.0) / samples for s in squared] if known else []
    spread = tuple(NINETY * sqrt(s) * float(half) for s, half in zip(scores, task.half, strict=known))
    found = Predictions(np.zeros((len(rows), 0)), task.named(working.classes), name, working.run)
    return replace(found, values=rows, units=task.units, spread=spread)


def show_sets(working: Working, name: str, rows: npt.NDArray[np.floating]) -> Predictions:
    """Probabilities (N, K) of labels, with thresholds that are chosen where the model has been judged here."""
    names = working.model.task.named()
    thresholds, chosen = choose_thresholds(working.kept.scores, len(names), f"{name}_")
    own = frozenset(label for label, is_chosen in zip(names, chosen, strict=True) if is_chosen)
    return Predictions(rows, names, name, working.run, thresholds=thresholds, chosen=own)


def show_steps(working: Working, name: str, rows: npt.NDArray[np.floating]) -> Predictions:
    """Probabilities (N, K, S) of classes at each step."""
    return Predictions(rows, working.model.task.named(), name, working.run)


def show_scores(working: Working, name: str, rows: npt.NDArray[np.floating]) -> Predictions:
    """Scores (N, 1) as anomalies, with the threshold of this device where the model has been judged here."""
    kept = working.kept.scores
    threshold = kept.get(f"{name}_{QUANTILE}") if kept.get("devices") else None
    found = Predictions(np.zeros((len(rows), 0)), working.classes, name, working.run)
    return replace(found, scores=rows, threshold=threshold)


SHOW: Mapping[str, Callable[[Working, str, npt.NDArray[np.floating]], Predictions]] = {
    LABELS: show_sets,
    STEPS: show_steps,
    RECONSTRUCTION: show_scores,
    FORECAST: show_scores,
}
"""Kind of a task -> predictions of a model of this name, of rows as people see them; values are `show_values`'s."""


def show(working: Working, name: str, rows: npt.NDArray[np.floating]) -> Predictions:
    """Predictions of a model of this name, of rows as people see them."""
    task = working.model.task
    return (show_values if isinstance(task, Values) else SHOW[task.kind])(working, name, rows)
