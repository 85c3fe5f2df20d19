"""Errors of a replay's models: from the sums in the devices' files to each device's errors, means and differences.

Models are named as those of classes (replay/scores.py): "local", "alone", "alone_linear", "alone_trees", "pooled" and
those of the run; "mean" always predicts the mean of the device's training targets. Devices weigh the same, however many
samples they have. A difference below 0 is better: it is of mean absolute errors, in the value's unit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from edge_sdk.algebra.metrics.regression import MEAN
from edge_sdk.contract.run import Run
from edge_sdk.methods.shared.evaluation import reports
from edge_sdk.model.tasks.task import Values
from edge_sdk.replay.metrics.scores import ALONE, ALONE_LINEAR, ALONE_TREES, LOCAL, NAMES, POOLED
from edge_sdk.replay.metrics.statistics import bootstrap

Device = Mapping[str, Any]
Sums = Mapping[str, Mapping[str, float]]
"""Model -> sums of errors on a device's test samples, and "samples"."""
FIRST = (MEAN, LOCAL, ALONE_LINEAR, ALONE_TREES, ALONE, "global", "personalised")
"""Models in the order of tables; others come after them, and POOLED last."""


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
        sums = {NAMES.get(n, n) if n != LOCAL else n: s for n, s in d["sums"].get("test", {}).items()}
        sums |= more.get(d["device"], {})
        named = {model: errors_in(s, run, values) for model, s in sums.items() if s["samples"]}
        rest = {key: value for key, value in d.items() if key != "sums"}
        found.append({**rest, "errors": in_order(named)})
    return found


def errors_in(sums: Mapping[str, float], run: Run, values: Values) -> dict[str, dict[str, float]]:
    """Name of a value -> its errors."""
    return {n: asdict(e) for n, e in values.errors(sums, sums["samples"], run.classes).items()}


def in_order(models: Mapping[str, Any]) -> dict[str, Any]:
    """Models in the order of tables."""
    last = [POOLED] if POOLED in models else []
    names = [*(n for n in FIRST if n in models), *sorted({*models} - {*FIRST, *last}), *last]
    return {n: models[n] for n in names}


def summarise_values(devices: Sequence[Device], run: Run, values: Values, seed: int) -> dict[str, Any]:
    """What a result says of values: the task, means over devices that trained, paired differences.

    Args:
        devices: as `score_values` returns them.
    """
    fleet = [d for d in devices if not d["newcomer"] and d["errors"]]
    new = [d for d in devices if d["newcomer"] and d["errors"]]
    return {
        "task": {**values.entry(), "names": list(values.named(run.classes))},
        "devices": len(fleet),
        "models": mean_of(fleet),
        "newcomers": mean_of(new),
        "against": {other: differences(fleet, other, seed) for other in (ALONE, LOCAL, MEAN)},
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


def differences(devices: Sequence[Device], other: str, seed: int) -> dict[str, dict[str, dict[str, float]]]:
    """Model -> value -> how much larger its mean absolute error is than another model's, over devices with both."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for model in in_order(dict.fromkeys(name for d in devices for name in d["errors"])):
        both = [d["errors"] for d in devices if {model, other} <= {*d["errors"]}]
        if both and model in ("global", "personalised", "unseen"):
            found[model] = {value: difference(both, model, other, value, seed) for value in both[0][model]}
    return found


def difference(both: Sequence[Mapping[str, Any]], model: str, other: str, value: str, seed: int) -> dict[str, float]:
    """Paired difference of one value's mean absolute errors, with a bootstrap interval over devices."""
    own, others = (np.array([e[name][value]["mae"] for e in both]) for name in (model, other))
    low, high = bootstrap(own - others, seed)
    worse = int((own > others).sum())
    means = {"mae": float(own.mean()), "than": float(others.mean()), "mean": float((own - others).mean())}
    return {**means, "low": low, "high": high, "devices": len(both), "worse": worse}
