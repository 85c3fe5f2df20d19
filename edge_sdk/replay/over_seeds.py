"""What the results of several seeds say together: means and deviations over seeds, differences over devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edge_sdk.replay.anomalies.scores import ANOMALIES, summarise_anomaly_seeds
from edge_sdk.replay.metrics.scores import (
    ALONE,
    FLEET,
    GROUPS,
    LOCAL,
    REFERENCES,
    describe_pairs,
    list_models,
    mean_metrics,
    members,
)
from edge_sdk.replay.metrics.statistics import ACCURACY, score_in, score_of, spread
from edge_sdk.replay.neighbours.told import merge_neighbours
from edge_sdk.replay.values.scores import summarise_value_seeds

Result = Mapping[str, Any]


def summarise_seeds(results: Sequence[Result]) -> dict[str, Any]:
    """The results of several seeds as one: means and standard deviations over seeds, differences over devices.

    Returns:
        "seeds", "method", "rounds", "data", "settings" of the runs; "accuracy": model -> {"mean", "sd"}; "bytes",
        "gradients" and "seconds", means; "statistics": as `scores.summarise`, but each metric is {"mean", "sd"}, and a
        device counts with its mean over the seeds; so "values" and "anomalies", where there are some.
    """
    first = results[0]
    kept = {key: first[key] for key in ("method", "rounds", "hospitals", "data", "settings")}
    score = score_in(first)
    models = [name for name in first[score] if all(r[score].get(name) is not None for r in results)]
    return {
        **kept,
        "seeds": [r["seed"] for r in results],
        **({"score": score} if score != ACCURACY else {}),
        score: {name: describe_spread([r[score][name] for r in results]) for name in models},
        "bytes": {hop: sum(r["bytes"][hop] for r in results) / len(results) for hop in first["bytes"]},
        "gradients": mean_over_seeds([r.get("gradients") for r in results]),
        "seconds": round(sum(r["seconds"] for r in results) / len(results), 1),
        "statistics": {
            group: found
            for group in GROUPS
            if (found := summarise_group([members(r["devices"], group) for r in results]))
        },
        "neighbours": merge_neighbours([r.get("neighbours", {}) for r in results]),
        **({"values": summarise_value_seeds(results)} if "values" in first else {}),
        **({ANOMALIES: summarise_anomaly_seeds(results)} if ANOMALIES in first else {}),
    }


def mean_over_seeds(every: Sequence[Mapping[str, float] | None]) -> dict[str, float] | None:
    """Purpose -> mean of the seeds' gradients per device; None: not all were counted."""
    known = [one for one in every if one is not None]
    return {key: sum(one[key] for one in known) / len(known) for key in known[0]} if len(known) == len(every) else None


def describe_spread(values: Sequence[float]) -> dict[str, float]:
    """Mean and standard deviation over seeds."""
    mean, sd = spread(values)
    return {"mean": mean, "sd": sd}


def summarise_group(runs: Sequence[Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """One group of devices over all seeds. `runs`: for each seed its devices; a seed without any is left out."""
    runs = [devices for devices in runs if devices]
    if not runs:
        return {}
    models = [name for name in list_models(runs[0]) if all(name in list_models(devices) for devices in runs)]
    found: dict[str, Any] = {"devices": len(runs[0]), "models": {}}
    for name in models:
        means = [mean_metrics(devices, name) for devices in runs]
        found["models"][name] = {key: describe_spread([m[key] for m in means]) for key in means[0]}
    score = score_of(runs[0][0]["metrics"][models[0]]) if models else ACCURACY
    accuracies = {name: device_means(runs, name) for name in models}
    for other in (LOCAL, FLEET, ALONE):
        found[f"against_{other}"] = {
            name: describe_pairs(*paired(accuracies[name], accuracies[other]), score)
            for name in models
            if name not in REFERENCES and other in accuracies
        }
    return found


def device_means(runs: Sequence[Sequence[Mapping[str, Any]]], model: str) -> dict[str, float]:
    """Device -> its mean score over the seeds in which it has the model."""
    every: dict[str, list[float]] = {}
    for d in (d for devices in runs for d in devices if model in d["metrics"]):
        every.setdefault(d["device"], []).append(d["metrics"][model][score_of(d["metrics"][model])])
    return {device: sum(values) / len(values) for device, values in every.items()}


def paired(values: Mapping[str, float], others: Mapping[str, float]) -> tuple[list[float], list[float]]:
    """The values of those devices that are in both."""
    both = [device for device in values if device in others]
    return [values[device] for device in both], [others[device] for device in both]
