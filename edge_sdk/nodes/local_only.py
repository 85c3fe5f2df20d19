"""What a device reaches alone: the yardstick that taking part must beat."""

from __future__ import annotations

from collections.abc import Callable

from edge_sdk.algebra.vectors import Vector
from edge_sdk.contract.method import NodeEnv
from edge_sdk.methods.fedal.device import alone
from edge_sdk.methods.fedal.settings import Env
from edge_sdk.methods.fedbcd import equations as fedbcd_equations
from edge_sdk.methods.fedbcd import settings as fedbcd_settings
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
    if isinstance(env, fedbcd_settings.Env):
        return unpulled(env, told)
    settings = env.settings if isinstance(env.settings, Training) else Training()
    theta = env.theta0.copy()
    for round in range(env.rounds):
        steps = batches(env.random(round, ALONE), env.samples, settings.batch, settings.local_epochs)
        descend(gradient(env, round, ALONE), theta, steps, settings.eta(round), damp=settings.weight_decay)
        told(round + 1)
    return theta


def unpulled(env: fedbcd_settings.Env, told: Told) -> Vector:
    """Eq. (4) of FedBCD on g_i alone, round after round, with the same draws of K and of batches."""
    start = fedbcd_equations.common_start(env)
    x, before = start, start
    for round in range(env.rounds):
        steps = fedbcd_equations.minibatches(
            env, env.settings, round, fedbcd_equations.local_steps(env, env.settings, round)
        )
        slope = gradient(env, round, fedbcd_equations.BATCHES)
        x, before, _ = fedbcd_equations.edge_update(slope, env.settings, x, before, steps)
        told(round + 1)
    return x
