"""What a device reaches alone: the yardstick that taking part must beat."""

from __future__ import annotations

from collections.abc import Callable

from edge_sdk.algebra.vectors import Vector
from edge_sdk.contract.method import NodeEnv
from edge_sdk.methods.fedal.method import alone
from edge_sdk.methods.fedal.settings import Env
from edge_sdk.methods.fedbcd import method as fedbcd
from edge_sdk.methods.shared.local import Training, batches, descend, gradient

ALONE = 9
"""Purpose of the random stream; the methods use smaller numbers."""


Told = Callable[[int], None]
"""A function that is called with the number of rounds that are done."""


def local_only(env: NodeEnv, told: Told = lambda rounds: None) -> Vector:
    """Mini-batch SGD on the own samples from the initial model: as many epochs, the same batches' size, step sizes and
    weight decay as the local phases of a whole run, but nobody else's knowledge. FedAL's devices: their local stages;
    FedBCD's: their steps without the penalty.

    Returns:
        theta, (n,), after rounds x local_epochs epochs.
    """
    if isinstance(env, Env):
        return alone(env, told)
    if isinstance(env, fedbcd.Env):
        return unpulled(env, told)
    settings = env.settings if isinstance(env.settings, Training) else Training()
    theta = env.theta0.copy()
    assert env.grad_fn is not None
    for round in range(env.rounds):
        steps = batches(env.random(round, ALONE), env.samples, settings.batch, settings.local_epochs)
        descend(env.grad_fn, theta, steps, settings.eta(round), damp=settings.weight_decay)
        told(round + 1)
    return theta


def unpulled(env: fedbcd.Env, told: Told) -> Vector:
    """Eq. (4) of FedBCD on g_i alone, round after round, with the same draws of K and of batches."""
    start = fedbcd.common_start(env)
    x, before = start, start
    for round in range(env.rounds):
        steps = fedbcd.minibatches(env, env.settings, round, fedbcd.local_steps(env, env.settings, round))
        x, before, _ = fedbcd.edge_update(gradient(env), env.settings, x, before, steps)
        told(round + 1)
    return x
