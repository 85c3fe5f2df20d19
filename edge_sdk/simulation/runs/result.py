"""The result of a simulation: that of a replay, and what a virtual clock and many clients add to it."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edge_sdk.algebra import lowrank
from edge_sdk.algebra.running_statistics import lost_variances
from edge_sdk.algebra.vectors import Layout, Vector
from edge_sdk.atomic import replace_file
from edge_sdk.hardware.probe import cpu_seconds
from edge_sdk.methods.shared.evaluation.reports import mean_accuracies
from edge_sdk.replay.metrics.scores import LOCAL, NAMES, summarise
from edge_sdk.replay.metrics.statistics import MACRO_F1
from edge_sdk.replay.neighbours.look import Seen
from edge_sdk.replay.result import (
    describe_origin,
    describe_privacy,
    find_areas,
    find_choice,
    mean,
    mean_gradients,
    natural,
    score_written,
    summarise_outputs,
)
from edge_sdk.replay.result import mean_accuracies as mean_over_devices
from edge_sdk.simulation.runs.plan import Prepared, Simulation, describe, origin
from edge_sdk.simulation.sums.traffic import HOPS
from edge_sdk.simulation.training.epochs import TrainingCalls

Line = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Spent:
    """What a simulation has taken.

    Attributes:
        seconds: of this machine, since this process began.
        playing: of these, without reading data and models.
        answers: of clients in that time; more than in a round where these were asked twice.
        clock: seconds of the virtual clock.
        records: clients that remember something.
        ranks: processes.
        memory: of this process, its peak in MB.
        bytes: hop -> bytes.
        trained: in which calls of onnxruntime, on all ranks.
        gradients: purpose -> those of all clients; None: nobody knows.
    """

    seconds: float
    playing: float
    answers: int
    clock: float
    records: int
    ranks: int
    memory: float
    bytes: Mapping[str, int]
    trained: TrainingCalls
    gradients: Mapping[str, int] | None


def make_result(
    job: Simulation,
    prepared: Prepared,
    lines: Sequence[Line],
    written: Mapping[str, dict[str, Any]],
    spent: Spent,
    model: Mapping[str, Any],
    seen: Seen,
) -> dict[str, Any]:
    """Everything, as one object with the keys that the result of a replay has, and "simulation"."""
    replay, cohort = job.replay, prepared.cohort
    alone = seen.get("alone", {})
    judged = [
        {**with_alone(written[name], alone), "newcomer": False, **NOT_MEASURED} for name in sorted(written, key=natural)
    ]
    devices = score_written(judged, prepared.run, prepared.task, seen["rows"], cohort.step)
    validation = [{"accuracy": d["validation_accuracy"]} for d in devices]
    found = {
        "method": replay.method,
        "rounds": replay.rounds,
        "seed": replay.seed,
        "hospitals": len(cohort.tree),
        "data": {"name": str(replay.data), "generated": cohort.generated, **replay.options},
        "classes": list(cohort.classes),
        "accuracy": mean_over_devices(devices),
        "validation_accuracy": mean_over_devices(validation),
        "auc": find_areas(lines),
        "chosen": find_choice(lines),
        "statistics": summarise(devices),
        "neighbours": seen["told"],
        "devices": [{key: value for key, value in d.items() if key not in INNER} for d in devices],
        "bytes": {hop: spent.bytes[hop] for hop in HOPS},
        "gradients": mean_gradients([spent.gradients], len(cohort.devices)),
        "seconds": round(spent.seconds, 1),
        "memory": {"device_peak_mb": round(spent.memory, 1)},
        "density": mean([d["density"] for d in devices if d["density"] is not None]),
        "model": {"file": str(replay.out / "model.npz") if model["parameters"] else "", **model},
        "settings": dict(prepared.run.settings),
        "settle": dict(replay.settle),
        "augment": dict(prepared.run.augment),
        "robust": dict(replay.robust),
        "uploads": dict(replay.uploads),
        "privacy": describe_privacy(replay.privacy, lines),
        "made": describe_origin(replay),
        "broker": "none",
        "simulation": describe_simulation(job, prepared, lines, spent),
        "curve": list(lines),
    }
    return found | summarise_outputs(devices, prepared.run, prepared.task, cohort.step)


def with_alone(d: Mapping[str, Any], alone: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """What a client has written, with the scores of its own network among its sums, if it has trained one.

    Args:
        alone: client -> part -> sums.
    """
    own = alone.get(d["device"], {})
    if not own:
        return dict(d)
    return {**d, "sums": {part: sums | ({LOCAL: own[part]} if part in own else {}) for part, sums in d["sums"].items()}}


NOT_MEASURED = {"peak_memory_mb": 0.0, "cpu_seconds": 0.0, "seconds": 0.0, "bytes": {"sent": 0, "received": 0}}
"""Of a single client nothing of this is known."""


INNER = ("confusion", "label_sums", "anomaly_sums")
"""What devices' results have for what is computed of them, and a simulation tells nobody: there are many devices."""


