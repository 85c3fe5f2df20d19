"""Scores of a replay's models that reconstruct windows: from sums in the devices' files to means and differences.

Models are named as those of classes (replay/metrics/scores.py), with "alone_pca", "alone_ridge", "alone_last" and
"alone_distance" (neighbours.py) in place of linear models and trees; "mean" says of each window that it is the mean of
the device's training windows.
Each device has for each model what `algebra.metrics.reconstruction.AnomalyScores` lists, and "alarms_per_day": windows
above the threshold among those that nobody calls abnormal, in one day of recorded windows. A result has unweighted
means over devices that have such a figure, and under "together" the figures of all devices' windows, where scores are
in units of each device's own threshold. A difference below 0 is better: it is of mean errors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from edge_sdk.algebra.metrics.reconstruction import scores_of
from edge_sdk.algebra.metrics.regression import MEAN
from edge_sdk.contract.run import Run
from edge_sdk.methods.shared.evaluation import reports
from edge_sdk.model.tasks.reconstruction import Reconstruction
from edge_sdk.replay.anomalies.neighbours import ALONE_DISTANCE, ALONE_LAST, ALONE_PCA, ALONE_RIDGE
from edge_sdk.replay.metrics.scores import ALONE, LOCAL, NAMES, POOLED
from edge_sdk.replay.metrics.statistics import bootstrap
from edge_sdk.replay.neighbours.output_models import added

Device = Mapping[str, Any]
Sums = Mapping[str, Mapping[str, float]]
"""Model -> sums of scores on a device's test windows."""
ANOMALIES = "anomalies"
FIRST = (MEAN, LOCAL, ALONE_PCA, ALONE_RIDGE, ALONE_LAST, ALONE_DISTANCE, ALONE, "global", "personalised")
"""Models in the order of tables; others come after them, and POOLED last."""
DAY = 86_400.0
FIGURES = ("error", "explained", "auroc", "found", "alarms", "alarms_per_day", "threshold")


def with_reconstruction_errors(line: Mapping[str, Any], task: object) -> Mapping[str, Any]:
    """A line of metrics with "errors" where it has some: model -> "window" -> mean error over devices."""
    if not isinstance(task, Reconstruction) or "sums" not in line:
        return line
    found = reports.mean_reconstruction_errors(line["sums"])
    return {**line, "errors": {model: {"window": error} for model, error in found.items()}} if found else line


def score_anomalies(devices: Sequence[Device], more: Mapping[str, Sums], step: float) -> list[dict[str, Any]]:
    """The devices' results with "anomalies": model -> its figures on test windows, and "anomaly_sums".

    Args:
        devices: as they have written it, with "sums".
        more: device -> sums of further models.
        step: seconds from window to window; 0: nobody knows.
    """
    found = []
    for d in devices:
        sums = {NAMES.get(n, n) if n != LOCAL else n: s for n, s in d["sums"].get("test", {}).items()}
        sums = in_order({**sums, **more.get(d["device"], {})})
        figures = {model: figures_of(own, step) for model, own in sums.items() if own["samples"]}
        rest = {key: value for key, value in d.items() if key != "sums"}
        found.append({**rest, ANOMALIES: figures, "anomaly_sums": sums})
    return found


def figures_of(sums: Mapping[str, float], step: float) -> dict[str, float | None]:
    """What sums come to, and alarms per day."""
    found = asdict(scores_of({"error": 0.0, **sums}))
    if "error" not in sums:
        found |= {"error": None, "explained": None, "threshold": None}
    return {**found, "alarms_per_day": found["alarms"] * DAY / step if step and found["alarms"] is not None else None}


def in_order(models: Mapping[str, Any]) -> dict[str, Any]:
    """Models in the order of tables."""
    last = [POOLED] if POOLED in models else []
    names = [*(n for n in FIRST if n in models), *sorted({*models} - {*FIRST, *last}), *last]
    return {n: models[n] for n in names}


def summarise_anomalies(
    devices: Sequence[Device], run: Run, task: Reconstruction, step: float, seed: int
) -> dict[str, Any]:
    """What a result says of anomalies: the task, means over devices that trained, all windows together, differences.

    Args:
        devices: as `score_anomalies` returns them.
    """
    fleet = [d for d in devices if not d["newcomer"] and d[ANOMALIES]]
    models = in_order(dict.fromkeys(name for d in fleet for name in d[ANOMALIES]))
    together = {m: added([d["anomaly_sums"].get(m) for d in fleet]) for m in models}
    return {
        "task": {**task.entry(), "names": list(task.named(run.classes))},
        "step": step,
        "devices": len(fleet),
        "models": {m: means_of(fleet, m) for m in models},
        "newcomers": {m: means_of(new, m) for m in models} if (new := [d for d in devices if d["newcomer"]]) else {},
        "together": {m: figures_of(sums, step) for m, sums in together.items()},
        "against": {other: differences(fleet, other, seed) for other in (ALONE, LOCAL)},
    }


def means_of(devices: Sequence[Device], model: str) -> dict[str, float | None]:
    """Unweighted means of a model's figures, each over the devices that have it."""
    own = [d[ANOMALIES][model] for d in devices if model in d[ANOMALIES]]
    having = {key: [figures[key] for figures in own if figures[key] is not None] for key in FIGURES}
    return {key: float(np.mean(values)) if values else None for key, values in having.items()}


def differences(devices: Sequence[Device], other: str, seed: int) -> dict[str, dict[str, float]]:
    """Model -> how much larger its mean error is than another model's, over the devices that have both."""
    found: dict[str, dict[str, float]] = {}
    for model in ("global", "personalised", "unseen"):
        both = [d[ANOMALIES] for d in devices if {model, other} <= {*d[ANOMALIES]}]
        if both:
            found[model] = difference(both, model, other, seed)
    return found


def difference(both: Sequence[Mapping[str, Any]], model: str, other: str, seed: int) -> dict[str, float]:
    """Paired difference of mean errors, with a bootstrap interval over devices."""
    own, others = (np.array([figures[name]["error"] for figures in both]) for name in (model, other))
    low, high = bootstrap(own - others, seed)
    means = {"error": float(own.mean()), "than": float(others.mean()), "mean": float((own - others).mean())}
    return {**means, "low": low, "high": high, "devices": len(both), "worse": int((own > others).sum())}
