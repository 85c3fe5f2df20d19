"""A bundle that predicts two values at each of 3 steps of a window, for tests: by means over its samples."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from edge_sdk.data.samples import Samples
from edge_sdk.model.tasks.signal_spec import SignalSpec
from edge_sdk.model.tasks.step_values import StepValues

TASK = StepValues(("bpm", ""), ("rate", "level"), (40.0, 0.0), (180.0, 10.0), 3)
ONE = StepValues(("bpm",), ("rate",), (40.0,), (180.0,), 3)
SHAPE = (2, 12)
SIGNAL = SignalSpec(("a", "b"), ("g", "g"), 4.0, 12, 6)
SLOPES = np.array([[20.0, -10.0], [1.0, 2.0]])
"""By which both values follow from means of both channels."""


def compile_step_values(
    path: Path, task: StepValues = TASK, signal: SignalSpec | None = None, loss: str = "masked_squared_error"
) -> Path:
    """Writes the bundle: means over 4 samples, and a linear map of these."""
    import torch
    from torch import nn

    from edge_sdk.models.bundle.compile import compile_module
    from edge_sdk.models.ir.specification.spec import Spec

    torch.manual_seed(0)
    net = nn.Sequential(nn.AvgPool1d(4), nn.Conv1d(2, task.outputs, 1)).eval()
    spec = Spec("curves", SHAPE, loss=loss, task=task, signal=signal)
    compile_module(net, spec, search=0).save(path)
    return path


def best_theta() -> npt.NDArray[np.float32]:
    """Parameters that predict all but the noise."""
    bias = (np.array([100.0, 5.0]) - TASK.middle) / TASK.half
    return np.concatenate([(SLOPES / TASK.half[:, None]).ravel(), bias]).astype(np.float32)


def draw(count: int, seed: int = 0) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float64]]:
    """Windows (count, 2, 12), and the values of each of their steps (count, 2, 3), with noise of 2 bpm and 0.2."""
    random = np.random.default_rng(seed)
    means = random.normal(size=(count, 2, 3))
    x = np.repeat(means, 4, 2).astype(np.float32)
    noise = random.normal(size=(count, 2, 3)) * [[2.0], [0.2]]
    return x, np.einsum("kc,ncs->nks", SLOPES, means) + np.array([[100.0], [5.0]]) + noise


def samples(count: int, seed: int = 0, unknown: float = 0.2) -> Samples:
    """The same with labels; nobody knows the values of some steps."""
    x, y = draw(count, seed)
    known = np.random.default_rng([seed, 1]).random((count, 1, 3)) >= unknown
    known[:, :, 0] = True
    return Samples(x, np.where(known, y, np.nan).reshape(count, -1))  # type: ignore[arg-type]
