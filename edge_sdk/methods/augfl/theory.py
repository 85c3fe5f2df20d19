"""What AugFL's theorem asks of the step sizes (Assumption 5), and warnings where settings do not meet it.

Source: sections 3 and 4 of the paper.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from edge_sdk.algebra.vectors import Vector
from edge_sdk.methods.augfl.settings import Settings
from edge_sdk.methods.shared.training.meta import kept_out


@dataclass(frozen=True)
class Margins:
    """What must be above 0. Attributes: of eqs. (21), (22) and (23)."""

    local: float
    shared: float
    simple: float


def meta_smoothness(alpha: float, mu: float, beta: float = 0.0, zeta: float = 0.0) -> float:
    """nu_i of F_i. The paper's eq. (25) drops an alpha; this is what its appendix derives, (79) and (80)."""
    return (1 + alpha * mu) ** 2 * mu + alpha * beta * zeta


def margins(rho: float, weight: float, nu: float, devices: int, pull: float = 0.0) -> Margins:
    """Margins of one device. `pull`: lambda mu_r, the smoothness of the regulariser's term."""
    dual = 2 * weight**2 * nu**2 * (4 * weight * nu / rho**2 + 1 / rho)
    return Margins(rho / 2 - 4 * weight * nu, rho / 2 - dual - pull / (2 * devices), rho - 3 * nu)


def least_rho_sum(nu: float, pull: float = 0.0) -> float:
    """Below this sum of rho_i iterates may grow. Exact for quadratics, with curvatures in place of nu and `pull`."""
    return (3 * nu + pull) / 2


def largest_curvature(gradient: Callable[[Vector], Vector], theta: Vector, steps: int = 20) -> float:
    """The Hessian's eigenvalue of largest magnitude at theta, by power iteration with central differences."""
    v = np.random.default_rng(0).normal(size=theta.shape).astype(theta.dtype)
    step = float(np.sqrt(np.finfo(theta.dtype).eps) * max(1.0, float(np.linalg.norm(theta))))
    found = 0.0
    for _ in range(steps):
        length = float(np.linalg.norm(v))
        if length == 0:
            return 0.0
        v = v / length
        product = (gradient(theta + step * v) - gradient(theta - step * v)) / (2 * step)
        found, v = float(v @ product), product
    return found


def warnings(s: Settings, sizes: Mapping[str, int], pull: float = 0.0) -> list[str]:
    """Settings that run, but beyond what the theorem covers.

    Args:
        pull: lambda mu_r, where it is known: on the aggregator.
    """
    found = []
    if s.participation != 1:
        found.append(f"participation = {s.participation}: the theorem covers rounds in which all devices take part")
    if s.penalty != "none":
        found.append(f"penalty = {s.penalty!r}: the theorem covers smooth terms")
    if s.smoothness is not None and s.delta_power <= 1 and s.hvp == "central":
        found.append(f"delta_power = {s.delta_power}: the theorem asks for a summable schedule, above 1")
    return found + step_warnings(s, sum(n - kept_out(n, s.unseen) for n in sizes.values()), pull)


def step_warnings(s: Settings, devices: int, pull: float) -> list[str]:
    """Warnings about the sum of rho and, where the smoothness of the devices' losses is known, about Assumption 5."""
    rho, total = min([s.rho, *s.rhos.values()]), s.rho * max(0, devices - len(s.rhos)) + sum(s.rhos.values())
    found, nu = list[str](), 0.0
    if s.smoothness is not None:
        nu = meta_smoothness(s.alpha, s.smoothness, s.gradient_bound, s.hessian_lipschitz)
        there = margins(rho, 1 / devices, nu, devices, pull)
        asked = {"(21)": there.local, "(22)": there.shared, "(23)": there.simple}
        found = [f"rho = {rho}: Assumption 5, eq. {n}, misses 0 by {-m:.3g}" for n, m in asked.items() if not m > 0]
    least = least_rho_sum(nu, pull)
    if total <= least:
        advice = "raise rho, or lower the weight of the private model" if pull else "raise rho"
        found.append(f"the sum of rho is {total:.3g}, and below {least:.3g} iterates may grow: if they do, {advice}")
    return found
