"""Uploads whose vector is not of the model's size: a part of theta, or several vectors one behind the other.

`gather.Sum` carries exactly one vector of theta's size, and the codec refuses any other. A method that shares a part of
theta only, or that sends a control variate beside its update, uses `VectorSum`, which is added up in the same way.
Which length is right the method knows and the codec does not, so each receiver checks it here.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from edge_sdk.algebra.arrays import Values
from edge_sdk.algebra.vectors import Vector
from edge_sdk.contract.method import NodeEnv
from edge_sdk.errors import PeerError
from edge_sdk.methods.shared.aggregation import gather
from edge_sdk.methods.shared.aggregation.gather import Nobody, Sum, Tally
from edge_sdk.methods.shared.aggregation.guard import Measure


@dataclass(frozen=True)
class VectorSum(Sum):
    """What some devices contribute, added up, where the vector's length is the method's own.

    Attributes:
        total: float (k,), the sum of what each contributes. The other fields are those of `Sum`.
    """

    total: Values

    def measure(self) -> Measure:
        """Length and weight as of a `Sum`, but vectors that are updates differ more in length than models do."""
        return super().measure()._replace(longer=30.0)


def gathered(env: NodeEnv, tally: Tally | None, sender: str, message: object, size: int) -> Tally | None:
    """The tally after a child's answer.

    Raises:
        PeerError: it is no answer, its vector is not of this size, or it counts more devices than the child has.
    """
    m = gather.expected(sender, message, VectorSum, Nobody)
    if isinstance(m, VectorSum):
        checked(sender, m.total, size)
    return gather.gathered(env, tally, sender, m)


def checked(sender: str, values: Vector, size: int) -> Vector:
    """Check a vector and return it.

    Raises:
        PeerError: it is not of this size.
    """
    if values.shape != (size,):
        raise PeerError(f"{sender} sent {len(values)} numbers, expected {size}")
    return values


def total(tally: Tally, like: npt.NDArray[np.floating]) -> VectorSum:
    """The sum, in the float type of `like`, rounded once."""
    s = gather.total(tally, like)
    return VectorSum(s.total, s.weight, s.count, s.scores)


def answer(tally: Tally | None, like: npt.NDArray[np.floating]) -> VectorSum | Nobody:
    """What a hospital sends up."""
    return Nobody() if tally is None else total(tally, like)
