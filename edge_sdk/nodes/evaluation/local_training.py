"""What a device reaches alone: the yardstick that taking part must beat."""

from __future__ import annotations

from collections.abc import Callable

from edge_sdk.algebra.vectors import Vector
from edge_sdk.contract.method import Method, NodeEnv
from edge_sdk.methods.shared.training.local import Training, batches, descend, gradient
from edge_sdk.methods.standardising.equations import by_itself, placed

ALONE = 9
"""Purpose of the random stream; the methods use smaller numbers."""


def train_alone(method: Method, env: NodeEnv, told: Callable[[int], None] = lambda rounds: None) -> Vector:
    """Train on the own samples from the initial model, with nobody else's knowledge.

    Mini-batch SGD with as many epochs, and the same batches' size, step sizes and weight decay, as the local phases of
    a whole run have. A method whose local phases are something else brings its own (`Method.alone`).

    Args:
        told: called with the number of rounds that are done.

    Returns:
        theta, (n,), after env.rounds rounds.
    """
    if method.alone is not None:
        return method.alone(env, told)
    settings = env.settings if isinstance(env.settings, Training) else Training()
    env, statistics = by_itself(env)
    theta = env.theta0.copy()
    for round in range(env.rounds):
        steps = batches(env.random(round, ALONE), env.samples, settings.batch, settings.local_epochs, env.least)
        descend(gradient(env, round, ALONE), theta, steps, settings.eta(round), damp=settings.weight_decay)
        told(round + 1)
    return placed(env.layout, theta, statistics)
