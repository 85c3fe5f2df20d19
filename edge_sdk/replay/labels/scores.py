"""Scores of a replay's models that predict sets of labels: from sums in the devices' files to means and differences.

Models are named as those of classes (replay/scores.py); "majority" predicts a label where most of the device's training
windows have it. Each device has for each model:

macro_f1     mean F1 over the labels that occur in its test part or are predicted there, at thresholds of 0.5
exact_match  share of its windows whose set is right in every label
             (of steps: "steps_right", and "kappa", Cohen's)
chosen_f1    macro-F1 at the thresholds that its validation part has chosen (`label_sets.choose_thresholds`)

Under "labels" a result has scores of each label over the test windows of all devices together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from edge_sdk.algebra.metrics import label_sets
from edge_sdk.algebra.metrics.classification import BINS
from edge_sdk.algebra.metrics.regression import MEAN
from edge_sdk.algebra.metrics.step_classes import kappa
from edge_sdk.methods.shared.evaluation import reports
from edge_sdk.model.tasks.several_labels import SeveralLabels
from edge_sdk.model.tasks.step_classes import StepClasses
from edge_sdk.replay.metrics.scores import LOCAL, MAJORITY, NAMES
from edge_sdk.replay.metrics.statistics import KAPPA, MACRO_F1, STEPS_RIGHT
from edge_sdk.replay.neighbours.output_models import Rows, added

Device = Mapping[str, Any]
Sums = Mapping[str, float]
TITLES = {MEAN: MAJORITY}


def with_macro_f1(line: Mapping[str, Any], task: object) -> Mapping[str, Any]:
    """A line of metrics with "macro_f1" where it has some: model -> mean over devices.

    Where devices tell none, as in secret sums, it is of all windows together; then "labels" has the counts.
    """
    if not isinstance(task, SeveralLabels) or "sums" not in line:
        return line
    found = reports.mean_macro_f1(line["sums"])
    for model, by_label in line.get("labels", {}).items():
        f1 = [scores["f1"] for scores in by_label.values() if scores["f1"] is not None]
        found.setdefault(model, sum(f1) / len(f1) if f1 else 1.0)
    return {**line, "task": task.kind, MACRO_F1: found}


def score_labels(devices: Sequence[Device], task: SeveralLabels, more: Rows) -> list[dict[str, Any]]:
    """The devices' results with "metrics" and "macro_f1" of each model, in place of "sums".

    Args:
        devices: as they have written it, with "sums".
        more: device -> sums of further models on its test samples.
    """
    return [score_device(d, task, more.get(d["device"], {})) for d in devices]


def score_device(d: Device, task: SeveralLabels, more: Mapping[str, Sums]) -> dict[str, Any]:
    chosen = named(d["sums"].get("validation", {}))
    sums = named(d["sums"].get("test", {})) | dict(more)
    metrics = {name: metrics_of(own, chosen.get(name), task) for name, own in sums.items() if own["samples"]}
    for name in {*more} & {*metrics}:  # neighbours choose no thresholds: 0.5 would stand where others have their own
        metrics[name].pop("chosen_f1", None)
    kept = {key: value for key, value in d.items() if key not in ("sums", "alone", "alone_accuracy", "confusion")}
    return kept | {
        "accuracy": {},
        "validation_accuracy": {},
        "score": MACRO_F1,
        MACRO_F1: {name: own[MACRO_F1] for name, own in metrics.items()},
        "metrics": metrics,
        "recall": {},
        "confusion": {},
        "local": {},
        "by_label": {name: task.by_label(own) for name, own in sums.items()},
        "label_sums": sums,
    }


def named(sums: Mapping[str, Sums]) -> dict[str, Sums]:
    """Sums by the names that models have in results."""
    names = {**NAMES, **TITLES, LOCAL: LOCAL}
    return {names.get(name, name): own for name, own in sums.items()}


def metrics_of(test: Sums, validation: Sums | None, task: SeveralLabels) -> dict[str, float]:
    """The metrics of one model on one device. `validation`: None: nothing was kept to choose thresholds by."""
    count = len(task.names)
    found = {MACRO_F1: label_sets.macro_f1(test, count), "exact_match": test["correct"] / test["samples"]}
    if isinstance(task, StepClasses):
        return {MACRO_F1: found[MACRO_F1], STEPS_RIGHT: found["exact_match"], KAPPA: kappa(test, count)}
    thresholds, _ = label_sets.choose_thresholds(validation or {}, count)
    f1 = [f1_at(label_sets.bins_of(test, k), thresholds[k]) for k in range(count)]
    there = [one for one in f1 if one is not None]
    return {**found, "chosen_f1": sum(there) / len(there) if there else 1.0}


def f1_at(bins: Any, threshold: float) -> float | None:
    """F1 of one label at the edge of a bin."""
    edge = round(threshold * BINS)
    (_, fp), (fn, tp) = ((float(row[:edge].sum()), float(row[edge:].sum())) for row in bins)
    return label_sets.f1_of(tp, fp, fn)


def summarise_labels(devices: Sequence[Device], task: SeveralLabels) -> dict[str, Any]:
    """What a result says of labels: "score", "macro_f1" (means over the devices that trained), "labels".

    Args:
        devices: as `score_labels` returns them.
    """
    fleet = [d for d in devices if not d["newcomer"]]
    models = list(dict.fromkeys(name for d in fleet for name in d[MACRO_F1]))
    together = {m: added([d["label_sums"].get(m) for d in fleet]) for m in models}
    return {
        "score": MACRO_F1,
        MACRO_F1: {m: float(np.mean([d[MACRO_F1][m] for d in fleet if m in d[MACRO_F1]])) for m in models},
        "labels": {
            "task": task.entry(),
            "models": {m: task.by_label(sums) for m, sums in together.items()},
            "macro_f1": {m: label_sets.macro_f1(sums, len(task.names)) for m, sums in together.items()},
            **({"kappa": kappas_of(together, task)} if isinstance(task, StepClasses) else {}),
        },
    }


def kappas_of(together: Mapping[str, Sums], task: StepClasses) -> dict[str, float]:
    """Model -> Cohen's kappa over the steps of all devices together."""
    return {model: kappa(sums, len(task.names)) for model, sums in together.items()}
