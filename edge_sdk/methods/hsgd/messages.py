"""What HSGD's nodes tell each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from edge_sdk.algebra.arrays import Theta, Values
from edge_sdk.algebra.vectors import Layout, Vector
from edge_sdk.errors import PeerError
from edge_sdk.methods.hsgd import compression
from edge_sdk.methods.hsgd.compression import Floats, Matrix, PackedMatrix
from edge_sdk.methods.hsgd.row_integers import RowIntegers, read_rows, read_vector
from edge_sdk.methods.hsgd.settings import Plan
from edge_sdk.methods.shared.aggregation.exact import LARGEST
from edge_sdk.methods.shared.aggregation.guard import Measure, norm


@dataclass(frozen=True)
class HsgdModel:
    """Down: a global round.

    Attributes:
        theta: the global model; in what a hospital shows a device, 0 in place of theta_1.
        round: its number; randomness derives from it.
        t: iterations so far.
        plan: of this round.
        measure: it is one of the pretraining.
        zeta_1: for evaluation: of the samples that the receiving device is judged on, see `Env.h1_judged`.
    """

    written_as: ClassVar[str] = "Global"

    theta: Theta
    round: int
    t: int
    plan: Plan
    measure: bool = False
    zeta_1: Matrix | None = None

    def check(self, layout: Layout) -> None:
        P, Q = self.plan.P, self.plan.Q
        if self.round < 0 or self.t < 0 or Q < 1 or P < 1 or P % Q or not 0 <= self.plan.eta <= LARGEST:
            raise ValueError(f"round {self.round}, iteration {self.t}, {self.plan}: not a round")


@dataclass(frozen=True)
class Embed:
    """Down to A_m: send zeta_2.

    Attributes:
        device: theta_2 of the group; None: the one that you have (JFL).
        round, interval: which mini-batch.
    """

    device: Values | None
    round: int
    interval: int

    def check(self, layout: Layout) -> None:
        check_batch(self.round, self.interval)


@dataclass(frozen=True)
class Embedding:
    """Up: zeta_2 of the mini-batch."""

    zeta_2: PackedMatrix


@dataclass(frozen=True)
class Train:
    """Down: do your steps.

    Attributes:
        combined: theta_0, as one row.
        zeta_1: of the receiver's samples.
        round, interval: as in Embed.
        t, plan: the steps are t, ..., t + Q - 1.
        back: theta_2 is wanted.
    """

    combined: PackedMatrix
    zeta_1: PackedMatrix
    round: int
    interval: int
    t: int
    plan: Plan
    back: bool = True

    def check(self, layout: Layout) -> None:
        check_batch(self.round, self.interval)
        if self.t < 0 or self.plan.Q < 1 or not 0 <= self.plan.eta <= LARGEST:
            raise ValueError(f"iteration {self.t}, {self.plan}: no steps")


@dataclass(frozen=True)
class Trained:
    """Up: theta_2 after the steps, None where it was not wanted; in the pretraining the gradient in theta_2."""

    device: Values | None

    def check(self, layout: Layout) -> None:
        if self.device is not None and not (np.abs(self.device) <= LARGEST).all():
            raise ValueError(f"a number that is not finite or above {LARGEST:.0f}: the sender's training diverged")

    def measure(self) -> Measure | None:
        """The length of theta_2; every device counts alike."""
        return None if self.device is None else Measure(norm(self.device), 1.0)


@dataclass(frozen=True)
class EmbedByIntegers:
    """Down to A_m in a run with `bits`, in place of `Embed`. `device`: theta_2 of the group."""

    written_as: ClassVar[str] = "EmbedInt"

    device: RowIntegers
    round: int
    interval: int

    def check(self, layout: Layout) -> None:
        check_batch(self.round, self.interval)


@dataclass(frozen=True)
class Moved:
    """Up in a run with `bits`, in place of `Trained`. `device`: how far theta_2 has moved from what was shown."""

    device: RowIntegers

    def measure(self) -> Measure | None:
        """The length of the movement; every device counts alike. Movements differ more in length than models do."""
        return Measure(norm(read_rows(self.device).ravel()), 1.0, longer=30.0, kind="moved")


@dataclass(frozen=True)
class OwnSteps:
    """A hospital to itself: your devices are at work, now do your own steps."""


def check_batch(round: int, interval: int) -> None:
    """Raises ValueError for what numbers no mini-batch: no random stream derives from it."""
    if min(round, interval) < 0:
        raise ValueError(f"round {round}, interval {interval}: both are 0 or more")


def check_size(x: Vector, size: int, name: str) -> Vector:
    if x.size != size:
        raise PeerError(f"{name} of {x.size} numbers, expected {size}")
    return x


def open_matrix(p: PackedMatrix, rows: int, columns: int, name: str) -> Floats:
    """The matrix in a parcel. A single row of integers may be a vector's.

    Raises:
        PeerError: it is not of the shape that it has to be.
    """
    if rows == 1 and isinstance(p, RowIntegers) and compression.shape(p) != (1, columns):
        return read_vector(p, columns, name)[None]
    if compression.shape(p) != (rows, columns):
        raise PeerError(f"{name} of shape {compression.shape(p)}, expected {(rows, columns)}")
    return compression.unpack(p)
