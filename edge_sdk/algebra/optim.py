"""Optimisers on the flat vector: plain numpy, in place, in the vector's own type.

`step` changes `theta` and the optimiser's own memory, never `grad`, and allocates nothing after the first call; theta
must be an array (n,) that belongs to the caller (copy what came from a message). A step goes through the vectors in
pieces that stay in the processor's cache, so that a large model is read from memory once and written once; where a
library that computes the same bits is in use (`use_steps`), it takes vectors longer than a piece. For a proximal
method, follow `step` by the proximal operator with the same step size: `opt.step(theta, grad, rate);
prox.shrink(theta, rate * weight, spare)`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import sqrt
from typing import Protocol

import numpy as np

from edge_sdk.algebra.vectors import Vector
from edge_sdk.errors import UsageError

NONE: Vector = np.zeros(0, np.float32)
PIECE = 2**15
"""Numbers that a step takes at once: what it works with are 128 kB of each vector."""


class Steps(Protocol):
    """Whole steps of optimisers, elsewhere computed, with the bits that they have here."""

    def __call__(self, name: str, vectors: Sequence[Vector], numbers: Sequence[float]) -> None:
        """One step in place: theta, the gradient, what is remembered; and the numbers of the plan of that name."""


@dataclass(frozen=True)
class StepPlan:
    """What a step works with beside theta and the gradient.

    Attributes:
        name: of the optimiser. memory: vectors that the step changes. numbers: in the order of its formula.
    """

    name: str
    memory: tuple[Vector, ...]
    numbers: tuple[float, ...]


def make_plan(name: str, memory: tuple[Vector, ...], *numbers: float) -> StepPlan:
    """A plan with numbers of Python's own, which take the type of the vectors that they are multiplied with."""
    return StepPlan(name, memory, tuple(map(float, numbers)))


_steps: Steps | None = None


def use_steps(steps: Steps | None) -> None:
    """Have all optimisers of this process take their steps so; None: by numpy."""
    global _steps
    _steps = steps


def step_elsewhere(theta: Vector, grad: Vector, plan: StepPlan) -> bool:
    """True if `use_steps` gave steps, and they took this one: of long vectors of float32 that may be written."""
    vectors, changed = (theta, grad, *plan.memory), (theta, *plan.memory)
    if _steps is None or len(theta) <= PIECE:
        return False
    if not all(v.shape == (len(theta),) and v.dtype == np.float32 and v.flags.c_contiguous for v in vectors):
        return False
    if not all(v.flags.writeable for v in changed):
        return False
    _steps(plan.name, vectors, plan.numbers)
    return True


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

    >>> import numpy as np
    >>> theta = np.ones(3, np.float32)
    >>> SGD(rate=0.5).step(theta, np.ones(3, np.float32))
    >>> theta.tolist()
    [0.5, 0.5, 0.5]
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

    def plan_step(self, theta: Vector, rate: float | None = None) -> StepPlan:
        """The plan of the next step from theta (n,): all that it computes with. `rate`: None, its own."""
        return make_plan("sgd", (), self.decay, self.rate if rate is None else rate)

    def step(self, theta: Vector, grad: Vector, rate: float | None = None) -> None:
        """A step in place: theta (n,), float32, moves against the gradient (n,). `rate`: None, its own."""
        plan = self.plan_step(theta, rate)
        if not step_elsewhere(theta, grad, plan):
            self.step_by_pieces(theta, grad, plan)

    def step_by_pieces(self, theta: Vector, grad: Vector, plan: StepPlan) -> None:
        """A planned step in numpy, by pieces that fit into the processor's cache."""
        self._spare = scratch(self._spare, theta)
        decay, rate = plan.numbers
        for part, slope in pieces(theta, grad):
            spare = self._spare[: len(part)]
            decayed(part, slope, decay, spare)
            np.multiply(spare, rate, out=spare)
            np.subtract(part, spare, out=part)


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

    def plan_step(self, theta: Vector, rate: float | None = None) -> StepPlan:
        """The plan of the next step from theta (n,), with the velocity. `rate`: None, its own."""
        self.velocity = memory(self.velocity, theta)
        return make_plan("momentum", (self.velocity,), self.decay, self.momentum, self.rate if rate is None else rate)

    def step(self, theta: Vector, grad: Vector, rate: float | None = None) -> None:
        """A step in place: theta (n,), float32, moves against the gradient (n,). `rate`: None, its own."""
        plan = self.plan_step(theta, rate)
        if not step_elsewhere(theta, grad, plan):
            self.step_by_pieces(theta, grad, plan)

    def step_by_pieces(self, theta: Vector, grad: Vector, plan: StepPlan) -> None:
        """A planned step in numpy, by pieces that fit into the processor's cache."""
        self._spare = scratch(self._spare, theta)
        decay, momentum, rate = plan.numbers
        for part, slope, velocity in pieces(theta, grad, *plan.memory):
            spare = self._spare[: len(part)]
            decayed(part, slope, decay, spare)
            np.multiply(velocity, momentum, out=velocity)
            np.add(velocity, spare, out=velocity)
            np.multiply(velocity, rate, out=spare)
            np.subtract(part, spare, out=part)


