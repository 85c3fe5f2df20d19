"""A device as a service: built from its settings file, and the result that it writes when its run is over."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from edge_sdk.data.cut import Cut
from edge_sdk.data.data_table import samples_of, unlabelled_of
from edge_sdk.data.samples import SplitSamples, Unlabelled
from edge_sdk.errors import UsageError
from edge_sdk.nodes.configuration.settings import part_of
from edge_sdk.nodes.daemon.counter_files import list_counters, write_json
from edge_sdk.nodes.daemon.device_file import LEDGER, DeviceFile, find_normaliser
from edge_sdk.nodes.device.device import Device
from edge_sdk.nodes.device.options import DevicePolicy, LocalTraining

log = logging.getLogger("auscult.serve")
NOTE_EVERY, LEDGER_EVERY = 1.0, 60.0  # seconds


@dataclass
class DeviceService:
    """A device from its settings file; `run` writes result.json when the run is over."""

    file: DeviceFile
    device: Device = field(init=False)
    began: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        samples = samples_of(self.file.data, find_normaliser(self.file.bundle))
        self.check_trace(samples)
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
        if self.file.local_only and self.device.part.model.bundle.is_split:
            raise UsageError(
                f"local_only = true: {self.device.part.model.name} is a split model, which no device runs alone"
            )
        self.finished, self.runtime = self.device.finished, self.device.runtime

    def check_trace(self, samples: SplitSamples) -> None:
        """Raises UsageError if the trace has other channels, units or another rate than the bundle takes."""
        if isinstance(data := self.file.data, Cut):
            from edge_sdk.data.noted_units import read_units  # what only devices with a trace need
            from edge_sdk.model.bundle import read_bundle
            from edge_sdk.nodes.evaluation.recorded_signal import check_signal

            noted = read_units(data.trace.parent).get(data.trace.stem, {})
            units = [noted.get(name, "") for name in samples.channels]
            signal = read_bundle(self.file.bundle).signal
            check_signal(self.file.bundle, signal, samples.channels, units, samples.rate_hz)

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
        from edge_sdk.nodes.daemon.device_result import DeviceResult  # judging and training alone come last, if at all

        return DeviceResult(self.file, self.device, self.began).describe()


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
