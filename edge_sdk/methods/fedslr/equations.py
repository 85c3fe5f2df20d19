"""Equations (4) to (7) of FedSLR as functions of arrays."""

from __future__ import annotations

from edge_sdk.algebra.lowrank import Packed
from edge_sdk.algebra.running_statistics import without_statistics
from edge_sdk.algebra.vectors import Vector
from edge_sdk.methods.fedslr.settings import PHASE_I, PHASE_II, Env
from edge_sdk.methods.shared.aggregation.server import ServerTerms, penalty, server_step
from edge_sdk.methods.shared.training.local import batches, descend, gradient, local_prox


def local_phase(env: Env, round: int, w: Vector, gamma: Vector) -> tuple[Vector, float | None]:
    """Eq. (4), phase I: argmin_v f_i(v) + weight_decay/2 ||v||^2 - <gamma, v> + 1/(2 eta_g) ||w - v||^2, from v = w.

    Returns:
        w_{i,t+1}, and the mean loss of the batches (None where there was no batch).
    """
    if env.local_solver is not None:
        return env.local_solver(w, gamma), None
    s, v = env.settings, w.copy()
    steps = batches(env.random(round, PHASE_I), env.samples, s.batch, s.local_epochs, env.least)
    damp, pull = s.weight_decay + 1 / s.eta_g, gamma + w / s.eta_g
    return v, descend(gradient(env, round, PHASE_I), v, steps, s.eta(round), damp=damp, pull=pull)


def update_auxiliary(gamma: Vector, w: Vector, w_local: Vector, eta_g: float, share: float = 1.0) -> Vector:
    """Eq. (5). With w_local the mean over a share of all devices: the same for the mean of gamma_i (Algorithm 3)."""
    return gamma + (share / eta_g) * (w - w_local)


def local_fusion(env: Env, round: int, w: Vector, p: Vector, epochs: int | None = None) -> Vector:
    """Eq. (7), phase II: proximal SGD on f_i(w + p) + mu ||p||_1 with w frozen; p is zero at running statistics.

    Args:
        epochs: personal_epochs if None.
    """
    s, p = env.settings, p.copy()
    epochs = s.personal_epochs if epochs is None else epochs
    steps = batches(env.random(round, PHASE_II), env.samples, s.batch, epochs, env.least)
    shrink = local_prox(s.personal_penalty, env.layout, p, s.mu * s.eta(round))
    damp = s.weight_decay if s.personal_weight_decay else 0.0
    descend(gradient(env, round, PHASE_II), p, steps, s.eta(round), damp=damp, base=w, prox=shrink)
    return without_statistics(env.layout, p)


def aggregate(env: Env, w: Vector, w_mean: Vector, gamma_mean: Vector) -> Packed:
    """Eq. (6): prox_{eta_g lambda ||.||_*}(mean over S_t of w_i - eta_g * mean over all of gamma_i), layer by layer."""
    s = env.settings
    terms = ServerTerms(env.smooth_grad, penalty(s.global_penalty, s.lam, env.svt))
    return server_step(terms, env.layout, w_mean - s.eta_g * gamma_mean, at=w, step=s.eta_g)
