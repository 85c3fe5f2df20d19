"""The result of a replay: what the nodes have written, put together as one JSON object."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from edge_sdk.contract.environment.gradients import PURPOSES
from edge_sdk.contract.run import Run
from edge_sdk.data.samples import Samples
from edge_sdk.hardware.probe import read_machine
from edge_sdk.methods.shared.evaluation.reports import sums_on_test
from edge_sdk.model.bundle import read_bundle
from edge_sdk.model.tasks.task import (
    FORECAST,
    LABELS,
    RECONSTRUCTION,
    STEPS,
    VALUE,
    OneClass,
    OutputTask,
    Reconstruction,
    SeveralLabels,
    Task,
    Values,
)
from edge_sdk.nodes.configuration.assembly import augmentation_of
from edge_sdk.nodes.kernels.labels import kept
from edge_sdk.replay.anomalies.neighbours import look_for_detectors
from edge_sdk.replay.anomalies.scores import ANOMALIES, score_anomalies, summarise_anomalies, with_reconstruction_errors
from edge_sdk.replay.cohorts.cohort import Cohort
from edge_sdk.replay.labels.scores import score_labels, summarise_labels, with_macro_f1
from edge_sdk.replay.metrics.scores import NAMES, score_devices, summarise
from edge_sdk.replay.neighbours.look import NeighbourSource, look_round, read_parts, read_samples_of
from edge_sdk.replay.neighbours.output_models import Parts, look_for_output_models
from edge_sdk.replay.neighbours.rows import add_rows
from edge_sdk.replay.nodes.node_files import NodeFiles
from edge_sdk.replay.nodes.sent_before import sent_before, was_interrupted
from edge_sdk.replay.nodes.watch import Line, Say
from edge_sdk.replay.planning.plan import Replay, is_split
from edge_sdk.replay.planning.resume import read_data_hash
from edge_sdk.replay.values.scores import score_values, summarise_values, with_errors
from edge_sdk.version import find_version
from edge_sdk.wire.addresses import conceal

SPENT = ("epsilon", "epsilon_model", "delta")
SHOWN = {
    VALUE: "mean absolute errors in these units",
    STEPS: "macro-F1 of steps",
    LABELS: "macro-F1 at thresholds of 0.5",
    RECONSTRUCTION: "mean squared errors of windows as the model takes them",
    FORECAST: "mean squared errors of the ends of windows as the model takes them",
}
"""Task -> what a line of each round shows of models."""


def describe_privacy(settings: Mapping[str, Any], lines: Sequence[Line]) -> dict[str, Any]:
    """Settings of a run's noise, and under "spent" what the run came to; empty: there is none."""
    last = next((line for line in reversed(lines) if "epsilon" in line), None)
    if not settings or last is None:
        return dict(settings)
    return {**settings, "spent": {key: last[key] for key in SPENT}}


