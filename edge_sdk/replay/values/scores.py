"""Errors of a replay's models: from the sums in the devices' files to each device's errors, means and differences.

Models are named as those of classes (replay/scores.py): "local", "alone", "alone_linear", "alone_trees", "pooled" and
those of the run; "mean" always predicts the mean of the device's training targets. Devices weigh the same, however many
samples they have. A difference below 0 is better: it is of mean absolute errors, in the value's unit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from edge_sdk.algebra.metrics.regression import MEAN
from edge_sdk.contract.run import Run
from edge_sdk.methods.shared.evaluation import reports
from edge_sdk.model.tasks.task import Values
from edge_sdk.replay.errors.scores import OWN, Device, Sums, difference, errors_of, order, test_sums
from edge_sdk.replay.metrics.scores import ALONE, ALONE_LINEAR, ALONE_TREES, LOCAL
from edge_sdk.replay.metrics.statistics import spread

Models = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""Model -> value -> its errors."""
NEIGHBOURS = (ALONE_LINEAR, ALONE_TREES)


def with_errors(line: Mapping[str, Any], run: Run, values: Values | None) -> Mapping[str, Any]:
    """A line of metrics with "errors" where it has some: model -> value -> mean absolute error in its unit."""
    if values is None or "sums" not in line:
        return line
    found = values.mean_errors(reports.mean_errors(line["sums"]), run.classes)
    return {**line, "errors": found, "units": list(values.units)} if found else line


def score_values(devices: Sequence[Device], run: Run, values: Values, more: Mapping[str, Sums]) -> list[dict[str, Any]]:
    """The devices' results with "errors": model -> value -> its errors on test samples.

    Args:
        devices: as they have written it, with "sums".
        more: device -> sums of further models.
    """
    found = []
    for d in devices:
        named = {model: errors_in(s, run, values) for model, s in test_sums(d, more).items() if s["samples"]}
        rest = {key: value for key, value in d.items() if key != "sums"}
        found.append({**rest, "errors": in_order(named)})
    return found


def errors_in(sums: Mapping[str, float], run: Run, values: Values) -> dict[str, dict[str, float]]:
    """Name of a value -> its errors."""
    return {n: asdict(e) for n, e in values.errors(sums, sums["samples"], run.classes).items()}


def in_order(models: Mapping[str, Any]) -> dict[str, Any]:
    """Models in the order of tables."""
    return order(models, NEIGHBOURS)


def summarise_values(devices: Sequence[Device], run: Run, values: Values) -> dict[str, Any]:
    """What a result says of values: the task, means over devices that trained, paired differences.

    Args:
        devices: as `score_values` returns them.
    """
    fleet = [d for d in devices if not d["newcomer"] and d["errors"]]
    new = [d for d in devices if d["newcomer"] and d["errors"]]
    names = list(values.named(run.classes))
    return {
        "task": {**values.entry(), "names": names},
        "devices": len(fleet),
        "models": mean_of(fleet),
        "newcomers": mean_of(new),
        "against": {other: against(fleet, names, other) for other in (ALONE, LOCAL, MEAN)},
    }


def mean_of(devices: Sequence[Device]) -> dict[str, dict[str, dict[str, float]]]:
    """Model -> value -> unweighted means over the devices that have it, of each of its errors."""
    models = in_order(dict.fromkeys(name for d in devices for name in d["errors"]))
    found: dict[str, dict[str, dict[str, float]]] = {}
    for model in models:
        having = [d["errors"][model] for d in devices if model in d["errors"]]
        found[model] = {
            value: {key: float(np.mean([h[value][key] for h in having])) for key in having[0][value]}
            for value in having[0]
        }
    return found


def against(devices: Sequence[Device], names: Sequence[str], other: str) -> dict[str, dict[str, Any]]:
    """Model -> value -> how much larger its mean absolute error is than another model's, over devices with both.

    Args:
        devices: of one seed, or of several. names: of values.
    """
    found = {
        model: {
            name: differ
            for name in names
            if (differ := differences(absolute_errors(devices, model, name), absolute_errors(devices, other, name)))
        }
        for model in OWN
    }
    return {model: values for model, values in found.items() if values}


def differences(own: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    """The paired difference of mean absolute errors, over the devices that have both; empty: none has."""
    return difference(own, other, "mae")


def absolute_errors(devices: Iterable[Device], model: str, value: str) -> dict[str, float]:
    """Device that trained -> mean absolute error of a model, mean over the seeds in which it has it."""
    every = errors_of(devices, model, lambda d, m: d["errors"][m][value]["mae"] if m in d["errors"] else None)
    return {device: sum(errors) / len(errors) for device, errors in every.items()}


# Several seeds --------------------------------------------------------------------------------------------------
def summarise_value_seeds(results: Sequence[Device]) -> dict[str, Any]:
    """What `summarise_values` says of one seed, of several: each figure is {"mean", "sd"} over seeds.

    In differences a device counts with its mean over the seeds.
    """
    every = [result["values"] for result in results]
    devices, names = devices_in(results), every[0]["task"]["names"]
    return {
        "task": every[0]["task"],
        "devices": every[0]["devices"],
        "models": spread_errors([one["models"] for one in every]),
        "newcomers": spread_errors([one["newcomers"] for one in every]),
        "against": {other: against(devices, names, other) for other in (ALONE, LOCAL, MEAN)},
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


def devices_in(results: Sequence[Device]) -> list[Device]:
    """Devices of all seeds, one behind the other."""
    return [d for result in results for d in result["devices"]]


def models_in(results: Sequence[Device]) -> list[str]:
    """Models that any device has, in the order of tables."""
    names = {name for d in devices_in(results) if not d["newcomer"] for name in d["errors"]}
    return list(in_order(dict.fromkeys(names)))
