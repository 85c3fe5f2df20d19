"""Accounting of Gaussian noise: what several noisy sums together say of one device.

A mechanism that is rho-concentrated has Renyi divergence of at most rho * order for every order, as a Gaussian with
noise multiplier 1 / sqrt(2 rho) has; rho of several mechanisms add up. Sources: M. Bun, T. Steinke, "Concentrated
Differential Privacy", TCC 2016; the conversion to epsilon: C. Canonne, G. Kamath, T. Steinke, NeurIPS 2020, prop. 12;
sums of discrete Gaussians: P. Kairouz, Z. Liu, T. Steinke, "The Distributed Discrete Gaussian Mechanism", ICML 2021.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from math import ceil, exp, expm1, inf, isfinite, log, log1p, pi, sqrt

from edge_sdk.errors import UsageError

ORDERS = (*(1 + x / 10 for x in range(1, 100)), *(float(x) for x in range(11, 64)), 128.0, 256.0, 512.0, 1024.0)
"""Orders of Renyi divergence of which the best is taken: the usual ones of the package dp-accounting."""
DIGITS = 10_000
"""Multipliers are rounded up to that part of one, so that all machines come to the same."""
MOST_NOISE = 1e6


def epsilon_of(rho: float, delta: float) -> float:
    """Smallest epsilon for which a rho-concentrated mechanism is (epsilon, delta)-differentially private."""
    if rho <= 0:
        return 0.0
    if not isfinite(rho):
        return inf
    return min(epsilon_at(order, rho, delta) for order in ORDERS)


def epsilon_at(order: float, rho: float, delta: float) -> float:
    """Epsilon that follows from the Renyi divergence of one order."""
    divergence = rho * order
    if delta * delta + expm1(-divergence) > 0:
        return 0.0  # the two outcomes differ by less than delta
    return max(0.0, divergence + log1p(-1 / order) - log(delta * order) / (order - 1)) if order > 1.01 else inf


def rho_of(epsilon: float, delta: float) -> float:
    """Largest rho, up to rounding, whose epsilon is not above this one."""
    low, high = 0.0, 1.0
    while epsilon_of(high, delta) < epsilon:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if epsilon_of(middle, delta) <= epsilon else (low, middle)
    return low


@cache
def multiplier_of(epsilon: float, delta: float, rounds: int) -> float:
    """Noise of each of so many sums, in clips, with which all of them together are (epsilon, delta)-private.

    Raises:
        UsageError: there would have to be more of it than is possible.
    """
    rho = rho_of(epsilon, delta) / rounds
    found = ceil(DIGITS / sqrt(2 * rho)) / DIGITS if rho > 0 else inf
    if found > MOST_NOISE:
        raise UsageError(f"epsilon = {epsilon} with delta = {delta} in {rounds} rounds needs noise without bounds")
    return found


def rho_of_sum(sensitivity: float, variance: float, terms: int, size: int) -> float:
    """rho of a sum of vectors to each of which its sender has added discrete Gaussian noise (Kairouz et al., thm. 1).

    Args:
        sensitivity: length that one vector may have, in steps.
        variance: of one sender's noise, in steps squared.
        terms: senders. size: numbers of a vector.
    """
    if variance <= 0:
        return inf
    apart = 10 * max(0, terms - 1) * exp(-pi * pi * variance)  # how far such a sum is from a discrete Gaussian
    squared = sensitivity**2 / (terms * variance)
    return 0.5 * min(squared + apart * size / 2, (sqrt(squared) + apart * sqrt(size)) ** 2)


def total_epsilon(spent: Mapping[float, int], delta: float) -> float:
    """Epsilon of a run.

    Args:
        spent: rho of a sum -> how many such sums there were.
    """
    return epsilon_of(sum(rho * count for rho, count in spent.items()), delta)
