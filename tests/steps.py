"""A bundle that tells the class of each of 3 steps of a window, for tests: by the signs of means over its samples."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from edge_sdk.data.samples import Samples
from edge_sdk.model.tasks.signal_spec import SignalSpec
from edge_sdk.model.tasks.step_classes import StepClasses

TASK = StepClasses(("rest", "walk", "run"), 3)
SHAPE = (2, 12)
SIGNAL = SignalSpec(("a", "b"), ("g", "g"), 4.0, 12, 6)
LEVELS = np.array([[-1.0, 0.0], [1.0, 0.0], [0.0, 1.5]])
"""Means of both channels, by class."""


def compile_steps(path: Path, signal: SignalSpec | None = None) -> Path:
    """Writes the bundle: means over 4 samples, and a linear map of these."""
    import torch
    from torch import nn

    from edge_sdk.models.bundle.compile import compile_module
    from edge_sdk.models.ir.specification.spec import Spec

    torch.manual_seed(0)
    net = nn.Sequential(nn.AvgPool1d(4), nn.Conv1d(2, 3, 1)).eval()
    spec = Spec("steps", SHAPE, loss="soft_cross_entropy", task=TASK, signal=signal)
    compile_module(net, spec, search=0).save(path)
    return path


def best_theta() -> npt.NDArray[np.float32]:
    """Parameters that tell the class by the nearest of LEVELS."""
    return np.concatenate([4 * LEVELS.ravel(), -2 * (LEVELS**2).sum(1)]).astype(np.float32)


def draw(count: int, seed: int = 0) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Windows (count, 2, 12), and the class of each of their steps (count, 3)."""
    random = np.random.default_rng(seed)
    codes = random.integers(3, size=(count, 3))
    x = np.repeat(np.moveaxis(LEVELS[codes], 2, 1), 4, 2) + random.normal(0, 0.5, (count, *SHAPE))
    return x.astype(np.float32), codes


def samples(count: int, seed: int = 0, unknown: float = 0.2) -> Samples:
    """The same with labels; nothing is said of some steps."""
    x, codes = draw(count, seed)
    known = np.random.default_rng([seed, 1]).random(codes.shape) >= unknown
    known[:, 0] = True
    texts = np.where(known, np.array(TASK.names)[codes], "")
    return Samples(x, tuple("|".join(row) for row in texts.tolist()))