@dataclass
class Adam:
    """m, v: decaying means of grad and grad^2; theta <- theta - rate m^ / (sqrt(v^) + epsilon). As torch.optim.Adam.

    m^ = m / (1 - beta1^t), v^ = v / (1 - beta2^t). Source: Kingma and Ba, Adam, algorithm 1.

    Attributes:
        steps: t. mean, square: the memory, (n,) each.

    >>> import numpy as np
    >>> theta, optimiser = np.ones(3, np.float32), Adam(rate=0.1)
    >>> optimiser.step(theta, np.ones(3, np.float32))
    >>> [round(float(value), 3) for value in theta]
    [0.9, 0.9, 0.9]
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

    def plan_step(self, theta: Vector, rate: float | None = None) -> StepPlan:
        """The plan of the next step, t + 1. It ends with 1 / sqrt(1 - beta2^t), epsilon and rate / (1 - beta1^t)."""
        self.mean, self.square = memory(self.mean, theta), memory(self.square, theta)
        t = self.steps + 1
        rate = (self.rate if rate is None else rate) / (1 - self.beta1**t)
        betas = (self.beta1, 1 - self.beta1, self.beta2, 1 - self.beta2)
        root = 1 / sqrt(1 - self.beta2**t)
        return make_plan("adam", (self.mean, self.square), self.decay, *betas, root, self.epsilon, rate)

    def step(self, theta: Vector, grad: Vector, rate: float | None = None) -> None:
        """A step in place: theta (n,), float32, moves against the gradient (n,). `rate`: None, its own."""
        plan = self.plan_step(theta, rate)
        if not step_elsewhere(theta, grad, plan):
            self.step_by_pieces(theta, grad, plan)
        self.steps += 1  # of a step that failed nothing is left

    def step_by_pieces(self, theta: Vector, grad: Vector, plan: StepPlan) -> None:
        """A planned step in numpy, by pieces that fit into the processor's cache."""
        self._spare, self._other = scratch(self._spare, theta), scratch(self._other, theta)
        decay, beta1, rest1, beta2, rest2, root, epsilon, rate = plan.numbers
        for part, slope, mean, square in pieces(theta, grad, *plan.memory):
            spare, other = self._spare[: len(part)], self._other[: len(part)]
            decayed(part, slope, decay, spare)
            blend(mean, spare, beta1, rest1, other)
            np.multiply(spare, spare, out=spare)
            blend(square, spare, beta2, rest2, other)
            np.sqrt(square, out=spare)
            np.multiply(spare, root, out=spare)
            np.add(spare, epsilon, out=spare)
            np.divide(mean, spare, out=spare)
            np.multiply(spare, rate, out=spare)
            np.subtract(part, spare, out=part)


OPTIMISERS = {"sgd": SGD, "momentum": Momentum, "adam": Adam}


def pieces(theta: Vector, grad: Vector, *others: Vector) -> Iterator[tuple[Vector, ...]]:
    """Views of PIECE numbers of each vector, one after the other.

    Raises:
        UsageError: the gradient is not of theta's shape.
    """
    if grad.shape != theta.shape:
        raise UsageError(f"optimiser: a gradient of shape {grad.shape} for theta of shape {theta.shape}")
    if len(theta) <= PIECE:  # a small model's step is as short as a view takes to make
        yield theta, grad, *others
        return
    for start in range(0, len(theta), PIECE):
        yield tuple(vector[start : start + PIECE] for vector in (theta, grad, *others))


def decayed(theta: Vector, grad: Vector, decay: float, out: Vector) -> None:
    """out <- grad + decay theta."""
    np.multiply(theta, decay, out=out)
    np.add(out, grad, out=out)


def blend(old: Vector, new: Vector, keep: float, rest: float, spare: Vector) -> None:
    """old <- keep old + rest new."""
    np.multiply(old, keep, out=old)
    np.multiply(new, rest, out=spare)
    np.add(old, spare, out=old)


def scratch(have: Vector, like: Vector) -> Vector:
    """Memory to work in, for a piece of `like`."""
    size = min(len(like), PIECE)
    return have if len(have) == size and have.dtype == like.dtype else np.empty(size, like.dtype)


def memory(have: Vector, like: Vector) -> Vector:
    """What the optimiser remembers; zeros at the start."""
    if have.size == 0:
        return np.zeros_like(like)
    if have.shape != like.shape:
        raise UsageError(
            f"optimiser: its memory has shape {have.shape}, theta has {like.shape}: it is for another model"
        )
    return have
