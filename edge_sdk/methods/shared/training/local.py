"""What the devices of several methods do: mini-batch SGD, its settings and its one loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from math import isfinite
from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt

from edge_sdk.algebra import lowrank, prox
from edge_sdk.algebra.running_statistics import for_steps_of
from edge_sdk.algebra.vectors import Layout, Vector
from edge_sdk.contract.method import NodeEnv, StepKeeper
from edge_sdk.contract.search import OneOf, Range, SearchSpace
from edge_sdk.errors import UsageError
from edge_sdk.methods.shared.aggregation.draw import SELECTIONS

Indices = npt.NDArray[np.intp] | None
InPlace = Callable[[Vector], None]
Gradient = Callable[[Vector, Any], tuple[float, Vector]]
"""(theta, indices or None for all) -> (mean loss, its gradient)."""
AUGMENTING = 43  # last purpose of the random stream that changes samples: apart from that which draws mini-batches
FINE_TUNED = (
    "each device's copy of the global model after some epochs on its own samples (the setting fine_tune_epochs), made "
    "for the evaluation only"
)
"""`Method.personal` of methods that keep no personal model, and have that setting."""


# Settings -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True)
class Training:
    """Settings of every method whose devices are drawn and run mini-batch SGD.

    Attributes:
        eta_l: local step size in round 0.
        decay: factor of eta_l per global round, also for a device that was away.
        weight_decay: coefficient of 1/2 ||w||^2 in a device's own objective.
        batch: samples per step; 0: all of them.
        local_epochs: passes over a device's samples per round.
        participation: up to 1 the share of all devices that are asked per round (1: everybody), above 1 their number.
        selection: "fixed": exactly so many; "bernoulli": each one with that probability.
    """

    eta_l: float = 0.1
    decay: float = 0.998
    weight_decay: float = 1e-3
    batch: int = 20
    local_epochs: int = 2
    participation: float = 1.0
    selection: str = "fixed"

    def __post_init__(self) -> None:
        above_zero(self, "eta_l", "participation")
        zero_or_more(self, "weight_decay", "batch", "local_epochs")
        if not 0 < self.decay <= 1:
            raise UsageError(f"decay = {self.decay}: a factor per round, above 0 and at most 1")
        if self.participation > 1 and self.participation != int(self.participation):
            raise UsageError(f"participation = {self.participation}: a share up to 1, or a whole number of devices")
        one_of(self, SELECTIONS, "selection")

    def eta(self, round: int) -> float:
        """The local step size in a global round."""
        return float(self.eta_l * self.decay**round)


TRAINING_SEARCH: SearchSpace = {
    "eta_l": Range(3e-3, 0.5),
    "decay": OneOf((0.98, 0.99, 0.995, 0.998, 1.0)),
    "weight_decay": Range(1e-5, 1e-2),
    "batch": OneOf((10, 20, 50, 0)),
    "local_epochs": OneOf((1, 2, 5)),
}
"""Search space of `Training`. Who is asked in a round is the fleet's own affair, and not searched."""


def above_zero(settings: Any, *keys: str) -> None:
    for key in keys:
        if not (isfinite(getattr(settings, key)) and getattr(settings, key) > 0):
            raise UsageError(f"{key} = {getattr(settings, key)}: a number above 0")


def zero_or_more(settings: Any, *keys: str) -> None:
    for key in keys:
        if not (isfinite(getattr(settings, key)) and getattr(settings, key) >= 0):
            raise UsageError(f"{key} = {getattr(settings, key)}: a number, 0 or more")


def one_of(settings: Any, known: tuple[str, ...], *keys: str) -> None:
    for key in keys:
        if getattr(settings, key) not in known:
            raise UsageError(f"{key} = {getattr(settings, key)!r}: one of {', '.join(known)}")


def gradient(env: NodeEnv, round: int, *purpose: int, rate: float | None = None) -> Gradient:
    """env.grad_fn of a device or, where the run augments, that over samples which every call changes at random.

    What is drawn is decided by run, round, node, purpose and the number of the call: a step that is repeated after a
    failure meets the same samples as before.

    Args:
        rate: size of the plain steps, with the settings' weight decay, by which running statistics are to move as in
            torch (see algebra/running_statistics.py); None: that of the settings in this round; 0: they are left to
            the caller, as the bundle has them.

    Raises:
        UsageError: it was given none.
    """
    if env.grad_fn is None:
        raise UsageError(f"device {env.me} was given no grad_fn, so it cannot train")
    plain, augmented, s = env.grad_fn, env.augmented, env.settings
    if isinstance(s, Training) and rate != 0:
        steps = env.layout, s.eta(round) if rate is None else rate, s.weight_decay
        plain, augmented = for_steps_of(plain, *steps), augmented and for_steps_of(augmented, *steps)
    if augmented is None:
        return plain if env.keeper is None else KeptGradient(plain, env.keeper)
    random = env.random(round, *purpose, AUGMENTING)

    def at(theta: Vector, indices: Any) -> tuple[float, Vector]:
        return augmented(theta, indices, random)

    return at if env.keeper is None else KeptGradient(at, env.keeper, random)


@dataclass(frozen=True)
class KeptGradient:
    """A gradient whose loop is kept: see `contract.method.StepKeeper`.

    Attributes:
        call: the gradient itself.
        random: what it draws from.
    """

    call: Gradient
    keeper: StepKeeper
    random: np.random.Generator | None = None

    def __call__(self, theta: Vector, indices: Any = None) -> tuple[float, Vector]:
        return self.call(theta, indices)


