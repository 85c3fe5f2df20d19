"""The strongest neighbour beside a search: judged on validation samples as the trials are, for tuning has no others."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from edge_sdk.model.tasks.task import Reconstruction, SeveralLabels, Values, class_codes
from edge_sdk.nodes.configuration.assembly import augmentation_of
from edge_sdk.replay.anomalies.neighbours import look_for_detectors
from edge_sdk.replay.errors.scores import describe_difference
from edge_sdk.replay.metrics.scores import ALONE, POOLED, describe_pairs
from edge_sdk.replay.metrics.statistics import ACCURACY, MACRO_F1
from edge_sdk.replay.neighbours.look import NeighbourSource, Parts, look_round
from edge_sdk.replay.neighbours.output_models import Parts as OutputParts
from edge_sdk.replay.neighbours.output_models import look_for_output_models
from edge_sdk.replay.neighbours.told import COMPUTED
from edge_sdk.replay.reports.verdict import kinds_in_words, sentence, why_not
from edge_sdk.replay.tuning.memory import TuningFleet
from edge_sdk.replay.tuning.process import TrialProcess
from edge_sdk.replay.tuning.scores import score_of_sums, unit_of
from edge_sdk.replay.tuning.tune import Found, Search
from edge_sdk.replay.values.tables import sentence as value_sentence

OURS = "the best trial's models"
WHERE = " on the validation samples by which all was chosen"


def look_on_validation(fleet: TuningFleet, most: int, seed: int, say: Callable[[str], None]) -> dict[str, Any]:
    """The neighbours of a fleet, in the worker.

    Returns:
        "told", and in "rows" row -> device -> accuracy on validation; of values and sets of labels their score, and in
        "unit" what 1 of it is for people: a number and its unit.
    """
    if isinstance(fleet.task, (Values, SeveralLabels, Reconstruction)):
        return look_for_outputs(fleet, fleet.task, most, seed, say)

    def parts(name: str) -> Parts:
        train, chosen = (
            (part.x, class_codes(part.labels, fleet.run.classes, f"device {name}")) for part in fleet.samples[name]
        )
        return train, chosen, chosen

    source = NeighbourSource(
        parts=parts,
        written=[{"device": name, "alone": [], "confusion": {}} for name in fleet.samples],
        fleet=list(fleet.samples),
        bundle=fleet.files.bundles[next(iter(fleet.tree))],
        classes=len(fleet.run.classes),
        how=augmentation_of(fleet.run),
        split=bool(fleet.patients),
        alone=True,
    )
    seen = look_round(source, most, seed, say)
    rows = {
        row: {name: accuracy_of(found[row]) for name, found in seen["rows"].items() if row in found}
        for row in (ALONE, POOLED)
    }
    return {"told": seen["told"], "rows": rows}


def look_for_outputs(
    fleet: TuningFleet, task: Values | SeveralLabels | Reconstruction, most: int, seed: int, say: Callable[[str], None]
) -> dict[str, Any]:
    """The neighbours of models that predict something else than classes."""

    def parts(name: str) -> OutputParts:
        train, chosen = (
            (part.x, task.targets(part.labels, fleet.run.classes, f"device {name}", part.x))
            for part in fleet.samples[name]
        )
        last = fleet.samples[name][1]
        return train, chosen, (last.x, task.truths(last.labels, fleet.run.classes, f"device {name}", last.x))

    written = [{"device": name, "newcomer": False, "sums": {}} for name in fleet.samples]
    if isinstance(task, Reconstruction):
        told, rows = look_for_detectors(task, parts, written, most, seed, say)
    else:
        told, rows = look_for_output_models(task, parts, written, most, seed, say)
    scores = {
        row: {name: score_of_sums(task, found[row]) for name, found in rows.items() if row in found}
        for row in (ALONE, POOLED)
    }
    return {"told": told, "rows": scores, "unit": unit_of(task)}


def accuracy_of(matrix: Any) -> float:
    """Share of right answers in a confusion matrix."""
    return float(np.trace(matrix) / np.sum(matrix))


def look_alone(search: Search, say: Callable[[str], None]) -> Mapping[str, Any]:
    """What `look_on_validation` finds, from a process of its own: libraries have one thread there."""
    with TrialProcess(search.job, say, threading.Event()) as worker:
        return worker.look() or {}


def verdict_line(found: Found, seen: Mapping[str, Any]) -> str:
    """Who wins, the neighbour or the best trial of a search; "" where nothing can be said."""
    if not seen or found.best is None:
        return ""
    if seen["told"]["state"] != COMPUTED:
        return why_not(seen["told"])
    alone, ours = seen["rows"][ALONE], found.best.devices
    both = [name for name in alone if name in ours]
    if not both:
        return ""
    own, others = [ours[n] for n in both], [alone[n] for n in both]
    if unit := seen.get("unit"):
        size, name = unit
        d = describe_difference([-size * one for one in own], [-size * one for one in others], "mae")
        kinds = kinds_in_words(seen["told"]["chosen"], seen["told"]["on"])
        return f"{value_sentence(d, OURS, kinds, name).removesuffix('.')}{WHERE}."
    pairs = describe_pairs(own, others, ACCURACY if found.best.score == ACCURACY else MACRO_F1)
    return sentence(seen["told"], pairs, OURS, WHERE)
