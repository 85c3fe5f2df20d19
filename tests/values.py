"""Bundles that predict values, for tests: of three numbers a rate in bpm, and a level without unit beside it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from edge_sdk.model.tasks.task import Values
from tests.layers import compile_layers

RATE = Values(("bpm",), (), (40.0,), (180.0,))
BOTH = Values(("bpm", ""), ("rate", "level"), (40.0, 0.0), (180.0, 10.0))


def compile_linear(path: Path, task: Values = RATE, hidden: int = 0) -> Path:
    """Writes the bundle: 3 inputs, so many hidden units (0: none), an output for each value."""
    return compile_layers(path, "linear", "mean_squared_error", task, hidden)


def draw(count: int, seed: int = 0) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float64]]:
    """Inputs (count, 3) and the rates (count,) that follow from them, with noise of 2 bpm."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(count, 3)).astype(np.float32)
    return x, 100 + x @ np.array([20.0, -10.0, 5.0]) + random.normal(0, 2, count)
