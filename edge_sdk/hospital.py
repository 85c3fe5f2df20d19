"""A hospital: it stands between its devices and the aggregator, draws who takes part, and adds up what they send."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from edge_sdk.assembly import assembly, place
from edge_sdk.bundle import read_bundle
from edge_sdk.errors import UsageError
from edge_sdk.methods.evaluation import Finished
from edge_sdk.run import Run, checked_name
from edge_sdk.runtime import Assembly, Runtime
from edge_sdk.wire import DEFAULTS, Wire


class Hospital:
    """One hospital node, next to its broker.

    Args:
        name: unique among the hospitals of an aggregator.
        aggregator: name of the aggregator.
        broker: URL of the broker that its devices use.
        upstream: URL of the broker that the aggregator uses; None: the same.
        bundle: file with the compiled model, for the shapes of what devices send.
        directory: where it keeps its state.
        devices: names of all its devices, here or not.
        wait_for: devices that must be here before it reports itself ready; None: all.
        wire: certificates, MQTT version, durability; see `edge_sdk.wire.Wire`.
    """

    def __init__(
        self,
        name: str,
        *,
        aggregator: str,
        broker: str,
        bundle: str | Path,
        directory: str | Path,
        devices: Sequence[str],
        upstream: str | None = None,
        wait_for: int | None = None,
        wire: Wire = DEFAULTS,
        on_event: Callable[[Any], None] | None = None,
        log: logging.Logger | None = None,
    ):
        self.name, self.on_event = checked_name(name, "hospital name"), on_event
        self.devices = tuple(checked_name(d, "device name") for d in devices)
        self.bundle = read_bundle(bundle)
        self.finished = threading.Event()
        self.runtime = Runtime(
            name,
            parent=checked_name(aggregator, "aggregator"),
            children=self.devices,
            directory=Path(directory),
            broker=broker,
            upstream=upstream,
            assemble=self.assemble,
            told=self.told,
            wait_for=wait_for,
            worker=False,
            log=log or logging.getLogger(f"auscult.{name}"),
            **wire.options(broker, upstream),
        )

    def run(self, until: Callable[[], bool] | None = None) -> None:
        """Serve until `stop`, or until `until()` says so."""
        self.runtime.run(until)

    def stop(self) -> None:
        self.runtime.stop()

    def assemble(self, run: Run) -> Assembly:
        if run.bundle != self.bundle.sha256:
            raise UsageError(
                f"run {run.id} is for bundle {run.bundle[:12]}, this hospital has {self.bundle.sha256[:12]}"
            )
        env = place(run, self.bundle.layout, self.bundle.theta0, sizes=dict.fromkeys(self.devices, 1))
        return assembly(run, "hospital", env)

    def told(self, number: int, message: Any) -> None:
        if self.on_event is not None:
            self.on_event(message)
        if isinstance(message, Finished):
            self.finished.set()
