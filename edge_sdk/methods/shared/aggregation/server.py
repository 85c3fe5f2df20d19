"""The aggregator's step: one forward-backward step on the terms that the aggregator itself adds to the objective.

The devices' losses f reach the aggregator as a point x (a mean, already moved). It may add to the objective
    smooth(w)   through its gradient at the model that the devices saw   (AugFL: lambda * R_h, the pretrained model)
    simple(w)   through its proximal operator                            (FedSLR: lambda * ||w||_*, low rank)
so that two methods' terms compose by naming both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from edge_sdk.algebra import lowrank, prox
from edge_sdk.algebra.lowrank import Packed
from edge_sdk.algebra.vectors import Layout, Vector
from edge_sdk.errors import UsageError

Svt = Callable[[Vector, float], prox.Svd]
"""prox.svt, or its twin on the aggregator's hardware. One that has a method `layers` (`LayersSvt`) is given all layers
of a model at once."""

Prox = Callable[[Layout, Vector, float, Vector], Packed]
"""(layout, x, step, at) -> argmin_z 1/2 ||z - x||^2 + step * simple(z), in the form in which it travels. `at` is the
model of before, which the result does not depend on but for rounding."""


class LayersSvt(Protocol):
    """A kernel for all layers of a model."""

    def layers(
        self, matrices: Mapping[str, Vector], threshold: float, near: Mapping[str, Vector]
    ) -> Mapping[str, prox.Svd]:
        """Layer -> the decomposition of its thresholded matrix. `near`: the layers of the model of before."""


PENALTIES = ("nuclear", "l1", "none")


@dataclass(frozen=True)
class ServerTerms:
    """Terms that the aggregator adds to the objective.

    Attributes:
        grad: gradient of the smooth term, theta -> (n,); None: there is no such term.
        prox: proximal operator of the simple term; None: there is no such term.
    """

    grad: Callable[[Vector], Vector] | None = None
    prox: Prox | None = None


def server_step(terms: ServerTerms, layout: Layout, x: Vector, at: Vector, step: float) -> Packed:
    """prox_{step * simple}(x - step * grad smooth(at)), in the form in which it travels."""
    if terms.grad is not None:
        x = x - step * terms.grad(at)
    return terms.prox(layout, x, step, at) if terms.prox else lowrank.dense(layout, x)


def penalty(kind: str, lam: float, svt: Svt = prox.svt) -> Prox | None:
    """lam * R for a kind of PENALTIES, where R is over the layers with a matrix form: the others are left alone."""
    if kind == "nuclear":
        return lambda layout, x, step, at: low_rank(layout, x, step * lam, svt, at)
    if kind == "l1":
        return lambda layout, x, step, at: sparse(layout, x, step * lam)
    if kind == "none":
        return None
    raise UsageError(f"penalty {kind!r} is none of {', '.join(PENALTIES)}")


def low_rank(layout: Layout, x: Vector, threshold: float, svt: Svt = prox.svt, near: Vector | None = None) -> Packed:
    """argmin_z 1/2 ||z - x||^2 + threshold * sum_l ||pi(z_l)||_*; the factors are of the same SVD.

    Args:
        near: the model of before, a hint for a kernel that has `layers`.
    """
    matrices, layers = matrices_of(layout, x), getattr(svt, "layers", None)
    if layers is None:
        found = {name: svt(matrix, threshold) for name, matrix in matrices.items()}
    else:
        found = layers(matrices, threshold, {} if near is None else matrices_of(layout, near))
    return lowrank.pack(layout, x, {name: lowrank.balanced(svd) for name, svd in found.items()})


def matrices_of(layout: Layout, x: Vector) -> dict[str, Vector]:
    """Layer -> its matrix, of the layers that have one."""
    return {slot.name: lowrank.matrix(slot, layout.view(x, slot)) for slot in lowrank.matrix_slots(layout)}


def sparse(layout: Layout, x: Vector, threshold: float) -> Packed:
    """argmin_z 1/2 ||z - x||^2 + threshold * sum_l ||z_l||_1."""
    z = x.copy()
    for slot in lowrank.matrix_slots(layout):
        z[slot.span] = prox.l1(x[slot.span], threshold)
    return lowrank.dense(layout, z)
