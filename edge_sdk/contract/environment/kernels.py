"""Types of what the families of kernels put into a method's env; `edge_sdk/nodes/kernels` makes them of a bundle.

Each family fills fields of these names, and a method's env declares those that it uses:

plain        grad_fn, samples, score, judge, as in `NodeEnv`
split        split on all nodes; device: samples, h2, grad_device, judged, score_part, bias;
             hospital: rows, h1, grad_hospital, h1_judged, bias
outputs      what plain has; device: private, labels, public, architecture
companions   as plain for devices with the run's bundle, as outputs and `apart` for the others;
             hospital: companions; aggregator: counts, public
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from edge_sdk.algebra.vectors import Vector

Rows = npt.NDArray[np.intp]
"""Indices of samples."""
Floats = npt.NDArray[np.floating]


@dataclass(frozen=True)
class Split:
    """Sizes of the parts of a model: theta_0, theta_1, theta_2 (s0, s1, s2), zeta_1 and zeta_2 of a sample (d1, d2)."""

    s0: int = 0
    s1: int = 0
    s2: int = 0
    d1: int = 0
    d2: int = 0

    @property
    def blocks(self) -> tuple[slice, slice, slice]:
        """Where theta_0, theta_1 and theta_2 lie in theta."""
        a, b, c = self.s0, self.s0 + self.s1, self.s0 + self.s1 + self.s2
        return slice(0, a), slice(a, b), slice(b, c)


WHOLE = Split()
"""The sizes of a model that is not split."""


@dataclass(frozen=True)
class Inputs:
    """Inputs behind a model.

    Attributes:
        count: how many.
        logits: (theta, rows) -> (len(rows), K).
        pull: (theta, rows, cotangent) -> gradient (n,) of sum(logits * cotangent).
    """

    count: int
    logits: Callable[[Vector, Rows], Floats]
    pull: Callable[[Vector, Rows, Floats], Vector]
