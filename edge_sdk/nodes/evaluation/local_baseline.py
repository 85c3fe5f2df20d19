"""Training alone, as well as a device can: the yardstick that taking part must beat.

By Adam and by SGD, from the bundle's initial model, with the run's batches and augmentation, and with at least as many
steps as the device makes in the run, all its phases together. (A step counts once, also where a method takes several
gradients for it, as Per-FedAvg does; FedALA's learning of weights is not counted.) Along the way the model is judged on
validation samples. By these counts optimiser and steps are chosen: by the device's own and, in a replay, also by those
of all devices together, because a single device may have few validation samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, count
from math import ceil
from typing import Any

from edge_sdk.algebra.optim import SGD, Adam
from edge_sdk.algebra.running_statistics import step_with_statistics
from edge_sdk.algebra.vectors import Vector
from edge_sdk.contract.method import NodeEnv
from edge_sdk.contract.run import Run
from edge_sdk.methods.settling.settings import Settling
from edge_sdk.methods.shared.training.local import Indices, batches, gradient
from edge_sdk.nodes.configuration import around

ALONE = 15
"""Purpose of the random streams: apart from those of the methods."""
ADAM_RATE = 1e-3
"""Adam's usual step size (Kingma and Ba, 2015)."""
FEWEST, LEAST = 25, 400
"""Steps of the first candidate; steps that the last one has at least."""
EACH_ROUND = ("local_epochs", "head_epochs", "personal_epochs")
AT_THE_END = ("settle_epochs", "fine_tune_epochs")
"""Settings that say how many epochs a device makes in each round, and how many once, on the last model."""
OPTIMISERS = ("adam", "sgd")
"""In the order in which equally good ones are preferred."""


def step_grid(env: NodeEnv, run: Run) -> list[int]:
    """Numbers of steps after which the model is judged, each twice the one before, and the largest: 25, 50, ..."""
    most, grid, steps = count_most_steps(env, run), list[int](), FEWEST
    while steps < most:
        grid.append(steps)
        steps *= 2
    return [*grid, most]


def count_most_steps(env: NodeEnv, run: Run) -> int:
    """Number of steps of all the device's phases in the run, with those in which it settles; at least LEAST."""
    batch = batch_of(env.settings)
    per_epoch = ceil(env.samples / batch) if batch else 1
    by_number = add_up(env.settings, ("local_steps",))  # of SCAFFOLD, in place of epochs; FedBCD's may be epochs
    by_number *= per_epoch if getattr(env.settings, "unit", "step") == "epoch" else 1
    steps = env.rounds * max(1, add_up(env.settings, EACH_ROUND) * per_epoch, by_number)
    steps += add_up(env.settings, AT_THE_END) * per_epoch
    settling = settling_of(run)
    more = 0 if settling is None else max(*settling.steps, *settling.local_steps)
    return max(LEAST, steps + more)


def add_up(settings: Any, keys: tuple[str, ...]) -> int:
    """Sum of those of these settings that the run's method has."""
    return sum(int(getattr(settings, key, 0) or 0) for key in keys)


def settling_of(run: Run) -> Settling | None:
    """Settings of the run's settling phase; None: it has none."""
    return around.settling_of(run) if run.settle else None


def batch_of(settings: Any) -> int:
    """Samples per step, as the run's method has it; 0: all."""
    return int(getattr(settings, "batch", 20))


def train_in_steps(
    env: NodeEnv, run: Run, optimiser: str, steps: list[int], told: Callable[[int], None]
) -> Iterator[Vector]:
    """Trains alone, and yields the model, a new array each time, after each of so many steps, ascending.

    Args:
        optimiser: one of OPTIMISERS. Adam has the step size with which the run settles, where it does.
        told: called after each step with the number of those that are done.
    """
    theta, drawn = env.theta0.copy(), draw_batches(env)
    settling = settling_of(run)
    adam_rate = ADAM_RATE if settling is None else settling.rate
    tool = Adam(adam_rate) if optimiser == "adam" else SGD(sgd_rate(env.settings))
    slope, done = gradient(env, env.rounds, ALONE, rate=0), 0
    for wanted in steps:
        while done < wanted:
            step_with_statistics(env.layout, tool, theta, slope(theta, next(drawn))[1])
            done += 1
            told(done)
        yield theta.copy()


def sgd_rate(settings: Any) -> float:
    """Step size of SGD: the run's own local one where its method has one."""
    return float(getattr(settings, "eta_l", 0.0) or 0.05)


def draw_batches(env: NodeEnv) -> Iterator[Indices]:
    """Mini-batches, epoch after epoch; the same for both optimisers."""
    random = env.random(env.rounds, ALONE)
    return chain.from_iterable(batches(random, env.samples, batch_of(env.settings), 1, env.least) for _ in count())


def choose_trial(correct: list[int]) -> int:
    """Index of the first trial with the most correct validation samples: Adam before SGD, fewer steps before more."""
    return max(range(len(correct)), key=lambda i: (correct[i], -i))