def collect_result(
    job: Replay, run: Run, cohort: Cohort, files: NodeFiles, lines: Sequence[Line], url: str, seconds: float, say: Say
) -> dict[str, Any]:
    """Everything that the nodes have written, and their neighbours; the aggregator's files are copied into DIR."""
    written = [
        json.loads((job.out / "devices" / d / "result.json").read_text()) for d in sorted(cohort.devices, key=natural)
    ]
    uncounted: dict[str, Any] = {"gradients": None} if was_interrupted(job.out) else {}
    written = [d | {"newcomer": d["device"] in job.newcomers} | uncounted for d in written]
    task = read_bundle(files.bundles[written[0]["hospital"]]).task
    if isinstance(task, OneClass):
        seen = find_neighbours(job, run, files, written, say)
    else:
        wanted = task  # as the type that it has here
        parts, rest = (lambda name: read_targets(files, run, wanted, name)), (written, job.neighbours, job.seed, say)
        if isinstance(task, Reconstruction):
            told, rows = look_for_detectors(task, parts, *rest)
        else:
            told, rows = look_for_output_models(task, parts, *rest)
        seen = {"told": told, "rows": rows}
    devices = score_written(written, run, task, seen["rows"], cohort.step)
    fleet = [d for d in devices if not d["newcomer"]]
    hospitals = {h: json.loads((job.out / h / "ledger.json").read_text()) for h in cohort.tree}
    top = json.loads((job.out / "aggregator" / "result.json").read_text())
    copied, unshown = copy_files(job), {"label_sums", "anomaly_sums", *([] if job.confusion else ["confusion"])}
    found = {
        "method": job.method,
        "rounds": job.rounds,
        "seed": job.seed,
        "hospitals": len(cohort.tree),
        "data": {"name": str(job.data), "generated": cohort.generated, **job.options},
        "classes": list(cohort.classes),
        "accuracy": mean_accuracies(fleet),
        "validation_accuracy": mean_accuracies([{"accuracy": d["validation_accuracy"]} for d in fleet]),
        "auc": find_areas(lines),
        "chosen": find_choice(lines),
        "statistics": summarise(devices),
        "neighbours": seen["told"],
        "devices": [{k: v for k, v in d.items() if k not in unshown} for d in devices],
        "bytes": sum_bytes(devices, hospitals, sent_before(job.out)),
        "gradients": mean_gradients([d.get("gradients") for d in fleet], len(fleet)),
        "seconds": round(seconds, 1),
        "memory": {"device_peak_mb": max(d["peak_memory_mb"] for d in devices)},
        "density": mean([d["density"] for d in devices if d["density"] is not None]),
        "model": {"file": str(job.out / "model.npz") if "model.npz" in copied else "", **top["model"]},
        "settings": dict(job.all_settings),
        "settle": dict(job.settle),
        "augment": dict(run.augment),
        "robust": dict(job.robust),
        "uploads": dict(job.uploads),
        "privacy": describe_privacy(job.privacy, lines),
        "made": describe_origin(job),
        "broker": "embedded" if job.broker == "embedded" else conceal(url),
        "curve": list(lines),
    }
    return found | summarise_outputs(devices, run, task, cohort.step)


def summarise_outputs(devices: Sequence[Mapping[str, Any]], run: Run, task: Task, step: float = 0.0) -> dict[str, Any]:
    """What a result says of values, sets of labels or reconstructed windows; nothing of classes.

    Args:
        devices: with their scores.
        step: seconds between windows.
    """
    if isinstance(task, Values):
        return {"values": summarise_values(devices, run, task)}
    if isinstance(task, Reconstruction):
        return {ANOMALIES: summarise_anomalies(devices, run, task, step)}
    return summarise_labels(devices, task) if isinstance(task, SeveralLabels) else {}


def with_scores(line: Line, run: Run, task: Task) -> Line:
    """A line of metrics with errors of values or reconstructions, or macro-F1 of sets of labels."""
    line = with_errors(line, run, task if isinstance(task, Values) else None)
    return with_reconstruction_errors(with_macro_f1(line, task), task)


def describe_scores(run: Run, task: Task) -> str:
    """What is predicted, and what the figures of a line of metrics are, for people; "" of classes: accuracies."""
    if isinstance(task, OneClass):
        return ""
    shown = SHOWN[VALUE if isinstance(task, Values) else task.kind]
    return f"{task.in_words(run.classes)}: `global` and `personal` are {shown}"


def score_written(
    written: Sequence[Mapping[str, Any]], run: Run, task: Task, rows: dict[str, Any], step: float = 0.0
) -> Sequence[Mapping[str, Any]]:
    """The devices' results with the scores of all models.

    Args:
        written: what the devices have written at the end.
        rows: device -> neighbour -> its confusion matrix or, of other tasks, its sums.
        step: seconds between windows, of the cohort.
    """
    if isinstance(task, OneClass):
        return add_rows(score_devices(written, run.classes), rows, run.classes)
    if isinstance(task, Reconstruction):
        return score_devices(score_anomalies(written, rows, step), run.classes)
    if isinstance(task, SeveralLabels):
        return score_labels(written, task, rows)
    return score_devices(score_values(written, run, task, rows), run.classes)


def find_neighbours(
    job: Replay, run: Run, files: NodeFiles, written: Sequence[Mapping[str, Any]], say: Say
) -> Mapping[str, Any]:
    """What devices would reach alone with their best model, and all data in one place."""
    source = NeighbourSource(
        parts=lambda name: read_parts(files, run, name),
        written=written,
        fleet=[d["device"] for d in written if not d["newcomer"]],
        bundle=files.bundles[written[0]["hospital"]],
        classes=len(run.classes),
        how=augmentation_of(run),
        split=is_split(job),
    )
    return look_round(source, job.neighbours, job.seed, say)


