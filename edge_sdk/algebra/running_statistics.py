"""Running statistics of batch normalisation, where a bundle has them in theta (models/README.md: norm "running").

A device moves them towards those of its batches, by the momentum of their layer, and a method averages them. In a
gradient of a bundle a statistic has the number that moves it so in a plain step of size 0.1, and steps of other sizes
and other optimisers are not to change that. Nor has a term that corrects gradients, such as SCAFFOLD's control
variates, FedDyn's linear term or FedSLR's gamma, anything to correct there: it would carry statistics past those of
all devices, and variances below zero. So it is zero there.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from edge_sdk.algebra.vectors import VARIANCE, Layout, Vector

STATISTICS_STEP = 0.1
"""Size of the plain step that moves statistics by their momentum."""


class Stepping(Protocol):
    """An optimiser."""

    def step(self, theta: Vector, grad: Vector) -> None: ...


def without_statistics(layout: Layout, v: Vector) -> Vector:
    """v (n,) with zeros at running statistics, in place; where a layout has none, as it is."""
    for slot in layout.slots:
        if slot.is_statistic:
            v[slot.span] = 0
    return v


def averaged_statistics(layout: Layout, v: Vector, mean: Vector) -> Vector:
    """v (n,) with the mean's running statistics, in place."""
    for slot in layout.slots:
        if slot.is_statistic:
            v[slot.span] = mean[slot.span]
    return v


def lost_variances(layout: Layout, theta: Vector) -> list[str]:
    """Layers of which theta (n,) has running variances below zero: what they give in predictions is worth nothing."""
    variances = [slot for slot in layout.slots if slot.is_statistic and slot.name.endswith(VARIANCE)]
    return [slot.name.rpartition(".")[0] for slot in variances if (theta[slot.span] < 0).any()]


def step_with_statistics(layout: Layout, optimiser: Stepping, theta: Vector, grad: Vector) -> None:
    """A step of an optimiser in place, in which statistics move by their momentum. `theta`, `grad`: (n,)."""
    moved = [(s.span, theta[s.span] - STATISTICS_STEP * grad[s.span]) for s in layout.slots if s.is_statistic]
    optimiser.step(theta, grad)
    for span, values in moved:
        theta[span] = values


def for_steps_of(grad_fn: Any, layout: Layout, rate: float, decay: float) -> Any:
    """A gradient by which plain steps of a size move statistics by their momentum; itself, where there are none.

    Args:
        grad_fn: (theta, ...) -> (mean loss, its gradient (n,)). rate: size of the steps. decay: weight decay, which the
            steps add to each gradient, and which is none of statistics.
    """
    spans = [slot.span for slot in layout.slots if slot.is_statistic]
    if not spans or (rate == STATISTICS_STEP and not decay):
        return grad_fn

    def at(theta: Vector, *rest: Any) -> tuple[float, Vector]:
        loss, found = grad_fn(theta, *rest)
        found = np.array(found)
        for span in spans:
            found[span] = STATISTICS_STEP / rate * found[span] - decay * theta[span]
        return loss, found

    return at
