"""Errors of predicted values as sums that add up over samples, devices and hospitals, and what they come to.

Of each value k, with d = predicted - true:

absolute:k   sum of |d|, over the samples: the mean absolute error
squared:k    sum of d^2: the root of the mean squared error
error:k      sum of d: the bias
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt

import numpy as np
import numpy.typing as npt

from edge_sdk.errors import UsageError

Floats = npt.NDArray[np.floating]
ABSOLUTE, SQUARED, ERROR, MAE = "absolute", "squared", "error", "mae"
"""Sums of values; MAE is one device's mean of |d|, whose sum over devices is for their unweighted mean."""
MEAN = "mean"
"""The model that always says the mean of the training targets: what others must beat."""
LIMITS = 1.96
"""Standard deviations of the limits of agreement (Bland and Altman, 1986): about 95 % of errors lie within."""
NINETY = 1.645
"""The same for about 90 %."""


@dataclass(frozen=True)
class Errors:
    """Errors of one value over some samples, in its unit.

    Attributes:
        mae: mean absolute error. rmse: root of the mean squared error.
        bias: mean error: above 0, predictions are too high.
        low, high: limits of agreement, bias +- 1.96 standard deviations of the errors.
    """

    mae: float
    rmse: float
    bias: float
    low: float
    high: float


def error_sums(y: Floats, predicted: Floats) -> dict[str, float]:
    """Sums of errors of true values (N, K) and predicted ones (N, K), as the head of this module names them."""
    if y.shape != predicted.shape:
        raise UsageError(f"values of shape {y.shape} and predictions of {predicted.shape}")
    d = predicted.astype(np.float64) - y.astype(np.float64)
    sums: dict[str, float] = {}
    for k in range(d.shape[1]):
        own = d[:, k]
        sums |= {
            f"{ABSOLUTE}:{k}": float(np.abs(own).sum()),
            f"{SQUARED}:{k}": float((own**2).sum()),
            f"{ERROR}:{k}": float(own.sum()),
        }
    return sums


def sum_of(sums: Mapping[str, float]) -> float:
    """The absolute errors of all values together."""
    return sum(value for name, value in sums.items() if name.startswith(ABSOLUTE))


def errors_of(sums: Mapping[str, float], samples: float, value: int = 0, half: float = 1.0) -> Errors:
    """The errors that sums over so many samples come to.

    Args:
        sums: as `error_sums` names them.
        samples: above 0.
        half: unit of the sums.
    """
    absolute, squared, error = (sums[f"{name}:{value}"] / samples for name in (ABSOLUTE, SQUARED, ERROR))
    spread = LIMITS * sqrt(max(0.0, squared - error**2))
    found = absolute, sqrt(max(0.0, squared)), error, error - spread, error + spread
    return Errors(*(half * number for number in found))
