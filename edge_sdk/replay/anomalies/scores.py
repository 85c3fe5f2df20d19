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
from edge_sdk.contract.run import Run
from edge_sdk.methods.shared.evaluation import reports
from edge_sdk.model.tasks.reconstruction import Reconstruction
from edge_sdk.replay.anomalies.neighbours import ALONE_DISTANCE, ALONE_LAST, ALONE_PCA, ALONE_RIDGE
from edge_sdk.replay.errors.scores import OWN, Device, Sums, difference, errors_of, order, test_sums
from edge_sdk.replay.metrics.scores import ALONE, LOCAL
from edge_sdk.replay.metrics.statistics import spread
from edge_sdk.replay.neighbours.output_models import added

ANOMALIES = "anomalies"
NEIGHBOURS = (ALONE_PCA, ALONE_RIDGE, ALONE_LAST, ALONE_DISTANCE)
DAY = 86_400.0
Figures = Mapping[str, float | None]
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
        sums = in_order(test_sums(d, more))
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
    return order(models, NEIGHBOURS)


def summarise_anomalies(devices: Sequence[Device], run: Run, task: Reconstruction, step: float) -> dict[str, Any]:
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
        "against": {other: against(fleet, fleet, other) for other in (ALONE, LOCAL)},
    }


def means_of(devices: Sequence[Device], model: str) -> dict[str, float | None]:
    """Unweighted means of a model's figures, each over the devices that have it."""
    own = [d[ANOMALIES][model] for d in devices if model in d[ANOMALIES]]
    having = {key: [figures[key] for figures in own if figures[key] is not None] for key in FIGURES}
    return {key: float(np.mean(values)) if values else None for key, values in having.items()}


def against(devices: Sequence[Device], others: Sequence[Device], other: str) -> dict[str, dict[str, float]]:
    """Model -> how much larger its mean error is than another model's, over the devices that have both.

    Args:
        devices: of one seed, or of several. others: whose other model is meant: these devices, or those of another run.
        other: that model; "": the same one.
    """
    return {
        model: found
        for model in OWN
        if (found := difference(mean_errors(devices, model), mean_errors(others, other or model), "error"))
    }


def mean_errors(devices: Sequence[Device], model: str) -> dict[str, float]:
    """Device that trained -> mean error of a model, mean over the seeds in which it has one."""
    every = errors_of(devices, model, lambda d, m: d[ANOMALIES].get(m, {}).get("error"))
    return {device: float(np.mean(errors)) for device, errors in every.items()}


# Several seeds --------------------------------------------------------------------------------------------------
def summarise_anomaly_seeds(results: Sequence[Device]) -> dict[str, Any]:
    """What `summarise_anomalies` says of one seed, of several. In differences a device counts with its mean error over
    the seeds; `together` are means of what each seed's windows together come to.

    It has the keys that one seed's has, so that the same tables show it; "spread" are deviations of mean errors.
    """
    every = [result[ANOMALIES] for result in results]
    devices = [d for result in results for d in result["devices"]]
    models = in_order({m: None for m in every[0]["models"] if all(m in one["models"] for one in every)})
    return {
        **{key: every[0][key] for key in ("task", "step", "devices")},
        **{part: means_in([one[part] for one in every], models) for part in ("models", "newcomers", "together")},
        "spread": {m: spread([one["models"][m]["error"] or 0.0 for one in every])[1] for m in models},
        "against": {other: against(devices, devices, other) for other in (ALONE, LOCAL)},
    }


def means_in(every: Sequence[Mapping[str, Figures]], models: Mapping[str, Any]) -> dict[str, dict[str, float | None]]:
    """Model -> figure -> its mean over the seeds that have it."""
    return {
        m: {key: mean_of([one[m].get(key) for one in every]) for key in (*FIGURES, "auroc_error") if key in every[0][m]}
        for m in models
        if all(m in one for one in every)
    }


def mean_of(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None