def describe_simulation(job: Simulation, prepared: Prepared, lines: Sequence[Line], spent: Spent) -> dict[str, Any]:
    """What a replay's result has not: sizes, the virtual clock, when accuracies were reached."""
    rate = spent.answers / spent.playing if spent.playing else 0.0
    return {
        **describe(job),
        "clients": len(prepared.cohort.devices),
        "drawn": bool(job.clients),
        **origin(prepared),
        "answers": spent.answers,
        "answers_per_second": round(rate, 1),
        "records": spent.records,
        "ranks": spent.ranks,
        "clock": spent.clock,
        "peak_memory_mb": round(spent.memory, 1),
        "cpu_seconds": round(cpu_seconds(), 1),
        "training": asdict(spent.trained),
        "reached": find_reached(lines, job.targets),
    }


def find_reached(lines: Sequence[Line], targets: Sequence[float]) -> list[dict[str, Any]]:
    """For each model and target, the first line of metrics in which the mean accuracy, or the macro-F1 of sets of
    labels, is at least so high.

    Evaluations of the run on the way count; where there are none, the scores that come with uploads.

    Returns:
        "model", "target", and "round", "clock" (seconds) and "bytes" at that time; of targets that were reached.
    """
    judged = [line for line in lines if line["kind"] == "evaluation"]
    used = judged if len(judged) > 1 else [line for line in lines if "sums" in line]
    curves = [(line, line.get(MACRO_F1) or mean_accuracies(line["sums"])) for line in used]
    found = []
    for model in sorted({name for _, accuracies in curves for name in accuracies if not name.startswith("test_")}):
        for target in sorted(targets):
            line = next((line for line, accuracies in curves if accuracies.get(model, -1) >= target), None)
            if line is not None:
                when = {"round": line["round"], "clock": line["clock"], "bytes": line["bytes_so_far"]}
                found.append({"model": NAMES.get(model, model), "target": target, **when})
    return found


# The model ------------------------------------------------------------------------------------------------------
def count_numbers(message: Any) -> int:
    """Number of floats in a message; counted by the aggregator's own function."""
    return int(importlib.import_module("aggregator.sizes").count_numbers(message))


def describe_model(layout: Layout, shown: Any, theta: Vector | None) -> dict[str, Any]:
    """Size of the final model, and the rank of each layer that has a matrix form. Clients may have their own: 0."""
    if theta is None:
        return {"parameters": 0, "parameters_sent": 0, "ranks": {}, "full_ranks": {}}
    packed = importlib.import_module("aggregator.sizes").find_packed(shown)
    found = {"parameters": layout.size, "parameters_sent": count_numbers(shown), "ranks": {}, "full_ranks": {}}
    found |= {"lost_variances": lost} if (lost := lost_variances(layout, theta)) else {}
    if packed is None:
        return found
    full = {slot.name: min(lowrank.matrix_shape(slot)) for slot in lowrank.matrix_slots(layout)}
    return {**found, "ranks": lowrank.ranks(layout, packed), "full_ranks": full}


def write_model(path: Path, layout: Layout, theta: Vector) -> None:
    """Writes a model as an NPZ file with an array for each parameter."""
    arrays: dict[str, Any] = {slot.name: layout.view(theta, slot) for slot in layout.slots}
    with replace_file(path) as file:
        np.savez(file, **arrays)