def read_targets(files: NodeFiles, run: Run, task: OutputTask, name: str) -> Parts:
    """The samples that a device's settings name: those to train on with targets as the network has them, the others
    with what models are judged by."""
    found = read_samples_of(files, name)
    empty = Samples(found.train.x[:0], ())
    names, whose = run.classes, f"device {name}"
    own = kept(found.train, task.listed(found.train.labels, names))
    chosen, test = (kept(p, task.judged_by(p.labels, names)) for p in (found.validation or empty, found.held_out))
    wanted = own.x, task.targets(own.labels, names, whose, own.x)
    truths = [task.truths(part.labels, names, whose, part.x) for part in (chosen, test)]
    return wanted, (chosen.x, truths[0]), (test.x, truths[1])


def natural(name: str) -> list[tuple[bool, int, str]]:
    """Sorts m2 before m10: by its letters as text, by its digits as numbers."""
    return [(part.isdigit(), int(part) if part.isdigit() else 0, part) for part in re.split(r"(\d+)", name) if part]


def describe_origin(job: Replay) -> dict[str, Any]:
    """When and from what the result was made: "date", "version", "command", "processor", hashes of "bundles", "data".

    Processors round differently, so the same seed gives the same result on this one only.
    """
    machine = read_machine()
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "version": find_version(),
        "command": job.command,
        "processor": f"{machine.model} ({machine.architecture})",
        "bundles": [read_bundle(path).sha256 for path in sorted(job.out.glob("model*.bundle"))],
        "data": read_data_hash(job.out),
    }


def copy_files(job: Replay) -> list[str]:
    """Copies the aggregator's metrics and model into DIR, and returns the names of those that there are."""
    files = [name for name in ("metrics.jsonl", "model.npz") if (job.out / "aggregator" / name).exists()]
    for name in files:
        shutil.copyfile(job.out / "aggregator" / name, job.out / name)
    return files


def without(values: Mapping[str, Any], key: str) -> dict[str, Any]:
    """All values but one."""
    return {k: v for k, v in values.items() if k != key}


def mean_accuracies(devices: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    """Model -> unweighted mean over the devices that have such a model."""
    kinds = sorted({key for d in devices for key in d["accuracy"]})
    return {k: mean([d["accuracy"][k] for d in devices if k in d["accuracy"]]) for k in kinds}


def find_areas(lines: Sequence[Line]) -> dict[str, float]:
    """Area under the ROC curve of each model over the test samples of all devices, where it is defined."""
    last: Line = next((line for line in reversed(lines) if line.get("final")), {})
    found = last.get("auc", {})
    areas = sums_on_test(found) or found
    return {NAMES.get(name, name): area for name, area in areas.items()}


def find_choice(lines: Sequence[Line]) -> dict[str, Any] | None:
    """What the fleet has chosen when it settled: candidate, and its right answers; None: it has not settled."""
    last = next((line for line in reversed(lines) if line["kind"] == "settling"), None)
    told = ("steps", "local_steps", "weight", "forest", "correct", "local_correct", "samples", "devices")
    return None if last is None else {key: last[key] for key in told if key in last}


def mean(values: Sequence[float]) -> float | None:
    """The mean, or None of no values."""
    return sum(values) / len(values) if values else None


def mean_gradients(every: Sequence[Mapping[str, int] | None], devices: int) -> dict[str, float] | None:
    """Gradients of single samples that a device has computed on average, in "rounds" and in "phases" after them; None:
    not all were counted."""
    known = [one for one in every if one is not None]
    if not devices or len(known) < len(every):
        return None
    return {purpose: sum(one[purpose] for one in known) / devices for purpose in PURPOSES}


def sum_bytes(
    devices: Sequence[Mapping[str, Any]], hospitals: Mapping[str, Any], before: Mapping[str, int]
) -> dict[str, int]:
    """Bytes that crossed each hop, seen from its lower end: what devices' radios and hospitals' lines have carried.
    `before`: before the replay was interrupted."""
    since = {
        "device_to_hospital": sum(d["bytes"]["sent"] for d in devices),
        "hospital_to_device": sum(d["bytes"]["received"] for d in devices),
        "hospital_to_aggregator": sum(h["up"]["sent"] for h in hospitals.values()),
        "aggregator_to_hospital": sum(h["up"]["received"] for h in hospitals.values()),
    }
    return {hop: count + before[hop] for hop, count in since.items()}
