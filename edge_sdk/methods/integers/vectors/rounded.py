"""Vectors to integers and back: rotation, scale and error feedback of one sender."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np

from edge_sdk.algebra.secure_aggregation import rotation, rounding
from edge_sdk.algebra.vectors import Vector, length
from edge_sdk.contract.method import NodeEnv
from edge_sdk.methods.integers.vectors.settings import Uploads

UPWARD, DOWNWARD = 0x5550, 0x444F  # purposes of randomness, beyond those of any method


@dataclass(frozen=True)
class Rounding:
    """The way in which one vector is rounded.

    Attributes:
        seed: of the run; version: of the question; purpose: UPWARD or DOWNWARD. The rotation follows from the three, so
            that all nodes have the same.
        bits: of each number.
        rotates: numbers are rotated first.
    """

    seed: int
    version: int
    purpose: int
    bits: int
    rotates: bool

    def turned(self, x: Vector) -> Vector:
        return rotation.rotate(x, self.signs(x)) if self.rotates else x

    def turned_back(self, y: Vector) -> Vector:
        """The vector before rotation; in place."""
        return rotation.turn_back(y, self.signs(y)) if self.rotates else y

    def signs(self, x: Vector) -> rotation.Signs:
        return rotation.draw_signs(x.size, self.seed, self.version, self.purpose)

    def spread(self, y: Vector) -> float:
        """The size of a vector's numbers: their root mean square where they are rotated, and so all alike; otherwise as
        large that none will be clipped."""
        if not self.rotates:
            return float(np.abs(y).max(initial=0.0)) / self.half(1.0)
        return length(y) / sqrt(max(1, y.size))

    def half(self, spread: float) -> float:
        """Half of the range that suits numbers of that size; 0 where all of them are 0."""
        usual = rounding.usual_half(self.bits if self.rotates else rounding.MOST)
        return max(rounding.FINEST, spread * usual) if spread else 0.0


@dataclass(frozen=True)
class Rounded:
    """A vector as integers.

    Attributes:
        steps: uint32 (k,), from 0 on.
        half: the largest number that they stand for.
        spread: size of the vector's numbers.
        left: float (k,), what rounding and clipping took away.
    """

    steps: rounding.Steps
    half: float
    spread: float
    left: Vector


def round_vector(how: Rounding, x: Vector, half: float, random: np.random.Generator) -> Rounded:
    """Rounds a vector up or down at random, on the scale `half` or, where that is 0, on one that suits it."""
    turned = how.turned(x)
    spread = how.spread(turned)
    half = half or how.half(spread) or 1.0
    steps = rounding.round_up_or_down(turned, half, how.bits, random)
    said = rounding.to_numbers(steps, half, how.bits, 1, x, out=turned if how.rotates else None)
    said = how.turned_back(said)
    return Rounded(steps, half, spread, np.subtract(x, said, out=said))


def read_vector(how: Rounding, steps: rounding.Steps, half: float, terms: int, like: Vector) -> Vector:
    """What integers, or sums of `terms` of them, stand for, in the float type of `like`."""
    return how.turned_back(rounding.to_numbers(steps, half, how.bits, terms, like))


def upward(env: NodeEnv, settings: Uploads, version: int, bits: int) -> Rounding:
    return Rounding(env.seed, version, UPWARD, bits, settings.rotate)


def downward(env: NodeEnv, settings: Uploads, version: int, bits: int) -> Rounding:
    return Rounding(env.seed, version, DOWNWARD, bits, settings.rotate)
