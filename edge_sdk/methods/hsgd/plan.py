"""What the theory of HSGD says about P, Q and eta: a bound, three strategies, and their constants.

    Theorem 1      bound, step_limit            S1  relation    Lambda = P / Q for a target of the bound
    eq. (19)       costs.paper_floats           S2  size        P = Q for the least bound times cost
    one round      decrease                     S3  rate        eta for the steepest bound of one round

Where the paper contradicts itself: the minimum of S2 has eta cubed, which its own derivative (20) gives and without
which its units do not agree; eta squared as printed behind a flag. E F(theta^T) is unknown, so it is 0.
Theorem 1 assumes alike groups. Treat it as the source of formulas, not as a promise. ||grad F|| at the start of a round
is taken from the model's way in the round before, noise included; before the first round, from the pretraining.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from math import floor, inf, isfinite, sqrt
from typing import Any

import numpy as np

from edge_sdk.algebra.arrays import Theta
from edge_sdk.algebra.vectors import Vector
from edge_sdk.methods.hsgd.settings import Plan, Settings


# Theorem 1 ------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Constants:
    """Constants of Theorem 1, as far as they are known.

    Attributes:
        f0: F(theta~^0) less its least value.
        rho: Lipschitz constant of the gradients.
        delta: square root of the variance of a stochastic gradient.
        gradient: ||grad F|| at the start of a global round; nan: not known yet.
    """

    f0: float
    rho: float
    delta: float
    gradient: float = float("nan")


def bound(c: Constants, plan: Plan, T: float) -> float:
    """Gamma(P, Q), right side of Theorem 1: of the mean of ||grad F||^2 over the global rounds of T iterations."""
    P, Q, eta = plan.P, plan.Q, plan.eta
    start = 4 * c.f0 / (eta * T)
    return start + 12 * P * c.rho * eta * c.delta**2 + 96 * (Q * c.rho * eta * c.delta) ** 2


def step_limit(P: int, rho: float) -> float:
    """The largest eta that Theorem 1 covers."""
    return 1 / (8 * P * rho) if rho > 0 else inf


def step_warnings(plan: Plan, rho: float) -> list[str]:
    """Step sizes that Theorem 1 does not cover; runs converge well beyond them, so they are never refused."""
    limit = step_limit(plan.P, rho)
    return [f"eta = {plan.eta}: Theorem 1 asks for at most 1 / (8 P rho) = {limit:.3g}"] if plan.eta > limit else []


def warnings(s: Settings, sizes: Mapping[str, int]) -> list[str]:
    """Step sizes that Theorem 1 does not cover, where rho is known."""
    return [] if s.rho is None else step_warnings(s.plan, s.rho)


def decrease(c: Constants, P: int, Q: int) -> tuple[float, float, float]:
    """a, b, c of the bound a eta^3 + b eta^2 - c eta of E F after a global round less F before it."""
    a, b = 24 * Q**2 * P * (c.rho * c.delta) ** 2, 3 * P**2 * c.rho * c.delta**2
    return a, b, P / 4 * c.gradient**2


# Strategies -----------------------------------------------------------------------------------------------------
def least_relation(c: Constants, P: int, eta: float, T: float, target: float) -> float:
    """S1: the least Lambda with bound <= target, real; inf: the target cannot be reached with this P, eta and T."""
    left = target - 4 * c.f0 / (eta * T) - 12 * P * c.rho * eta * c.delta**2
    return 4 * sqrt(6) * P * c.rho * eta * c.delta / sqrt(left) if left > 0 else inf


def relation(c: Constants, P: int, eta: float, T: float, target: float) -> int | None:
    """S1: the least Lambda that divides P and keeps the bound below the target; None: there is none."""
    least = least_relation(c, P, eta, T, target)
    return next((n for n in range(1, P + 1) if P % n == 0 and n >= least), None)


def best_size(c: Constants, eta: float, T: float, printed: bool = False) -> float:
    """S2: the real Q = P of least bound times cost. `printed`: with eta squared, as the closed form is printed."""
    spread = 24 * (c.rho * c.delta) ** 2 * eta ** (2 if printed else 3) * T
    return sqrt(c.f0 / spread) if spread > 0 else inf


def size(c: Constants, eta: float, T: float, printed: bool = False) -> int:
    """S2: `best_size` as a whole number, no larger than the step condition allows."""
    cap = floor(min(1 / (8 * c.rho * eta) if c.rho * eta > 0 else inf, T))
    return max(1, min(cap, round(min(best_size(c, eta, T, printed), T))))


def best_rate(c: Constants, P: int, Q: int) -> float:
    """S3: where the bound of one round falls most; inf without noise."""
    spread = 72 * Q**2 * c.rho * c.delta
    root = sqrt(9 * P**2 * c.delta**2 + 18 * Q**2 * c.gradient**2)
    return (root - 3 * P * c.delta) / spread if spread > 0 else inf


def rate(c: Constants, P: int, Q: int) -> float:
    """S3: `best_rate`, no larger than the step condition allows."""
    return min(best_rate(c, P, Q), step_limit(P, c.rho))


@dataclass(frozen=True)
class Planned:
    """What the aggregator tells its application when it has chosen anew.

    Attributes:
        round: the first round of this plan.
        plan: as chosen.
        bound: of Theorem 1.
        limit: the largest eta that Theorem 1 covers.
        reachable: S1: the target can be reached; where not, Q is P. False also where rho is not known.
    """

    round: int
    plan: Plan
    bound: float
    limit: float
    reachable: bool = True

    def to_metrics(self) -> dict[str, Any]:
        """A line of metrics, in which a bound that is not finite is null."""
        own = {key: value for key, value in asdict(self).items() if key != "plan"}
        finite = {key: value if isfinite(value) else None for key, value in own.items()}
        return {"kind": "plan", **finite, **asdict(self.plan)}

    def to_sentence(self) -> str:
        return f"from round {self.round + 1} on P = {self.plan.P}, Q = {self.plan.Q}, eta = {self.plan.eta:.4g}"


def choose_plan(
    strategies: tuple[str, ...], base: Plan, c: Constants, round: int, T: float, target: float, printed: bool = False
) -> Planned:
    """The plan of the next global round. P and Q follow from the base's eta, and then eta from these P and Q.

    Where rho is not known (it is estimated as 0 if fewer than two rounds of the pretraining had the same devices), no
    formula has a finite answer, and the base plan stands.
    """
    if not c.rho > 0:
        return Planned(round, base, inf, inf, reachable=False)
    P, Q, eta, reachable = base.P, base.Q, base.eta, True
    if "size" in strategies:
        P = Q = size(c, eta, T, printed)
    if "relation" in strategies:
        found = relation(c, P, eta, T, target)
        Q, reachable = P // (found or P), found is not None
    if "rate" in strategies and np.isfinite(c.gradient):
        eta = rate(c, P, Q)
    plan = Plan(P, Q, eta)
    return Planned(round, plan, bound(c, plan, T) if eta > 0 else inf, step_limit(P, c.rho), reachable)


# Constants by a few iterations with P = Q = 1 -------------------------------------------------------------------
NOISE = ("noise_0", "noise_1", "noise_2")
CONTRIBUTORS = "contributors"


@dataclass(frozen=True)
class Estimate:
    """What the iterations so far have shown.

    Attributes:
        steps: how many.
        f0: F at the first of them.
        rho: largest quotient of the changes of gradient and model.
        variance: of each block's stochastic gradients, summed over the steps.
        first: ||grad F|| at the first of them.
        at, gradient: model and gradient of the latest.
        contributors: a number for the devices in it.
    """

    steps: int = 0
    f0: float = 0.0
    rho: float = 0.0
    variance: tuple[float, float, float] = (0.0, 0.0, 0.0)
    first: float = 0.0
    at: Theta | None = None
    gradient: Theta | None = None
    contributors: float = -1.0

    @property
    def constants(self) -> Constants:
        return Constants(self.f0, self.rho, sqrt(max(self.variance) / max(self.steps, 1)), self.first)


def update_estimate(
    e: Estimate,
    at: Vector,
    gradient: Vector,
    blocks: tuple[slice, ...],
    scores: Mapping[str, float],
    contributors: float = 0.0,
) -> Estimate:
    """The estimate after one more iteration of all devices.

    Args:
        at: (n,), the global model. gradient: (n,), of F at this model.
        blocks: where theta_0, theta_1 and theta_2 lie.
        scores: means over the groups, weighted as they are in F: "value" of F_m, and for each block the second moment
            of its stochastic gradients around zero.
        contributors: a number for the devices in the gradient. Two gradients of different devices say nothing of rho.
    """
    spread = [scores[n] - square(gradient[b]) for n, b in zip(NOISE, blocks, strict=True)]
    slope = measure_slope(e, at, gradient) if contributors == e.contributors else 0.0
    a, b, c = (v + max(d, 0.0) for v, d in zip(e.variance, spread, strict=True))
    e = replace(e, steps=e.steps + 1, variance=(a, b, c), rho=max(e.rho, slope))
    if e.steps == 1:
        e = replace(e, f0=scores["value"], first=sqrt(square(gradient)))
    return replace(e, at=at, gradient=gradient.astype(at.dtype), contributors=contributors)


def measure_slope(e: Estimate, at: Vector, gradient: Vector) -> float:
    """||change of gradient|| / ||change of model|| since the latest step; the mini-batch is the same, all devices."""
    if e.at is None or e.gradient is None or not (moved := square(at - e.at)):
        return 0.0
    return sqrt(square(gradient - e.gradient) / moved)


def square(x: Vector) -> float:
    return float(np.sum(x.astype(np.float64) ** 2))
