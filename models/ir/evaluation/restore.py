"""What a number in float32 was rounded from: files have every attribute and every scalar in float32."""

from __future__ import annotations

from math import pi, sqrt

import numpy as np

TORCHS_OWN = (sqrt(2), sqrt(0.5), sqrt(2 / pi), 1 / 3, 2 / 3, 1 / 6)  # in gelu, its tanh form, norms, hardswish


def restore_number(x: float) -> float:
    """A number of torch's own (1/6), else the shortest decimal (1e-05, not 9.999999747e-06)."""
    return next((v for v in TORCHS_OWN if np.float32(v) == np.float32(x)), float(str(np.float32(x))))


def restore(array: np.ndarray) -> np.ndarray:
    """A few float32 numbers as what each was rounded from, in float64."""
    return np.array([restore_number(v) for v in array.ravel()], np.float64).reshape(array.shape)
