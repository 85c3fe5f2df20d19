"""The result of a replay: what the nodes have written, put together as one JSON object."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from typing import Any

from edge_sdk.replay.cohorts.cohort import Cohort
from edge_sdk.replay.plan import Replay
from edge_sdk.replay.watch import Line

NAMES = {"personal": "personalised"}
"""Name of a model among the nodes -> its name in the result."""


def collect_result(job: Replay, cohort: Cohort, lines: Sequence[Line], url: str, seconds: float) -> dict[str, Any]:
    """Everything that the nodes have written, as one object; the aggregator's files are copied into DIR."""
    devices = [json.loads((job.out / "devices" / d / "result.json").read_text()) for d in sorted(cohort.devices)]
    hospitals = {h: json.loads((job.out / h / "ledger.json").read_text()) for h in cohort.tree}
    top = json.loads((job.out / "aggregator" / "result.json").read_text())
    files = copy_files(job)
    return {
        "method": job.method,
        "rounds": job.rounds,
        "seed": job.seed,
        "hospitals": len(cohort.tree),
        "data": {"name": str(job.data), "generated": cohort.generated, **job.options},
        "accuracy": mean_accuracies(devices),
        "auc": rename_models(find_areas(lines)),
        "devices": [{**d, "accuracy": rename_models(d["accuracy"])} for d in devices],
        "bytes": sum_bytes(devices, hospitals),
        "seconds": round(seconds, 1),
        "memory": {"device_peak_mb": max(d["peak_memory_mb"] for d in devices)},
        "density": mean([d["density"] for d in devices if d["density"] is not None]),
        "model": {"file": str(job.out / "model.npz") if "model.npz" in files else "", **top["model"]},
        "settings": dict(job.settings),
        "broker": "embedded" if job.broker == "embedded" else url,
        "curve": list(lines),
    }


def copy_files(job: Replay) -> list[str]:
    """Copies the aggregator's metrics and model into DIR, and returns the names of those that there are."""
    files = [name for name in ("metrics.jsonl", "model.npz") if (job.out / "aggregator" / name).exists()]
    for name in files:
        shutil.copyfile(job.out / "aggregator" / name, job.out / name)
    return files


def rename_models(values: Mapping[str, Any]) -> dict[str, Any]:
    """The same values under the models' names in the result."""
    return {NAMES.get(key, key): value for key, value in values.items()}


def mean_accuracies(devices: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    """Model -> unweighted mean over the devices that have such a model."""
    kinds = sorted({key for d in devices for key in d["accuracy"]})
    found = {k: mean([d["accuracy"][k] for d in devices if k in d["accuracy"]]) for k in kinds}
    return rename_models(found)


def find_areas(lines: Sequence[Line]) -> dict[str, float]:
    """Area under the ROC curve of each model over the held-out samples of all devices, where it is defined."""
    last: Line = next((line for line in reversed(lines) if line.get("final")), {})
    return dict(last.get("auc", {}))


def mean(values: Sequence[float]) -> float | None:
    """The mean, or None of no values."""
    return sum(values) / len(values) if values else None


def sum_bytes(devices: Sequence[Mapping[str, Any]], hospitals: Mapping[str, Any]) -> dict[str, int]:
    """Bytes that crossed each hop, seen from its lower end: what devices' radios and hospitals' lines have carried."""
    return {
        "device_to_hospital": sum(d["bytes"]["sent"] for d in devices),
        "hospital_to_device": sum(d["bytes"]["received"] for d in devices),
        "hospital_to_aggregator": sum(h["up"]["sent"] for h in hospitals.values()),
        "aggregator_to_hospital": sum(h["up"]["received"] for h in hospitals.values()),
    }
