"""A device as a service: built from its settings file, and the result that it writes when its run is over."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from edge_sdk.contract.run import Run
from edge_sdk.data.samples import Unlabelled, samples_of
from edge_sdk.data.unlabelled import unlabelled_of
from edge_sdk.errors import UsageError
from edge_sdk.hardware.probe import cpu_seconds, peak_memory_mb
from edge_sdk.methods.shared.evaluation.reports import sums_on_test, sums_on_validation
from edge_sdk.methods.standardising.equations import by_itself
from edge_sdk.model.split_model import SplitModel
from edge_sdk.model.tasks.task import OneClass
from edge_sdk.nodes.configuration.assembly import method_of
from edge_sdk.nodes.configuration.settings import part_of
from edge_sdk.nodes.daemon.counter_files import count_bytes, list_counters, write_json
from edge_sdk.nodes.daemon.settings_files import LEDGER, DeviceFile
from edge_sdk.nodes.device.device import Device
from edge_sdk.nodes.device.options import DevicePolicy, LocalTraining
from edge_sdk.nodes.evaluation.confusion_matrices import count_labels, judge_alone, judge_kept_models
from edge_sdk.nodes.evaluation.local_baseline import choose_trial
from edge_sdk.nodes.evaluation.local_training import train_alone
from edge_sdk.nodes.evaluation.normalisation import find_normaliser
from edge_sdk.nodes.evaluation.output_scores import LOCAL, judge_outputs, judge_outputs_alone

log = logging.getLogger("auscult.serve")
ALONE = "alone.json"
NOTE_EVERY, LEDGER_EVERY = 1.0, 60.0  # seconds


@dataclass
class DeviceService:
    """A device from its settings file; `run` writes result.json when the run is over."""

    file: DeviceFile
    device: Device = field(init=False)
    began: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        samples = samples_of(self.file.data, find_normaliser(self.file.bundle))
        if samples.told:
            log.warning("%s", samples.told)
        self.device = Device(
            self.file.name,
            hospital=self.file.hospital,
            broker=self.file.broker,
            bundle=self.file.bundle,
            directory=self.file.directory,
            wire=self.file.wire,
            policy=part_of(self.file, DevicePolicy),
            training=part_of(self.file, LocalTraining),
        )
        self.device.train_on(samples.train, samples.held_out, samples.validation, self.read_unlabelled)
        if self.file.local_only and self.is_split:
            raise UsageError(
                f"local_only = true: {self.device.part.model.name} is a split model, which no device runs alone"
            )
        self.finished, self.runtime = self.device.finished, self.device.runtime

    def read_unlabelled(self) -> Unlabelled | None:
        """Samples without a label, read from the file again in a run that wants them."""
        return unlabelled_of(self.file.data, find_normaliser(self.file.bundle))

    def run(self, until: Callable[[], bool] | None = None) -> None:
        self.device.run(until)
        over = self.device.finished.is_set() and not self.device.refusal
        if over and self.device.part.current is not None:  # of a rollout there is nothing to tell
            write_json(self.file.directory / "result.json", self.result())

    def stop(self) -> None:
        self.device.runtime.stop()

    def result(self) -> dict[str, Any]:
        """The content of result.json: figures that only this device has."""
        device, run, apart = self.device.part, self.device.part.current, self.device.part.validation is not None
        assert device.train is not None and device.held_out is not None and run is not None
        scores, in_words = device.kept.scores, all(isinstance(label, str) for label in device.train.labels)
        labels = count_labels(device.train, device.model.task) if in_words else {}
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
            "confusion": judge_kept_models(device, run) if device.model.classes and not self.is_split else {},
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

    @property
    def is_split(self) -> bool:
        """Is the model divided between device and hospital?"""
        return isinstance(self.device.part.model, SplitModel)

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


class DeviceNote:
    """`ledger.json` of a device, for whoever looks after it.

    It is written when what the device waits for has changed, and seldom else: a memory card wears out by being written.
    """

    def __init__(self, service: DeviceService) -> None:
        self.service, self.due, self.noted = service, 0.0, ""

    def write(self, now: float) -> None:
        """Write it, if that is due. `now`: time.monotonic()."""
        runtime = self.service.runtime
        waiting = runtime.waiting()["for"]
        if runtime.holds_directory and (waiting != self.noted and now >= self.due - LEDGER_EVERY + NOTE_EVERY):
            self.due = 0.0
        if runtime.holds_directory and now >= self.due:
            write_json(self.service.file.directory / LEDGER, {"device": runtime.name, **list_counters(runtime)})
            self.due, self.noted = now + LEDGER_EVERY, waiting


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