def steps_left(
    grad_fn: Gradient, steps: Iterator[Indices], *arrays: Vector
) -> tuple[Iterator[Indices], int, float, Callable[[int, float], None]]:
    """A loop of training steps that goes on where it was left, if its gradient's device keeps that.

    Args:
        arrays: all that the loop changes in place, at their first values; put to where they were left.

    Returns:
        The steps that are left, how many were made before, the sum of their losses, and what to call after each step
        with the new count and sum. The steps that are left out are drawn all the same, for what is drawn after them.
    """
    if not isinstance(grad_fn, KeptGradient):
        return steps, 0, 0.0, lambda count, losses: None
    keeper = grad_fn.keeper
    done, losses = keeper.begin(arrays, grad_fn.random)

    def left() -> Iterator[Indices]:
        yield from islice(steps, done, None)
        keeper.end()

    return left(), done, losses, keeper.note


def steady_gradient(env: NodeEnv, round: int) -> Gradient:
    """The gradient of `gradient`, but within a round the same indices always meet the same samples.

    A Hessian-vector product by differences needs that: between two augmentations the gradient changes far more than
    over the small step between the two points.
    """
    augmented = env.augmented
    if augmented is None:
        return gradient(env, round, rate=0)

    def at(theta: Vector, indices: Any) -> tuple[float, Vector]:
        rows = b"" if indices is None else np.asarray(indices, np.int64).tobytes()
        return augmented(theta, indices, env.random(round, AUGMENTING, crc32(rows)))

    return at


# SGD ------------------------------------------------------------------------------------------------------------
def batches(random: np.random.Generator, samples: int, batch: int, epochs: int, least: int = 1) -> Iterator[Indices]:
    """Indices of one mini-batch after the other, shuffled anew in each epoch; None stands for all samples.

    Without samples there are no batches: a mean over nothing has no gradient.

    Args:
        least: samples that a step needs (`NodeEnv.least`); a last batch of fewer is joined to the one before.
    """
    for _ in range(epochs if samples else 0):
        if batch == 0 or samples <= batch:
            yield None
            continue
        order = random.permutation(samples)
        end = samples - batch if 0 < samples % batch < least else samples
        for start in range(0, end, batch):
            yield order[start : samples if start + batch >= end else start + batch]


def descend(
    grad_fn: Gradient,
    v: Vector,
    steps: Iterator[Indices],
    eta: float,
    *,
    damp: float = 0.0,
    pull: Vector | None = None,
    base: Vector | None = None,
    prox: InPlace | None = None,
) -> float | None:
    """v <- prox(v - eta * (grad f(base + v; batch) + damp * v - pull)), in place, once per batch.

    Passes over memory are what this loop costs beside the gradient, hence the factored form.

    Args:
        v: (n,), the caller's own copy.
        damp: coefficient of 1/2 ||v||^2.
        pull: (n,), the linear term -<pull, v>; None: zero.
        base: (n,), a frozen model to which v is added; None: zero.

    Returns:
        Mean of the batches' losses, before their steps; None without any.
    """
    many = getattr(grad_fn, "descend", None)
    if many is not None and prox is None:  # clients of a simulation: all steps at once (simulation/training/epochs.py)
        return mean_loss(many(v, list(steps), eta, damp, pull, base))
    spare, at = np.empty_like(v), v if base is None else np.empty_like(v)
    push = None if pull is None else eta * pull
    steps, count, losses, note = steps_left(grad_fn, steps, v)
    for indices in steps:
        if base is not None:
            np.add(base, v, out=at)
        loss, gradient = grad_fn(at, indices)
        losses, count = losses + loss, count + 1
        np.multiply(gradient, eta, out=spare)
        if damp:
            v *= 1 - eta * damp
        v -= spare
        if push is not None:
            v += push
        if prox is not None:
            prox(v)
        note(count, losses)
    return losses / count if count else None


def mean_loss(losses: Sequence[float]) -> float | None:
    """The mean, added up as the loop of `descend` does it; None of none."""
    total = 0.0
    for loss in losses:
        total += loss
    return total / len(losses) if losses else None


def accelerate(
    grad_fn: Gradient,
    v: Vector,
    steps: Iterator[Indices],
    eta: float,
    momentum: float,
    *,
    damp: float = 0.0,
    pull: Vector | None = None,
) -> float | None:
    """a <- v + momentum * (v - v of before); v <- a - eta * (grad f(a; batch) + damp * a - pull), in place, per batch.

    Args: and Returns: as of `descend`; the first step has no momentum.
    """
    before, ahead = v.copy(), np.empty_like(v)
    steps, count, losses, note = steps_left(grad_fn, steps, v, before)
    push = None if pull is None else eta * pull
    for indices in steps:
        np.subtract(v, before, out=ahead)
        ahead *= momentum
        ahead += v
        loss, gradient = grad_fn(ahead, indices)
        losses, count = losses + loss, count + 1
        before[...] = v
        np.multiply(ahead, 1 - eta * damp, out=v)
        np.multiply(gradient, eta, out=ahead)
        v -= ahead
        if push is not None:
            v += push
        note(count, losses)
    return losses / count if count else None


def local_prox(kind: str, layout: Layout, like: Vector, threshold: float) -> InPlace | None:
    """v <- prox_{threshold * R}(v), for `descend`: R = "l1" of all parameters, or "nuclear" norms of all layers."""
    if kind == "none":
        return None
    if kind == "nuclear":
        return lambda v: low_rank(layout, v, threshold)
    spare = np.empty_like(like)
    return lambda v: prox.shrink(v, threshold, spare)


def low_rank(layout: Layout, v: Vector, threshold: float) -> None:
    """argmin_z 1/2 ||z - v||^2 + threshold * sum_l ||pi(z_l)||_*, in place."""
    for slot in lowrank.matrix_slots(layout):
        tensor = layout.view(v, slot)
        tensor[...] = lowrank.tensor(slot, prox.nuclear(lowrank.matrix(slot, tensor), threshold))
