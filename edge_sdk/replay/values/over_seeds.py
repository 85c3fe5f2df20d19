"""Errors of values over several seeds: means and deviations over seeds, differences over devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edge_sdk.algebra.metrics.regression import MEAN
from edge_sdk.replay.metrics.scores import ALONE, LOCAL
from edge_sdk.replay.metrics.statistics import spread
from edge_sdk.replay.values.scores import OWN, describe_difference, in_order

Result = Mapping[str, Any]
Models = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""Model -> value -> its errors."""


def summarise_value_seeds(results: Sequence[Result]) -> dict[str, Any]:
    """What `summarise_values` says of one seed, of several: each figure is {"mean", "sd"} over seeds.

    In differences a device counts with its mean over the seeds.
    """
    every = [result["values"] for result in results]
    return {
        "task": every[0]["task"],
        "devices": every[0]["devices"],
        "models": spread_errors([one["models"] for one in every]),
        "newcomers": spread_errors([one["newcomers"] for one in every]),
        "against": {other: against(results, other) for other in (ALONE, LOCAL, MEAN)},
    }


def spread_errors(every: Sequence[Models]) -> dict[str, Any]:
    """Model -> value -> error -> mean and standard deviation over seeds, of models that all seeds have."""
    names = [model for model in every[0] if all(model in one for one in every)]
    return {
        model: {
            value: {
                key: dict(zip(("mean", "sd"), spread([one[model][value][key] for one in every]), strict=True))
                for key in errors
            }
            for value, errors in every[0][model].items()
        }
        for model in names
    }


def against(results: Sequence[Result], other: str) -> dict[str, dict[str, dict[str, float]]]:
    """Model -> value -> how much larger its mean absolute error is than another model's of the same runs."""
    seed, names = int(results[0]["seed"]), results[0]["values"]["task"]["names"]
    found = {
        model: {
            value: differ
            for value in names
            if (differ := differences(errors_of(results, model, value), errors_of(results, other, value), seed))
        }
        for model in OWN
    }
    return {model: values for model, values in found.items() if values}


def differences(own: Mapping[str, float], other: Mapping[str, float], seed: int) -> dict[str, float]:
    """The paired difference of mean absolute errors, over the devices that have both; empty: none has."""
    both = [device for device in own if device in other]
    return describe_difference([own[d] for d in both], [other[d] for d in both], seed) if both else {}


def errors_of(results: Sequence[Result], model: str, value: str) -> dict[str, float]:
    """Device that trained -> mean absolute error of a model, mean over the seeds in which it has it."""
    every: dict[str, list[float]] = {}
    for d in (d for result in results for d in result["devices"] if not d["newcomer"]):
        if model in d["errors"]:
            every.setdefault(d["device"], []).append(d["errors"][model][value]["mae"])
    return {device: sum(found) / len(found) for device, found in every.items()}


def models_in(results: Sequence[Result]) -> list[str]:
    """Models that any device has, in the order of tables."""
    names = {name for result in results for d in result["devices"] if not d["newcomer"] for name in d["errors"]}
    return list(in_order(dict.fromkeys(names)))
