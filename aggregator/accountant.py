"""Epsilon of a run, by the package dp-accounting."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from math import inf, isfinite, sqrt
from typing import Any

from edge_sdk.contract.run import Run
from edge_sdk.errors import UsageError


def epsilon_of_sums(spent: Mapping[float, int], delta: float) -> float:
    """Smallest epsilon of several noisy sums together.

    A sum that is rho-concentrated has Renyi divergences no larger than a Gaussian with noise multiplier
    1 / sqrt(2 rho), so the accountant of Renyi divergences may take it for one.

    Args:
        spent: rho of a sum -> how many such sums there were.
    """
    from dp_accounting import dp_event
    from dp_accounting.rdp import RdpAccountant

    if any(not isfinite(rho) for rho in spent):
        return inf
    accountant = RdpAccountant()
    for rho, count in spent.items():
        accountant.compose(dp_event.GaussianDpEvent(1 / sqrt(2 * rho)), count)
    return float(accountant.get_epsilon(delta))


def accountant_for(run: Run) -> dict[str, Any]:
    """The field of an aggregator's env that counts epsilon, in a run whose devices add noise.

    Raises:
        UsageError: the package is missing.
    """
    if not run.privacy:
        return {}
    if find_spec("dp_accounting") is None:
        raise UsageError("run.privacy: epsilon is counted by dp-accounting: pip install 'auscult[privacy]'")
    return {"accountant": epsilon_of_sums}
