"""Models that predict: windows smoothed together, and which runs' files stay."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from edge_sdk.errors import UsageError
from edge_sdk.model.tasks.step_classes import StepClasses
from edge_sdk.model.tasks.values import Values
from edge_sdk.nodes.models.kept_models import KeptModels
from edge_sdk.nodes.models.predictions import Predictions
from edge_sdk.nodes.models.shown import show_values
from edge_sdk.nodes.models.working_model import KEEP, WorkingModel, mean_of_last, remove_old_runs


def test_a_row_is_smoothed_with_those_before_it() -> None:
    rows = np.array([[1.0], [3.0], [8.0], [0.0]])
    assert mean_of_last(rows, 1).tolist() == rows.tolist() and mean_of_last(rows[:0], 2).shape == (0, 1)
    assert mean_of_last(rows, 2)[:, 0].tolist() == [1.0, 2.0, 5.5, 4.0]
    assert mean_of_last(rows, 3)[:, 0].tolist() == pytest.approx([1.0, 2.0, 4.0, 11 / 3])


def test_steps_of_several_windows_are_not_smoothed() -> None:
    model = SimpleNamespace(task=StepClasses(("a", "b"), 2), name="steps", theta0=np.zeros(0))
    working = WorkingModel("d1", cast(Any, model), ("a", "b"), KeptModels())
    with pytest.raises(UsageError, match="smooth = 2: steps tells the steps of each window"):
        working.predict(np.zeros((1, 1, 4), np.float32), None, smooth=2)


def test_the_files_of_the_latest_runs_stay(tmp_path: Path) -> None:
    runs = [f"run-{k}" for k in range(6)]
    for age, run in enumerate(runs):
        (tmp_path / f"{run}.db").touch()
        os.utime(tmp_path / f"{run}.db", (1000 + age, 1000 + age))
    (tmp_path / "run-0.npz").touch()
    assert remove_old_runs(tmp_path, "run-5") == ["run-0", "run-1", "run-2"]
    assert {path.name for path in tmp_path.iterdir()} == {f"{run}.db" for run in runs[-KEEP:]}


def test_intervals_of_values_are_of_the_mean_squared_errors() -> None:
    task = Values(("bpm", ""), low=(0.0, 0.0), high=(10.0, 2.0))
    scores = {"samples": 4.0, "global_squared:0": 36.0, "global_squared:1": 0.0}
    model = cast(Any, SimpleNamespace(task=task))
    rows = np.array([[1.0, 2.0], [3.0, 4.0]])
    found = show_values(WorkingModel("d1", model, ("a", "b"), KeptModels(scores=scores), "r"), "global", rows)
    assert found.probabilities.shape == (2, 0) and found.spread == pytest.approx((1.645 * 3 * 5, 0.0))
    assert show_values(WorkingModel("d1", model, ("a", "b"), KeptModels(), "r"), "global", rows).spread == ()


def test_values_of_steps_have_no_probabilities() -> None:
    values = np.arange(6.0).reshape(1, 2, 3)
    one = Predictions(np.zeros((1, 0)), ("a", "b"), "global", "r", values=values, units=("", "bpm"))[0]
    assert one.curve is not None and one.curve.tolist() == values[0].tolist()
    assert one.probabilities.shape == (0,) and not one.values and one.low is None
