"""What `auscult device` and `auscult hospital` do with their settings files: build, serve, write the result."""

from __future__ import annotations

import json
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from edge_sdk.atomic import write_text
from edge_sdk.contract.run import Run
from edge_sdk.data.patients import patients_of
from edge_sdk.data.samples import samples_of
from edge_sdk.errors import UsageError
from edge_sdk.live.runtime import Runtime
from edge_sdk.methods.shared.reports import sums_on_test
from edge_sdk.model.split_model import SplitModel
from edge_sdk.nodes.device import Device
from edge_sdk.nodes.hospital import Hospital
from edge_sdk.nodes.judging import count_labels, judge_alone, judge_kept_models
from edge_sdk.nodes.local_choice import choose_trial
from edge_sdk.nodes.local_only import local_only
from edge_sdk.nodes.prometheus import Endpoint
from edge_sdk.nodes.service_files import DeviceFile, HospitalFile
from edge_sdk.nodes.settings import read_toml
from edge_sdk.wire.topics import ALL
from hardware.probe import cpu_seconds, peak_memory_mb

log = logging.getLogger("auscult.serve")
LINGER, LAST_WORDS = 0.7, 60.0  # seconds

ALONE, NOTE_EVERY = "alone.json", 1.0  # seconds
WITH_PARENT = "AUSCULT_END_WITH"
"""Names the process that started this one, if this one is to end with it, however that ends."""


def orphaned() -> bool:
    return os.environ.get(WITH_PARENT, str(os.getppid())) != str(os.getppid())


class Service(Protocol):
    """What can be run until it is stopped."""

    finished: threading.Event
    runtime: Runtime

    def run(self, until: Callable[[], bool] | None = None) -> None: ...
    def stop(self) -> None: ...


def serve(
    services: Sequence[Service],
    once: bool,
    meanwhile: Callable[[], None] = lambda: None,
    ports: Sequence[int | None] = (),
) -> None:
    """Run services side by side until a signal comes or, with `once`, until every run has ended and is delivered.

    `meanwhile` is called about twice a second, and once at the end. `ports`: where the metrics of each are found.
    """
    with ExitStack() as stack:
        for service, port in zip(services, ports, strict=False):
            if port is not None:
                stack.enter_context(Endpoint(service.runtime, port))
        serve_all(services, once, meanwhile)


def serve_all(services: Sequence[Service], once: bool, meanwhile: Callable[[], None]) -> None:
    stopping = threading.Event()

    def stop(*_: Any) -> None:
        stopping.set()
        for service in services:
            service.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    failures: list[BaseException] = []

    def run(service: Service) -> None:
        try:
            service.run(Ending(service) if once else None)
        except BaseException as error:
            failures.append(error)
            stop()

    threads = [threading.Thread(target=run, args=(s,), daemon=True) for s in services]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():  # a join without time-out would keep signals from being handled
            thread.join(0.5)
            meanwhile()
            if orphaned():
                stop()
    if failures:
        raise failures[0]


class Ending:
    """Whether a service that serves one run may end: the run is over here, and nobody waits for anything from here.

    A node stays for LINGER seconds after that, because its own last acknowledgement may be on its way. A peer that has
    gone for good would be waited for in vain, so LAST_WORDS seconds after the end it is left with what is on this disk:
    the node sends it when it is started again.
    """

    def __init__(self, service: Service):
        self.service, self.since, self.quiet = service, inf, inf

    def __call__(self) -> bool:
        """Raises UsageError if this node cannot take part in the run, which then would never end here."""
        if self.service.runtime.refusal:
            raise UsageError(self.service.runtime.refusal)
        if not self.service.finished.is_set():
            return False
        now = time.monotonic()
        self.since = min(self.since, now)
        self.quiet = min(self.quiet, now) if self.service.runtime.delivered else inf
        if now > self.quiet + LINGER:
            return True
        late = now > self.since + LAST_WORDS
        if late:
            log.warning("ending with messages that have not been acknowledged; they are kept for the next start")
        return late


