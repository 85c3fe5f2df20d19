"""Settings of AugFL, and what its theorem asks of them. lambda and the pretrained model are none of them: settings go
to every node of a run, and these stay on the aggregator (edge_sdk/nodes/private_table.py).

Source: sections 3 and 4 of the paper; its conditions are Assumption 5.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import isfinite

import numpy as np

from edge_sdk.algebra.vectors import Vector
from edge_sdk.errors import UsageError
from edge_sdk.methods.shared.draw import SELECTIONS
from edge_sdk.methods.shared.local import above_zero, one_of, zero_or_more
from edge_sdk.methods.shared.meta import Meta, kept_out
from edge_sdk.methods.shared.server import PENALTIES

BOTH, U, Y = UPLOADS = ("theta_y", "u", "y")
SAMPLES, UNIFORM, NONE = WEIGHTINGS = ("samples", "uniform", "none")
ZERO, PLAIN = Y_INITS = ("zero", "plain")


@dataclass(frozen=True, kw_only=True)
class Settings(Meta):
    """Hyper-parameters; the defaults are the paper's.

    Attributes:
        rho: penalty of each device. The step of the global model is 1 over their sum, so it shrinks with each device.
        rhos: device -> its penalty, where that is another one.
        weighting: w_i by number of "samples", "uniform", or "none": devices count nothing, which leaves distillation.
        upload: "theta_y": theta_i and y_i, as in the paper. "u": y_i + rho_i theta_i, half of that, and a plain sum.
            "y": y_i alone. The iterates are the same within rounding.
        y_init: y_i^-1, which only the first step depends on. "zero" makes that step twice as long, "plain" does not.
        dual: with duals. Without, the step is one of Per-FedAvg.
        participation: up to 1 the share of the training devices that are asked per round, above 1 their number. Who
            is not asked, or does not answer, counts with what was last heard: more than the theorem covers.
        selection: "fixed": exactly so many; "bernoulli": each one with that probability.
        penalty, penalty_weight: a term of the aggregator's own: "nuclear" or "l1" norms of the layers, or "none".
        stop: the run ends early where ||S^t||, the residual of stationarity, is no more; 0: it does not.
        smoothness, gradient_bound, hessian_lipschitz: mu, beta, zeta of the devices' losses, where they are known;
            only for `warnings`.
    """

    rho: float = 0.7
    rhos: Mapping[str, float] = field(default_factory=dict)
    weighting: str = SAMPLES
    upload: str = BOTH
    y_init: str = ZERO
    dual: bool = True
    participation: float = 1.0
    selection: str = "fixed"
    penalty: str = "none"
    penalty_weight: float = 0.0
    stop: float = 0.0
    smoothness: float | None = None
    gradient_bound: float = 0.0
    hessian_lipschitz: float = 0.0

    def __post_init__(self) -> None:
        self.check_meta()
        above_zero(self, "participation")
        zero_or_more(self, "penalty_weight", "stop", "gradient_bound", "hessian_lipschitz")
        one_of(self, WEIGHTINGS, "weighting")
        one_of(self, UPLOADS, "upload")
        one_of(self, Y_INITS, "y_init")
        one_of(self, SELECTIONS, "selection")
        one_of(self, PENALTIES, "penalty")
        self.check_combinations()

    def check_combinations(self) -> None:
        for name, rho in {"rho": self.rho, **{f"rhos.{d}": r for d, r in self.rhos.items()}}.items():
            if not (isfinite(rho) and rho > 0):
                raise UsageError(f"{name} = {rho}: a number above 0")
        if self.smoothness is not None:
            above_zero(self, "smoothness")
        if self.participation > 1 and self.participation != int(self.participation):
            raise UsageError(f"participation = {self.participation}: a share up to 1, or a whole number of devices")
        if self.upload == Y and not self.dual:
            raise UsageError("upload = 'y' with dual = false: there would be nothing to send")

    def penalty_of(self, device: str) -> float:
        """rho_i."""
        return self.rhos.get(device, self.rho)


# Theory ---------------------------------------------------------------------------------------------------------
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
    """Of one device. `pull`: lambda mu_r, the smoothness of the regulariser's term."""
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
    """Of the sum of rho; and of Assumption 5, where the smoothness of the devices' losses is known."""
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
