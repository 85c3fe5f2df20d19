"""A device as a service: built from its settings file, and the result that it writes when its run is over."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from edge_sdk.data.samples import samples_of
from edge_sdk.errors import UsageError
from edge_sdk.model.split_model import SplitModel
from edge_sdk.nodes.assembly import method_of
from edge_sdk.nodes.device import Device
from edge_sdk.nodes.ledgers import count_bytes, list_counters, write_json
from edge_sdk.nodes.local_only import train_alone
from edge_sdk.nodes.service_files import DeviceFile
from hardware.probe import cpu_seconds, peak_memory_mb

log = logging.getLogger("auscult.serve")
ALONE = "alone.json"
NOTE_EVERY = 1.0  # seconds


@dataclass
class DeviceService:
    """A device from its settings file; `run` writes result.json when the run is over."""

    file: DeviceFile
    device: Device = field(init=False)
    began: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        samples = samples_of(self.file.data)
        self.device = Device(
            self.file.name,
            hospital=self.file.hospital,
            broker=self.file.broker,
            bundle=self.file.bundle,
            directory=self.file.directory,
            threads=self.file.threads,
            public=self.file.public,
            wire=self.file.wire,
        )
        self.device.train_on(samples.train, samples.held_out, samples.validation)
        if self.file.local_only and isinstance(self.device.model, SplitModel):
            raise UsageError(
                f"local_only = true: {self.device.model.name} is a split model, which no device runs alone"
            )
        self.finished, self.runtime = self.device.finished, self.device.runtime

    def run(self, until: Callable[[], bool] | None = None) -> None:
        self.device.run(until)
        if self.device.finished.is_set():
            write_json(self.file.directory / "result.json", self.result())

    def stop(self) -> None:
        self.device.runtime.stop()

    def result(self) -> dict[str, Any]:
        """The content of result.json: figures that only this device has."""
        device = self.device
        assert device.train is not None and device.held_out is not None
        found = compute_accuracies(device.kept.scores)
        if self.file.local_only and len(device.held_out) and "local" not in found:
            found["local"] = self.measure_alone()
        return {
            "device": device.name,
            "hospital": self.file.hospital,
            "samples": len(device.train),
            "held_out": len(device.held_out),
            "classes": len(set(device.train.labels)),
            "accuracy": found,
            "density": measure_density(device.kept.models),
            "peak_memory_mb": round(peak_memory_mb(), 1),
            "cpu_seconds": round(cpu_seconds(), 2),
            "seconds": round(time.monotonic() - self.began, 2),
            "bytes": count_bytes(device.runtime.counters, self.file.hospital),
            **list_counters(device.runtime),
        }

    def measure_alone(self) -> float:
        device = self.device
        assert device.current is not None
        env = replace(device.env(device.current, cancellable=False), me=device.name)
        assert env.score is not None
        note = ProgressNote(self.file.directory / ALONE, env.rounds)
        sums = env.score(train_alone(method_of(device.current), env, note))
        return sums["correct"] / sums["samples"]


class ProgressNote:
    """A file that says how far the training alone has got, for a replay that waits for it.

    Nothing else needs the note, so a disk that is full costs a warning and never the training.
    """

    def __init__(self, path: Path, of: int) -> None:
        self.path, self.of, self.due = path, of, 0.0

    def __call__(self, rounds: int) -> None:
        if time.monotonic() < self.due and rounds < self.of:
            return
        self.due = time.monotonic() + NOTE_EVERY
        try:
            write_json(self.path, {"rounds": rounds, "of": self.of})
        except OSError as error:
            log.warning("%s: %d of %d rounds are done, which could not be noted: %s", self.path, rounds, self.of, error)


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