@dataclass
class DeviceService:
    """A device from its settings file, with what it tells at the end."""

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
        if self.file.local_only and self.is_split:
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
        """What this device alone can tell of the run."""
        device, run, apart = self.device, self.device.current, self.device.validation is not None
        assert device.train is not None and device.held_out is not None and run is not None
        scores = device.kept.scores
        alone = self.judge_local_only(run) if self.file.local_only and len(device.held_out) else {}
        local = {"local": alone["accuracy"]} if "accuracy" in alone else {}
        return {
            "device": device.name,
            "hospital": self.file.hospital,
            "samples": len(device.train),
            "validation": None if device.validation is None else len(device.validation),
            "held_out": len(device.held_out),
            "classes": len(set(device.train.labels)),
            "labels": count_labels(device.train),
            "accuracy": own_accuracies(sums_on_test(scores) if apart else scores) | local,
            "validation_accuracy": own_accuracies(scores) if apart else {},
            "confusion": judge_kept_models(device, run) if device.model.classes and not self.is_split else {},
            "alone": alone.get("trials", []),
            "density": density(device.kept.models),
            "peak_memory_mb": round(peak_memory_mb(), 1),
            "cpu_seconds": round(cpu_seconds(), 2),
            "seconds": round(time.monotonic() - self.began, 2),
            "bytes": traffic(device.runtime.counters, self.file.hospital),
            **counted(device.runtime),
        }

    @property
    def is_split(self) -> bool:
        """Is the model divided between device and hospital?"""
        return isinstance(self.device.model, SplitModel)

    def judge_local_only(self, run: Run) -> dict[str, Any]:
        """What this device reaches alone.

        Returns:
            "trials", as `judge_alone` describes them, where there is a validation part. "accuracy": without one, that
            of a training as the run has it; with one, that of the trial which the device chooses, if it can.
        """
        note, device = Noted(self.file.directory / ALONE), self.device
        if device.validation is not None and device.model.classes:
            trials = judge_alone(device, run, note)
            chosen = choose_trial([trial["validation_correct"] for trial in trials])
            return {"trials": trials} | ({"accuracy": trials[chosen]["accuracy"]} if len(device.validation) else {})
        env = replace(device.env(run, cancellable=False), me=device.name)
        assert env.score is not None
        sums = env.score(local_only(env, lambda done: note(done, env.rounds)))
        return {"accuracy": sums["correct"] / sums["samples"]}


class Noted:
    """Writes to a file how far the training alone is, for whoever waits for it. A full disk does not end that."""

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


def own_accuracies(sums: Mapping[str, float]) -> dict[str, float]:
    """Shares of one device's held-out samples that its models get right: {"global": ..., "personal": ...}.

    Args:
        sums: as `reports.judge` names them: global_correct, personal_correct, samples, ...
    """
    right = {n.removesuffix("_correct"): v for n, v in sums.items() if n.endswith("_correct")}
    judged = {name: sums.get(f"{name}_samples", sums.get("samples", 0)) for name in right}
    return {name: count / judged[name] for name, count in right.items() if judged[name]}


def density(models: Mapping[str, Any]) -> float | None:
    """Share of the personal component's entries that are not zero."""
    if "personal" not in models or "global" not in models:
        return None
    return float(np.mean(models["personal"] != models["global"]))


def serve_devices(paths: Sequence[Path], once: bool) -> None:
    files = [read_toml(path, DeviceFile) for path in paths]
    serve([DeviceService(file) for file in files], once, ports=[file.wire.metrics_port for file in files])


def serve_hospital(path: Path, once: bool) -> None:
    file = read_toml(path, HospitalFile)
    hospital = Hospital(
        file.name,
        aggregator=file.aggregator,
        broker=file.broker,
        upstream=file.upstream,
        bundle=file.bundle,
        directory=file.directory,
        devices=file.devices,
        companions=file.companions,
        wait_for=file.wait_for,
        wire=file.wire,
        upstream_wire=file.upstream_wire,
    )
    if file.data is not None:
        hospital.train_on(patients_of(file.data.samples))

    def note() -> None:
        write_json(file.directory / "ledger.json", hospital_ledger(hospital, file))

    serve([hospital], once, note, [file.wire.metrics_port])


def hospital_ledger(hospital: Hospital, file: HospitalFile) -> dict[str, Any]:
    """What has crossed this hospital's lines so far."""
    counters = hospital.runtime.counters
    return {
        "hospital": file.name,
        "up": traffic(counters, file.aggregator),
        "down": {device: traffic(counters, device) for device in file.devices},
        "to_all": traffic(counters, ALL)["sent"],
        "peak_memory_mb": round(peak_memory_mb(), 1),
        **counted(hospital.runtime),
    }


def counted(runtime: Runtime) -> dict[str, Any]:
    """What a node has counted, and how things stand there, for a ledger."""
    return {"counters": runtime.counters.totals(), "gauges": runtime.gauges()}


def traffic(counters: Mapping[str, int], peer: str) -> dict[str, int]:
    """Bytes of MQTT payloads, seen from here."""
    return {"sent": counters.get(f"bytes_out.{peer}", 0), "received": counters.get(f"bytes_in.{peer}", 0)}


def write_json(path: Path, value: Any) -> None:
    """In one piece: a reader sees the old file or the new one."""
    write_text(path, json.dumps(value, indent=1) + "\n")
