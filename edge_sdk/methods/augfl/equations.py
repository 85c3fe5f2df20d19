"""Equations (7) to (12) of AugFL as functions of arrays."""

from __future__ import annotations

import numpy as np

from edge_sdk.algebra.vectors import Vector
from edge_sdk.methods.augfl.messages import AugflModel
from edge_sdk.methods.augfl.settings import NONE, SAMPLES, Env
from edge_sdk.methods.shared.training import meta
from edge_sdk.methods.shared.training.local import steady_gradient


def primal_step(theta: Vector, y: Vector, g: Vector, weight: float, rho: float) -> Vector:
    """Eq. (11): theta_i = argmin <y + w G, theta_i - theta> + rho / 2 ||theta_i - theta||^2, with the old dual."""
    return theta - (y + weight * g) / rho


def dual_step(theta: Vector, y: Vector, theta_i: Vector, rho: float) -> Vector:
    """Eq. (12), with the new primal."""
    return y + rho * (theta_i - theta)


def weight_of(env: Env, m: AugflModel) -> float:
    """w_i."""
    if env.settings.weighting == SAMPLES:
        return env.labelled / max(m.samples, env.labelled)
    return 0.0 if env.settings.weighting == NONE else 1 / max(1, m.devices)


def meta_gradient(env: Env, theta: Vector, round: int, weight: float) -> tuple[float | None, Vector]:
    """F_i and G_i; not computed where they count nothing."""
    if weight == 0:
        return None, np.zeros_like(theta)
    support, query = meta.support_and_query(env, env.settings.support)
    return meta.meta_gradient(steady_gradient(env, round), env.settings, theta, support, query, round, env.hessian)
