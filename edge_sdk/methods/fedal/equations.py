"""FedAL's batches, and the gradients of its two stages, eqs. (11) to (17), as functions of arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from edge_sdk.algebra.vectors import Vector
from edge_sdk.contract.environment.kernels import Inputs, Rows
from edge_sdk.errors import UsageError
from edge_sdk.methods.fedal import distillation
from edge_sdk.methods.fedal.distillation import Floats
from edge_sdk.methods.fedal.messages import Feedback
from edge_sdk.methods.fedal.settings import LOCAL, PUBLIC, Env, Settings
from edge_sdk.methods.shared.training.local import steady_gradient


def require(value: Any, env: Env, name: str) -> Any:
    if value is None:
        raise UsageError(f"{env.me} was given no {name}, so it cannot train")
    return value


def draw_private_rows(env: Env, round: int, step: int) -> Rows:
    """D_n^{t,i}: without replacement, independent of the other batches; all samples where there are fewer."""
    random = env.random(round, LOCAL, step)
    return np.sort(random.choice(env.samples, min(env.settings.batch, env.samples), replace=False))


def draw_public_rows(env: Env, round: int, exchange: int) -> Rows:
    """P^{t,i}: a function of (seed, t, i), so that all devices have the same without a byte."""
    inputs: Inputs = require(env.public, env, "public inputs")
    if inputs.count < env.settings.public_batch:
        raise UsageError(f"{inputs.count} public inputs, a batch has public_batch = {env.settings.public_batch}")
    random = np.random.default_rng([env.seed, round, exchange, PUBLIC])
    return np.sort(random.choice(inputs.count, env.settings.public_batch, replace=False))


def local_gradient(env: Env, theta: Vector, start: Vector | None, rows: Rows) -> tuple[float, Vector]:
    """Mean cross entropy of a batch, and the gradient of (14): that + lf_local r_loc, (11).

    Args:
        start: theta^{t,0}, whose outputs are not to be forgotten; None: there is no such term.
    """
    if start is None:
        return steady_gradient(env, 0)(theta, rows)  # the rows differ from step to step, and decide
    s, inputs = env.settings, require(env.private, env, "private inputs")
    f = inputs.logits(theta, rows)
    loss, cotangent = distillation.cross_entropy(require(env.labels, env, "labels")[rows], f)
    before = distillation.softmax(inputs.logits(start, rows), s.memory_temperature)
    cotangent = cotangent + s.lf_local * distillation.divergence_gradient(before, f, s.memory_temperature)
    return loss, inputs.pull(theta, rows, (cotangent / len(rows)).astype(f.dtype))


def transfer_cotangent(settings: Settings, f: Floats, reference: Floats | None, m: Feedback) -> Floats | None:
    """d V_glo / d f of each input, (16) with g_n for the adversarial term; None: there is nothing to learn from.

    Args:
        f: (B, K), the logits that were sent. reference: the same inputs' at the start of the stage, (12).
    """
    if m.count < 2:
        return None
    terms: list[Floats] = []
    if settings.kd and m.mean is not None:
        target = m.mean if settings.target == "all" else distillation.of_others(m.mean, m.count, f)
        terms.append(settings.kd * distance_gradient(settings, target, f))
    if settings.al and m.gradient is not None:
        g = distillation.clipped(m.gradient, settings.clip) if settings.clip else m.gradient
        terms.append(settings.al * g)
    if settings.lf_transfer and reference is not None:
        q = distillation.softmax(reference, settings.memory_temperature)
        terms.append(settings.lf_transfer * distillation.divergence_gradient(q, f, settings.memory_temperature))
    return np.asarray(sum(terms[1:], terms[0]), f.dtype) if terms else None


def distance_gradient(settings: Settings, target: Floats, f: Floats) -> Floats:
    """Gradient of K(consensus, own), (16), in the own logits; for features, of their mean squared distance."""
    if settings.features:
        return np.asarray(2 * (f - target) / f.shape[1])
    q = distillation.softmax(target, settings.temperature_kd)
    return distillation.divergence_gradient(q, f, settings.temperature_kd)
