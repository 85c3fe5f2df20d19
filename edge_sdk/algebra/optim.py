"""Optimisers on the flat vector: plain numpy, in place, in the vector's own type.

`step` changes `theta` and the optimiser's own memory, never `grad`, and allocates nothing after the first call; theta
must be an array that belongs to the caller (copy what came from a message). For a proximal method, follow `step` by the
proximal operator with the same step size: `opt.step(theta, grad, rate); prox.shrink(theta, rate * weight, spare)`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import sqrt

import numpy as np

from edge_sdk.algebra.vectors import Vector
from edge_sdk.errors import UsageError

NONE: Vector = np.zeros(0, np.float32)


def positive(name: str, value: float, zero: bool = False) -> None:
    if not (value > 0 or (zero and value == 0)) or value == float("inf"):
        raise UsageError(f"optimiser: {name} = {value}, expected a number {'of 0 or more' if zero else 'above 0'}")


def fraction(name: str, value: float) -> None:
    if not 0 <= value < 1:
        raise UsageError(f"optimiser: {name} = {value}, expected 0 or more and below 1")


@dataclass
class SGD:
    """theta <- theta - rate (grad + decay theta).

    Args:
        rate: step size; `step` may be given another one. decay: weight decay.
    """

    rate: float
    decay: float = 0.0
    _spare: Vector = field(default_factory=lambda: NONE, repr=False, compare=False)

    def __post_init__(self) -> None:
        positive("rate", self.rate)
        positive("decay", self.decay, zero=True)

    def remember(self, theta: Vector) -> tuple[Vector, ...]:
        """The arrays that `step` changes beside theta: none."""
        return ()

    def skip(self, steps: int) -> None:
        """So many steps were made by another process; they leave no trace in this one."""

    def step(self, theta: Vector, grad: Vector, rate: float | None = None) -> None:
        spare = self._spare = scratch(self._spare, theta)
        decayed(theta, grad, self.decay, spare)
        np.multiply(spare, self.rate if rate is None else rate, out=spare)
        np.subtract(theta, spare, out=theta)


@dataclass
class Momentum:
    """velocity <- momentum velocity + grad + decay theta; theta <- theta - rate velocity. As torch.optim.SGD.

    Attributes:
        velocity: the memory, (n,); saved with the state of whoever trains over several rounds.
    """

    rate: float
    momentum: float = 0.9
    decay: float = 0.0
    velocity: Vector = field(default_factory=lambda: NONE)
    _spare: Vector = field(default_factory=lambda: NONE, repr=False, compare=False)

    def __post_init__(self) -> None:
        positive("rate", self.rate)
        positive("decay", self.decay, zero=True)
        fraction("momentum", self.momentum)

    def step(self, theta: Vector, grad: Vector, rate: float | None = None) -> None:
        spare = self._spare = scratch(self._spare, theta)
        self.velocity = memory(self.velocity, theta)
        decayed(theta, grad, self.decay, spare)
        np.multiply(self.velocity, self.momentum, out=self.velocity)
        np.add(self.velocity, spare, out=self.velocity)
        np.multiply(self.velocity, self.rate if rate is None else rate, out=spare)
        np.subtract(theta, spare, out=theta)


@dataclass
class Adam:
    """m, v: decaying means of grad and grad^2; theta <- theta - rate m^ / (sqrt(v^) + epsilon). As torch.optim.Adam.

    m^ = m / (1 - beta1^t), v^ = v / (1 - beta2^t). Source: Kingma and Ba, Adam, algorithm 1.

    Attributes:
        steps: t. mean, square: the memory, (n,) each.
    """

    rate: float = 1e-3
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    decay: float = 0.0
    steps: int = 0
    mean: Vector = field(default_factory=lambda: NONE)
    square: Vector = field(default_factory=lambda: NONE)
    _spare: Vector = field(default_factory=lambda: NONE, repr=False, compare=False)
    _other: Vector = field(default_factory=lambda: NONE, repr=False, compare=False)

    def __post_init__(self) -> None:
        positive("rate", self.rate)
        positive("epsilon", self.epsilon)
        positive("decay", self.decay, zero=True)
        fraction("beta1", self.beta1)
        fraction("beta2", self.beta2)

    def remember(self, theta: Vector) -> tuple[Vector, ...]:
        """The arrays that `step` changes beside theta, made now where there are none yet."""
        self.mean, self.square = memory(self.mean, theta), memory(self.square, theta)
        return self.mean, self.square

    def skip(self, steps: int) -> None:
        """So many steps were made by another process, which have left their traces in the arrays of `remember`."""
        self.steps += steps

    def step(self, theta: Vector, grad: Vector, rate: float | None = None) -> None:
        spare, other = scratch(self._spare, theta), scratch(self._other, theta)
        self._spare, self._other = spare, other
        self.mean, self.square = memory(self.mean, theta), memory(self.square, theta)
        self.steps += 1
        decayed(theta, grad, self.decay, spare)
        blend(self.mean, spare, self.beta1, other)
        np.multiply(spare, spare, out=spare)
        blend(self.square, spare, self.beta2, other)
        np.sqrt(self.square, out=spare)
        np.multiply(spare, 1 / sqrt(1 - self.beta2**self.steps), out=spare)
        np.add(spare, self.epsilon, out=spare)
        np.divide(self.mean, spare, out=spare)
        np.multiply(spare, (self.rate if rate is None else rate) / (1 - self.beta1**self.steps), out=spare)
        np.subtract(theta, spare, out=theta)


OPTIMISERS = {"sgd": SGD, "momentum": Momentum, "adam": Adam}


def decayed(theta: Vector, grad: Vector, decay: float, out: Vector) -> None:
    """out <- grad + decay theta."""
    if grad.shape != theta.shape:
        raise UsageError(f"optimiser: a gradient of shape {grad.shape} for theta of shape {theta.shape}")
    np.multiply(theta, decay, out=out)
    np.add(out, grad, out=out)


def blend(old: Vector, new: Vector, keep: float, spare: Vector) -> None:
    """old <- keep old + (1 - keep) new."""
    np.multiply(old, keep, out=old)
    np.multiply(new, 1 - keep, out=spare)
    np.add(old, spare, out=old)


def scratch(have: Vector, like: Vector) -> Vector:
    """Memory to work in, of the shape and type of `like`."""
    return have if have.shape == like.shape and have.dtype == like.dtype else np.empty_like(like)


def memory(have: Vector, like: Vector) -> Vector:
    """What the optimiser remembers; zeros at the start."""
    if have.size == 0:
        return np.zeros_like(like)
    if have.shape != like.shape:
        raise UsageError(
            f"optimiser: its memory has shape {have.shape}, theta has {like.shape}: it is for another model"
        )
    return have
