"""Equations (4) to (6) of FedBCD and Algorithm 2 as functions of arrays, and the random choices in them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from edge_sdk.algebra.vectors import Vector
from edge_sdk.contract.method import NodeEnv
from edge_sdk.methods.fedbcd.settings import SYNC, Env, OfflineSettings, Settings
from edge_sdk.methods.shared.aggregation.gather import Sum
from edge_sdk.methods.shared.consensus import consensus
from edge_sdk.methods.shared.training.local import Gradient, Indices, batches

STEPS, BATCHES, ABLE = 1, 2, 3  # purposes of randomness


def project(s: Settings, x: Vector) -> Vector:
    """Pi_X(x) = argmin over y in X of ||y - x||^2."""
    if s.feasible == "box":
        return np.clip(x, -s.bound, s.bound)
    length = float(np.linalg.norm(x)) if s.feasible == "ball" else 0.0
    return x * (s.bound / length) if length > s.bound else x


def edge_update(
    grad_fn: Gradient,
    s: Settings,
    x: Vector,
    before: Vector,
    steps: Iterable[Indices],
    z: Vector | None = None,
    gamma: float = 0.0,
) -> tuple[Vector, Vector, float | None]:
    """Eq. (4): momentum from the last two iterates, then the projected gradient of loss and penalty, both taken there.

    Args:
        steps: indices of one mini-batch after the other; None stands for all samples.
        z: the model that the penalty gamma / 2 ||x - z||^2 pulls to; None: there is no penalty.

    Returns:
        The last two iterates, and the mean loss of the batches (None without any).
    """
    losses = []
    for indices in steps:
        ahead = x + s.zeta * (x - before)
        loss, slope = grad_fn(ahead, indices)
        if z is not None:
            slope = slope + gamma * (ahead - z)
        x, before = project(s, ahead - s.eta_x * slope), x
        losses.append(loss)
    return x, before, sum(losses) / len(losses) if losses else None


def pull(s: Settings, x: Vector, before: Vector, z: Vector, gamma: float, steps: int) -> tuple[Vector, Vector]:
    """Algorithm 2: towards z with step gamma itself, without data or momentum. The last two iterates."""
    for _ in range(steps):
        x, before = project(s, x - gamma * (x - z)), x
    return x, before


def cloud_step(w: Vector, sums: Sum | None, eta_z: float) -> Vector:
    """Eqs. (5) and (6) on sums, G of gamma_i and S of gamma_i x_i: (1 - eta_z G) w + eta_z S."""
    return consensus.step_on_sums(w, sums, eta_z)


def count_in_step(s: Settings, sizes: Mapping[str, int], answered: int) -> int:
    """Number of devices in the sum of one cloud step. `answered`: to the aggregator, in this round."""
    if s.cloud == SYNC:
        return answered if isinstance(s, OfflineSettings) else sum(sizes.values())
    counts = [s.taking_part(n) if isinstance(s, OfflineSettings) else n for n in sizes.values()]
    return max(counts)


def cloud_eta(s: Settings, sizes: Mapping[str, int], answered: int) -> float:
    """eta_z, one for all hospitals: each one's own would silently weigh hospitals anew."""
    if s.eta_mode == "raw":
        return s.eta_z
    count = count_in_step(s, sizes, answered)
    return s.eta_z / (count if s.eta_mode == "mean" else count * s.largest(sum(sizes.values())))


def draw_local_steps(env: NodeEnv, s: Settings, round: int) -> int:
    """K_i^(t)."""
    return int(env.random(round, STEPS).integers(1, s.local_steps + 1)) if s.draw_steps else s.local_steps


def draw_minibatches(env: NodeEnv, s: Settings, round: int, steps: int) -> Iterator[Indices]:
    """So many epochs, shuffled; or so many steps, each on R samples drawn anew."""
    random = env.random(round, BATCHES)
    if s.unit == "epoch":
        yield from batches(random, env.samples, s.batch, steps, env.least)
        return
    for _ in range(steps):
        exact = s.batch == 0 or env.samples <= s.batch
        yield None if exact else random.integers(env.samples, size=s.batch)


def common_start(env: Env) -> Vector:
    """x^(0): of all devices and hospitals. It lies in X."""
    return project(env.settings, env.theta0)
