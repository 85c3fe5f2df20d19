"""Equations (1) and (5) to (7) of HSGD as functions of arrays, and the draws of devices and mini-batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated
from zlib import crc32

import numpy as np
import numpy.typing as npt

from edge_sdk.algebra.arrays import Tensor
from edge_sdk.algebra.vectors import Vector
from edge_sdk.contract.children.choice import pick
from edge_sdk.contract.environment.kernels import Rows
from edge_sdk.errors import UsageError
from edge_sdk.methods.hsgd.compression import Floats
from edge_sdk.methods.hsgd.settings import Env, Plan, require
from edge_sdk.methods.shared.aggregation import exact
from edge_sdk.methods.shared.aggregation.draw import round_half_up

BATCH, MEASURE, ROUND = 1, 2, 3  # purposes of randomness


def draw_minibatch(env: Env, round: int, interval: int, device: str, samples: int) -> Rows:
    """Which of a device's samples make up its part of xi_m: the same for the device and for its hospital.

    All rounds of the pretraining have one mini-batch. They compare gradients at different models, and between different
    mini-batches gradients differ far more than between these models.
    """
    round = 0 if round < env.settings.pretraining else round
    if env.settings.batch == 0 or samples <= env.settings.batch:
        return np.arange(samples)
    random = np.random.default_rng([env.seed, round, interval, crc32(device.encode()), BATCH])
    return np.sort(random.permutation(samples)[: env.settings.batch])


def draw_devices(env: Env, among: tuple[str, ...], *seed: int) -> tuple[str, ...]:
    """A_m: max(1, alpha K_m) devices, uniformly without replacement; all that there are, if there are fewer."""
    count = max(1, round_half_up(env.settings.alpha * sum(1 for rows in env.rows.values() if len(rows))))
    return pick(among, count, env.seed, *seed, crc32(env.me.encode()))


def hospital_steps(
    env: Env, t: int, plan: Plan, own: tuple[Vector, Vector], zeta_2: Floats, rows: Rows
) -> tuple[float, Vector, Vector, Vector]:
    """Eqs. (5) and (6), Q times, both at the values of before: own blocks fresh, zeta_2 as exchanged.

    Args:
        own: theta_0 and theta_1.

    Returns:
        The loss before the first step, theta_0 and theta_1 after the last, and its gradient in theta_1.
    """
    gradient, s, (theta_0, theta_1) = require(env.grad_hospital, env, "grad_hospital"), env.settings, own
    losses, g_1 = [], np.zeros_like(theta_1)
    for step in range(t, t + plan.Q):
        loss, g_0, g_1 = gradient(theta_0, theta_1, zeta_2, rows)
        eta = s.eta_at(plan, step)
        theta_0, theta_1 = theta_0 - eta * g_0, theta_1 - eta * (g_1 + s.mu * theta_1)
        losses.append(float(loss))
    return losses[0], theta_0, theta_1, g_1


def device_steps(
    env: Env, t: int, plan: Plan, theta_0: Vector, zeta_1: Floats, theta_2: Vector, samples: Rows
) -> tuple[Vector, Vector]:
    """Eq. (7), Q times: own block fresh, theta_0 and zeta_1 as exchanged. theta_2, and the last gradient."""
    gradient, s = require(env.grad_device, env, "grad_device"), env.settings
    g = np.zeros_like(theta_2)
    for step in range(t, t + plan.Q):
        _, g = gradient(theta_0, zeta_1, theta_2, samples)
        theta_2 = theta_2 - s.eta_at(plan, step) * (g + s.mu * theta_2)
    return theta_2, g


def measure_columns(env: Env, gradient: Vector) -> Vector | None:
    """|gradient| of the bias of the last layer: how much each column of the embedding matters."""
    if not env.settings.columns:
        return None
    if env.bias is None:
        raise UsageError(f"{env.me}: columns = true needs to know where the bias of the last layer lies")
    return np.abs(gradient[env.bias])


# Eq. (1) ----------------------------------------------------------------------------------------------------------
Integers = Annotated[npt.NDArray[np.int64], Tensor(("?",), "int64")]


@dataclass(frozen=True)
class Added:
    """A running sum of models that does not depend on the order of arrival (see exact.py).

    Attributes:
        high, low: the sum.
        weight: how many samples.
        names: whose.
    """

    high: Integers
    low: Integers
    weight: int
    names: tuple[str, ...]


def add_model(sum: Added | None, name: str, x: Vector, weight: int) -> Added:
    high, low = exact.split(x)
    if sum is None:
        return Added(weight * high, weight * low, weight, (name,))
    names = tuple(sorted({*sum.names, name}))
    return Added(sum.high + weight * high, sum.low + weight * low, sum.weight + weight, names)


def mean_model(sum: Added, like: Vector) -> Vector:
    total = np.ldexp(sum.high.astype(np.float64), -exact.HIGH) + np.ldexp(sum.low.astype(np.float64), -exact.LOW)
    return (total / sum.weight).astype(like.dtype)
