"""Scores of a replay: from the confusion matrices in the devices' files to metrics, groups and paired differences.

Models: "majority" (always the most frequent training label), "local" (trained alone, with the device's own choice of
optimiser and steps on its validation samples), "local_fleet" (the same with one choice for all devices, from sums of
correct validation samples), and those of the run: "global", "personalised" and what else its method has. Where devices
have settled, "mixed_in" is the local model of that: one number of steps for all, mixed into the personalised model.
"alone" is the best of what a device can do by itself, "alone_linear", "alone_trees" and "alone_network" are its kinds,
and "pooled" is what all data in one place reach; see the folder neighbours/.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from edge_sdk.replay.metrics.statistics import ACCURACY, compare, majority_confusion, measure, recall_by_class, score_of

MIXED = "mixed_in"
NAMES = {"personal": "personalised", "local": MIXED}
"""Name of a model among the nodes -> its name in the result."""
LOCAL, FLEET, MAJORITY = "local", "local_fleet", "majority"
ALONE, POOLED = "alone", "pooled"
ALONE_NETWORK, ALONE_LINEAR, ALONE_TREES = "alone_network", "alone_linear", "alone_trees"
REFERENCES = (MAJORITY, LOCAL, FLEET, ALONE_NETWORK, ALONE_LINEAR, ALONE_TREES, ALONE)
"""Models of a device by itself, in the order of tables: others are compared with them, and they with nobody."""
IN_USE = "in_use"
"""Key of a difference between what devices predict with in two runs, where that are models of different names."""
NEWCOMERS = "newcomers"
GROUPS = {"all": 1, "two_classes": 2, NEWCOMERS: 1}
"""Group of devices -> how many classes its devices have at least in training. Newcomers are in no other group."""

Device = Mapping[str, Any]
"""What one device has written at the end; see `nodes.serve.DeviceService.result`."""
Trial = Mapping[str, Any]
"""One way of training alone; see `nodes.judging.judge_alone`."""


def score_devices(devices: Sequence[Device], classes: Sequence[str]) -> list[dict[str, Any]]:
    """The devices' results with "metrics", "recall" and "confusion" of each model, and how "local" was chosen.

    Args:
        classes: names, in the order of the confusion matrices.
    """
    choice = choose_for_fleet([d["alone"] for d in devices if d["alone"]])
    return [score_device(d, choice, classes) for d in devices]


def score_device(d: Device, choice: tuple[str, int] | None, classes: Sequence[str]) -> dict[str, Any]:
    matrices = {NAMES.get(name, name): np.array(m) for name, m in d["confusion"].get("test", {}).items()}
    local: dict[str, Any] = {}
    if d["alone"] and choice is not None:
        fleet = find_trial(d["alone"], *choice)
        own = choose_own(d["alone"]) if d["validation"] else fleet
        matrices |= {LOCAL: np.array(own["test"]), FLEET: np.array(fleet["test"])}
        local = {
            "own": name_trial(own),
            "fleet": name_trial(fleet),
            "chosen_by": "device" if d["validation"] else "all",
        }
    if matrices:
        matrices[MAJORITY] = majority_confusion(d["labels"], next(iter(matrices.values())), classes)
    metrics: dict[str, dict[str, float]] = {name: asdict(measure(m)) for name, m in matrices.items()}
    accuracy = {NAMES.get(name, name): value for name, value in d["accuracy"].items()}
    if LOCAL in metrics:
        accuracy[LOCAL] = metrics[LOCAL]["accuracy"]
    elif d.get("alone_accuracy") is not None:
        accuracy[LOCAL] = d["alone_accuracy"]
        metrics[LOCAL] = {"accuracy": accuracy[LOCAL]}
    kept = {key: value for key, value in d.items() if key not in ("alone", "alone_accuracy", "confusion")}
    return kept | {
        "accuracy": accuracy,
        "validation_accuracy": {NAMES.get(name, name): v for name, v in d["validation_accuracy"].items()},
        "metrics": metrics,
        "recall": {name: recall_by_class(m, classes) for name, m in matrices.items()},
        "confusion": {name: m.tolist() for name, m in matrices.items()},
        "local": local,
    }


def with_models(d: Device, matrices: Mapping[str, Any], classes: Sequence[str]) -> dict[str, Any]:
    """A device's results with further models. `matrices`: model -> confusion matrix on its test samples."""
    metrics = {name: asdict(measure(m)) for name, m in matrices.items()}
    return dict(d) | {
        "accuracy": {**d["accuracy"], **{name: m["accuracy"] for name, m in metrics.items()}},
        "metrics": {**d["metrics"], **metrics},
        "recall": {**d["recall"], **{name: recall_by_class(m, classes) for name, m in matrices.items()}},
        "confusion": {**d["confusion"], **{name: m.tolist() for name, m in matrices.items()}},
    }


