"""Running statistics of batch normalisation, where a bundle has them in theta (models/README.md: norm "running").

A device moves them towards those of its batches, and a method averages them. A term that corrects gradients, such as
SCAFFOLD's control variates, FedDyn's linear term or FedSLR's gamma, has nothing to correct there: it would carry them
past all devices, and variances below zero. So it is zero there.
"""

from __future__ import annotations

from edge_sdk.algebra.vectors import Layout, Vector


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
