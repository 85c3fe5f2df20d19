"""Errors and scores of windows over several seeds: means over seeds, differences over devices.

The result has the keys that one seed's has, so that the same tables show it; "spread" are deviations of mean errors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from edge_sdk.replay.anomalies.scores import ANOMALIES, FIGURES, difference, in_order
from edge_sdk.replay.metrics.scores import ALONE, LOCAL
from edge_sdk.replay.metrics.statistics import spread

Result = Mapping[str, Any]
Figures = Mapping[str, float | None]
OWN = ("global", "personalised", "unseen")


def summarise_anomaly_seeds(results: Sequence[Result]) -> dict[str, Any]:
    """What `summarise_anomalies` says of one seed, of several. In differences a device counts with its mean error over
    the seeds; `together` are means of what each seed's windows together come to."""
    every = [result[ANOMALIES] for result in results]
    models = in_order({m: None for m in every[0]["models"] if all(m in one["models"] for one in every)})
    return {
        **{key: every[0][key] for key in ("task", "step", "devices")},
        **{part: means_in([one[part] for one in every], models) for part in ("models", "newcomers", "together")},
        "spread": {m: spread([one["models"][m]["error"] or 0.0 for one in every])[1] for m in models},
        "against": {other: against(results, other) for other in (ALONE, LOCAL)},
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


def against(results: Sequence[Result], other: str) -> dict[str, dict[str, float]]:
    """Model -> how much larger its mean error is than another model's of the same runs."""
    found = dict[str, dict[str, float]]()
    for model in OWN:
        own, others = errors_of(results, model), errors_of(results, other)
        both = [{model: {"error": own[d]}, other: {"error": others[d]}} for d in own if d in others]
        if both:
            found[model] = difference(both, model, other, int(results[0]["seed"]))
    return found


def errors_of(results: Sequence[Result], model: str) -> dict[str, float]:
    """Device that trained -> mean error of a model, mean over the seeds in which it has one."""
    every = dict[str, list[float]]()
    for d in (d for result in results for d in result["devices"] if not d["newcomer"]):
        error = d[ANOMALIES].get(model, {}).get("error")
        if error is not None:
            every.setdefault(d["device"], []).append(error)
    return {device: float(np.mean(found)) for device, found in every.items()}
