"""What a device's service writes when its run is over: result.json, with figures that only this device has."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from edge_sdk.contract.run import Run
from edge_sdk.hardware.probe import cpu_seconds, peak_memory_mb
from edge_sdk.methods.shared.evaluation.reports import sums_on_test, sums_on_validation
from edge_sdk.methods.standardising.equations import by_itself
from edge_sdk.model.tasks.task import OneClass
from edge_sdk.nodes.configuration.assembly import method_of
from edge_sdk.nodes.daemon.counter_files import count_bytes, list_counters, write_json
from edge_sdk.nodes.daemon.device_file import DeviceFile
from edge_sdk.nodes.device.device import Device
from edge_sdk.nodes.evaluation.confusion_matrices import count_labels, judge_alone, judge_kept_models
from edge_sdk.nodes.evaluation.local_baseline import choose_trial
from edge_sdk.nodes.evaluation.local_training import train_alone
from edge_sdk.nodes.evaluation.output_scores import LOCAL, judge_outputs, judge_outputs_alone

log = logging.getLogger("auscult.serve")
ALONE = "alone.json"
NOTE_EVERY = 1.0  # seconds


@dataclass
class DeviceResult:
    """The result of one device, judged when it is asked for.

    Args:
        began: of the service, time.monotonic().
    """

    file: DeviceFile
    device: Device
    began: float

    def describe(self) -> dict[str, Any]:
        """The content of the file, as figures and names."""
        device, run, apart = self.device.part, self.device.part.current, self.device.part.validation is not None
        assert device.train is not None and device.held_out is not None and run is not None
        scores, in_words = device.kept.scores, all(isinstance(label, str) for label in device.train.labels)
        labels = count_labels(device.train, device.model.task) if in_words else {}
        judged = device.model.classes and not device.model.bundle.is_split
        alone = self.judge_local_only(run) if self.file.local_only and len(device.held_out) else {}
        return {
            "device": device.name,
            "hospital": self.file.hospital,
            "samples": len(device.train),
            "validation": None if device.validation is None else len(device.validation),
            "held_out": len(device.held_out),
            "classes": len(labels),
            "labels": labels,
            "accuracy": compute_accuracies(sums_on_test(scores) if apart else scores),
            "alone_accuracy": alone.get("accuracy"),
            "validation_accuracy": compute_accuracies(sums_on_validation(scores)) if apart else {},
            "confusion": judge_kept_models(device, run) if judged else {},
            "alone": alone.get("trials", []),
            **self.judge_errors(run, alone),
            "density": measure_density(device.kept.models),
            "peak_memory_mb": round(peak_memory_mb(), 1),
            "cpu_seconds": round(cpu_seconds(), 2),
            "seconds": round(time.monotonic() - self.began, 2),
            "bytes": count_bytes(device.runtime.counters, self.file.hospital),
            **list_counters(device.runtime),
        }

    def judge_errors(self, run: Run, alone: Mapping[str, Any]) -> dict[str, Any]:
        """What result.json has of a model that predicts no classes: "sums", see `evaluation.output_scores`."""
        if isinstance(self.device.part.model.task, OneClass):
            return {}
        found, local = judge_outputs(self.device.part, run), alone.get("sums", {})
        return {"sums": {p: own | ({LOCAL: local[p]} if p in local else {}) for p, own in found.items()}}

    def judge_local_only(self, run: Run) -> dict[str, Any]:
        """What this device reaches alone.

        Returns:
            "trials", as `judge_alone` describes them, where there is a validation part. "accuracy": without one, that
            of a training as the run has it; with one, that of the trial which the device chooses, if it can.
        """
        note, device = ProgressNote(self.file.directory / ALONE), self.device.part
        if device.validation is not None and device.model.classes:
            trials = judge_alone(device, run, note)
            chosen = choose_trial([trial["validation_correct"] for trial in trials])
            return {"trials": trials} | ({"accuracy": trials[chosen]["accuracy"]} if len(device.validation) else {})
        if not isinstance(device.model.task, OneClass):
            if device.validation is None or not len(device.validation):
                return {}  # nothing to choose optimiser and steps by
            return {"sums": judge_outputs_alone(device, run, note)}
        env, _ = by_itself(replace(device.env(run, cancellable=False), me=device.name))
        assert env.score is not None
        sums = env.score(train_alone(method_of(run), env, lambda done: note(done, env.rounds)))
        return {"accuracy": sums["correct"] / sums["samples"]}


class ProgressNote:
    """A file that says how far the training alone has got, for a replay that waits for it.

    Nothing else needs the note, so a disk that is full costs a warning and never the training.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.due = path, 0.0

    def __call__(self, done: int, of: int) -> None:
        """`done` rounds, or steps, of so many are over."""
        if time.monotonic() < self.due and done < of:
            return
        self.due = time.monotonic() + NOTE_EVERY
        try:
            write_json(self.path, {"rounds": done, "of": of})
        except OSError as error:
            log.warning("%s: %d of %d rounds are done, which could not be noted: %s", self.path, done, of, error)


def compute_accuracies(sums: Mapping[str, float]) -> dict[str, float]:
    """Shares of one device's held-out samples that its models get right: {"global": ..., "personal": ...}.

    Args:
        sums: as `reports.judge` names them: global_correct, personal_correct, samples, ...
    """
    right = {n.removesuffix("_correct"): v for n, v in sums.items() if n.endswith("_correct")}
    judged = {name: sums.get(f"{name}_samples", sums.get("samples", 0)) for name in right}
    return {name: count / judged[name] for name, count in right.items() if judged[name]}


def measure_density(models: Mapping[str, Any]) -> float | None:
    """Share of the personal component's entries that are not zero."""
    if "personal" not in models or "global" not in models:
        return None
    return float(np.mean(models["personal"] != models["global"]))
