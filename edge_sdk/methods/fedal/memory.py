"""An optimiser between two calls of a role: plain data, so that it is saved and goes on where it stopped."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from edge_sdk.algebra.arrays import Values
from edge_sdk.algebra.optim import SGD, Adam
from edge_sdk.algebra.vectors import Vector

KINDS = ("adam", "sgd")


def nothing() -> Vector:
    return np.zeros(0, np.float32)


@dataclass(frozen=True)
class Memory:
    """What Adam remembers (Kingma and Ba, algorithm 1): t, the decaying means of grad and grad^2. SGD: nothing."""

    steps: int = 0
    mean: Values = field(default_factory=nothing)
    square: Values = field(default_factory=nothing)


def optimiser(kind: str, rate: float, memory: Memory) -> Adam | SGD:
    """An optimiser that goes on from `memory`, and leaves it as it is."""
    if kind == "sgd":
        return SGD(rate)
    return Adam(rate, steps=memory.steps, mean=memory.mean.copy(), square=memory.square.copy())


def remembered(optimiser: Adam | SGD, like: Vector) -> Memory:
    """What is to be kept of it. `like`: a vector of the element type of what it moves."""
    if isinstance(optimiser, SGD):
        return empty(like)
    return Memory(optimiser.steps, optimiser.mean.astype(like.dtype), optimiser.square.astype(like.dtype))


def empty(like: Vector) -> Memory:
    return Memory(0, np.zeros(0, like.dtype), np.zeros(0, like.dtype))
