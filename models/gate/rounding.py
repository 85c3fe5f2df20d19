"""The rounding of a finished bundle beside torch's own: both float32 gradients against torch's in float64.

The gate asks whether a bundle is right. This asks how good it is, on the gate's inputs: ties, constants, tiny and huge
scales, single samples, first and last indices. It is measured on what a device runs, and is no condition: a ReLU input
within rounding of 0 may fall on either side of it in float32, for torch as well as here, but for other inputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from edge_sdk.model.dropout import MASKS
from edge_sdk.model.model import Model
from edge_sdk.models.gate.gate import Case, Truth, list_cases
from edge_sdk.models.gate.measure import relative_error

FLOOR = 2.0**-24
"""Rounding of the result alone: an error cannot be expected to be smaller."""


@dataclass(frozen=True)
class Rounding:
    """Relative L2 errors of two float32 gradients for one kind of inputs.

    Attributes:
        case: the inputs. device: error of the bundle on this machine. torch: error of torch's own float32.
    """

    case: str
    device: float
    torch: float

    @property
    def ratio(self) -> float:
        """The bundle's error in multiples of torch's; 0 where the true gradient is no number or 0."""
        return self.device / max(self.torch, FLOOR) if np.isfinite(self.torch) else 0.0


def measure_rounding(model: Model, truth: Truth) -> list[Rounding]:
    """The errors for each kind of inputs that the gate has.

    Args:
        model: the finished bundle. truth: the module that it was made of.
    """
    y_shape = (-model.classes,) if model.classes else model.output_shape
    cases = [c for c in list_cases(truth.train) if truth.drops or not c.at_rest]
    return [measure_case(model, truth, c, y_shape) for c in cases]


def measure_case(model: Model, truth: Truth, case: Case, y_shape: Sequence[int]) -> Rounding:
    """The errors for one kind of inputs."""
    data = truth.draw(case, tuple(y_shape))
    if case.at_rest:
        data.pop(MASKS)
    want = truth.loss_grad(data)[2]
    if not np.linalg.norm(want) > 0:
        return Rounding(case.name, 0.0, 0.0)
    single = truth.loss_grad(data, torch.float32)[2]
    return Rounding(case.name, relative_error(run_bundle(model, data), want), relative_error(single, want))


def run_bundle(model: Model, data: Mapping[str, torch.Tensor]) -> np.ndarray:
    """The gradient (n,) that a device computes, without a limit of samples in a step."""
    feeds = {k: (v.float() if v.is_floating_point() else v).numpy() for k, v in data.items()}
    gradient: np.ndarray = model.run("loss_grad", {"theta": model.theta0, **feeds}, None)[1]
    return gradient
