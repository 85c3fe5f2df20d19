"""Comparisons of finished runs of one kind: classes, labels, values, or windows that are reconstructed or forecast."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edge_sdk.replay.anomalies.compared import check_comparable, compare_anomalies
from edge_sdk.replay.anomalies.scores import ANOMALIES
from edge_sdk.replay.comparison import FinishedRun, compare_runs


def compare_results(runs: Sequence[FinishedRun]) -> dict[str, Any]:
    """Compares runs, as `auscult compare --json` prints it.

    Raises:
        UsageError: they are of different kinds.
    """
    if check_comparable({run.name: run.results[0] for run in runs}):
        return compare_anomalies({run.name: over_seeds(run) for run in runs})
    return compare_runs(runs)


def over_seeds(run: FinishedRun) -> dict[str, Any]:
    """A run with several seeds as one result: means over seeds, and the devices of all of them."""
    devices = [d for one in run.results for d in one["devices"]]
    first = run.results[0]
    return {**run.summary, "devices": devices, "seed": first["seed"], "made": first.get("made", {})}


def is_of_windows(found: Mapping[str, Any]) -> bool:
    """Says if a comparison is of windows that are reconstructed or forecast."""
    return found.get("kind") == ANOMALIES
