"""Proximal operators: prox_h(x, t) = argmin_z 1/2 ||z - x||^2 + t h(z), each docstring its argmin.

The threshold t is step size times weight. aggregator/kernels.py has the torch twin of what is slow here.
"""

from __future__ import annotations

import numpy as np

from edge_sdk.algebra.vectors import Vector

Svd = tuple[Vector, Vector, Vector]
"""(a, s, b) with matrix = a @ diag(s) @ b.T: shapes (rows, r), (r,), (columns, r); every s above 0."""


def l1(x: Vector, threshold: float) -> Vector:
    """argmin_z 1/2 ||z - x||^2 + threshold * ||z||_1: soft threshold, exactly 0 where |x| <= threshold.

    Source: FedSLR eq. (16), (17).
    """
    return x - np.clip(x, -threshold, threshold)


def shrink(x: Vector, threshold: float, spare: Vector) -> None:
    """`l1` in place, for loops. `spare`: scratch memory of x's shape and type."""
    np.clip(x, -threshold, threshold, out=spare)
    np.subtract(x, spare, out=x)


def svt(x: Vector, threshold: float) -> Svd:
    """The decomposition of argmin_z 1/2 ||z - x||_F^2 + threshold * ||z||_*: singular values soft-thresholded.

    Those that vanish are left out, so s.size is the rank of the result and its factors need no second SVD.
    Source: FedSLR eq. (15).

    Args:
        x: matrix (rows, columns).
        threshold: 0 or more.
    """
    a, s, bt = np.linalg.svd(x, full_matrices=False)
    rank = int(np.count_nonzero(s > threshold))
    return a[:, :rank], s[:rank] - s.dtype.type(threshold), bt[:rank].T


def nuclear(x: Vector, threshold: float) -> Vector:
    """argmin_z 1/2 ||z - x||_F^2 + threshold * ||z||_*, a matrix like x."""
    a, s, b = svt(x, threshold)
    return (a * s) @ b.T