# Training alone -------------------------------------------------------------------------------------------------
def choose_own(trials: Sequence[Trial]) -> Trial:
    """The first of the trials with the most correct validation samples."""
    return max(trials, key=lambda trial: trial["validation_correct"])


def choose_for_fleet(devices: Sequence[Sequence[Trial]]) -> tuple[str, int] | None:
    """The optimiser and the number of steps that all devices together get most validation samples right with.

    Where a device has not trained for so many steps, because that is more than it makes in the run, its longest
    training counts. Of equally good ones, Adam before SGD and fewer steps before more.
    """
    if not devices:
        return None
    optimisers = list(dict.fromkeys(trial["optimiser"] for trial in devices[0]))
    steps = sorted({trial["steps"] for trials in devices for trial in trials})

    def count_correct(option: tuple[str, int]) -> int:
        return sum(find_trial(trials, *option)["validation_correct"] for trials in devices)

    return max([(optimiser, n) for optimiser in optimisers for n in steps], key=count_correct)


def find_trial(trials: Sequence[Trial], optimiser: str, steps: int) -> Trial:
    """The trial of this optimiser with the most steps up to so many; the shortest, if all have more."""
    own = [trial for trial in trials if trial["optimiser"] == optimiser]
    return max((t for t in own if t["steps"] <= steps), key=lambda t: int(t["steps"]), default=own[0])


def name_trial(trial: Trial) -> dict[str, Any]:
    return {"optimiser": trial["optimiser"], "steps": trial["steps"]}


# Groups ---------------------------------------------------------------------------------------------------------
def summarise(devices: Sequence[Device]) -> dict[str, Any]:
    """For each group of devices, mean metrics of each model, and paired differences to training alone.

    Args:
        devices: as `score_devices` returns them.
    """
    found = {}
    for group in GROUPS:
        if some := members(devices, group):
            found[group] = {
                "devices": len(some),
                "models": {name: mean_metrics(some, name) for name in list_models(some)},
                **{f"against_{other}": differences(some, other) for other in (LOCAL, FLEET, ALONE)},
            }
    return found


def members(devices: Iterable[Device], group: str) -> list[Device]:
    """The devices of a group that have metrics."""
    new = group == NEWCOMERS
    return [d for d in devices if d.get("newcomer", False) == new and d["classes"] >= GROUPS[group] and d["metrics"]]


def list_models(devices: Iterable[Device]) -> list[str]:
    """Names of the models that any device has: references first, then those of the run."""
    every = {name for d in devices for name in d["metrics"]}
    first = [name for name in (*REFERENCES, "global") if name in every]
    last = [name for name in (POOLED,) if name in every]
    return [*first, *sorted(every - {*first, *last}), *last]


def mean_metrics(devices: Sequence[Device], model: str) -> dict[str, float]:
    """Unweighted means over the devices that have the model."""
    having = [d["metrics"][model] for d in devices if model in d["metrics"]]
    return {key: sum(m[key] for m in having) / len(having) for key in having[0]}


def differences(devices: Sequence[Device], other: str) -> dict[str, Any]:
    """Model -> how much better its score is than another model's, over the devices that have both."""
    found = {}
    for name in list_models(devices):
        both = [d["metrics"] for d in devices if name in d["metrics"] and other in d["metrics"]]
        if both and name not in REFERENCES:
            score = score_of(both[0][name])
            values, others = ([m[one][score] for m in both] for one in (name, other))
            found[name] = describe_pairs(values, others, score)
    return found


def describe_pairs(values: Sequence[float], others: Sequence[float], score: str = ACCURACY) -> dict[str, Any]:
    """The paired difference of two models' scores, and the means of both over these devices."""
    found = asdict(compare(values, others))
    return {**found, score: sum(values) / len(values), "than": sum(others) / len(others)}
