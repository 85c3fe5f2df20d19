"""Bundles that predict values, for tests: of three numbers a rate in bpm, and a level without unit beside it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from edge_sdk.model.task import Values

RATE = Values(("bpm",), (), (40.0,), (180.0,))
BOTH = Values(("bpm", ""), ("rate", "level"), (40.0, 0.0), (180.0, 10.0))


def compile_linear(path: Path, task: Values = RATE, hidden: int = 0) -> Path:
    """Writes the bundle: 3 inputs, so many hidden units (0: none), an output for each value."""
    import torch
    from torch import nn

    from edge_sdk.models.bundle.compile import compile_module
    from edge_sdk.models.ir.spec import Spec

    torch.manual_seed(0)
    head = nn.Linear(hidden or 3, len(task.units))
    net = nn.Sequential(nn.Linear(3, hidden), nn.Tanh(), head) if hidden else head
    compile_module(net.eval(), Spec("linear", (3,), loss="mean_squared_error", task=task)).save(path)
    return path


def draw(count: int, seed: int = 0) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float64]]:
    """Inputs (count, 3) and the rates (count,) that follow from them, with noise of 2 bpm."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(count, 3)).astype(np.float32)
    return x, 100 + x @ np.array([20.0, -10.0, 5.0]) + random.normal(0, 2, count)
