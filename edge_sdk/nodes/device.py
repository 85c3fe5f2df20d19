"""A device: its own samples, a model that it trains without torch, and a personal component that never leaves it.

device = Device("watch-7", hospital="north", broker="mqtts://north.example", bundle="wrist.bundle", directory="state")
device.train_on(Samples(x, labels), held_out=Samples(x_held, labels_held))
device.start()                        # in the background; or device.run()
device.predict(window)                # with the personalised model, as soon as there is one
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from edge_sdk.contract.method import NodeEnv
from edge_sdk.contract.run import Run, checked_name
from edge_sdk.data.public_inputs import read_public
from edge_sdk.data.samples import Samples
from edge_sdk.errors import UsageError
from edge_sdk.live.runtime import Assembly, Runtime
from edge_sdk.methods.shared.evaluation import Finished, Scores
from edge_sdk.methods.shared.reports import Models
from edge_sdk.model.model import Model
from edge_sdk.model.split_model import SplitModel
from edge_sdk.nodes import kept_models as keepsake
from edge_sdk.nodes.assembly import assembly, check_bundle, family_of, place, settings_of
from edge_sdk.nodes.kernels import split
from edge_sdk.nodes.kernels.family import DeviceParts
from edge_sdk.nodes.labels import class_codes
from edge_sdk.wire.options import DEFAULTS, Wire


class Device:
    """One wearable or board.

    Args:
        name: unique in its hospital; also its MQTT client id.
        hospital: name of the hospital that it belongs to.
        broker: URL of the hospital's broker, `mqtts://host[:port]`, or `mqtt://` on this machine.
        bundle: file with the compiled model; must be the one that the run names, unless the method's models differ.
        directory: where it keeps its state; the personal component lives only here.
        public: file of the public inputs that the run names, if it names any; see `edge_sdk.data.public_inputs`.
        threads: of onnxruntime.
        wire: certificates, MQTT version, durability; see `edge_sdk.wire.options.Wire`.
        on_event: called with what the run tells this device (scores, models, the end), on the network's thread.

    Raises:
        UsageError: a name, the bundle or the broker's URL cannot be used.
    """

    def __init__(
        self,
        name: str,
        *,
        hospital: str,
        broker: str,
        bundle: str | Path,
        directory: str | Path,
        threads: int = 1,
        public: str | Path | None = None,
        wire: Wire = DEFAULTS,
        on_event: Callable[[Any], None] | None = None,
        log: logging.Logger | None = None,
    ):
        self.name, self.on_event = checked_name(name, "device name"), on_event
        self.model: Model = split.load_model(bundle, threads)
        self.train: Samples | None = None
        self.held_out: Samples | None = None
        self.directory = Path(directory)
        self.public = None if public is None else read_public(public)
        self.current: Run | None = None
        self.kept = keepsake.Keepsake()
        self.log = log or logging.getLogger(f"auscult.{name}")
        self.finished = threading.Event()
        self.runtime = Runtime(
            name,
            parent=checked_name(hospital, "hospital"),
            children=(),
            directory=self.directory,
            broker=broker,
            assemble=self.assemble,
            told=self.told,
            log=self.log,
            **wire.options(broker),
        )
        self.thread: threading.Thread | None = None

    def train_on(self, samples: Samples, held_out: Samples | None = None) -> None:
        """The samples to learn from and, apart from them, those to judge the models by. Before `run` or `start`."""
        for part in (samples, held_out):
            wanted = split.own_shape(self.model, split.DEVICE)
            if part is not None and (shape := part.x.shape[1:]) != wanted:
                raise UsageError(f"device {self.name}: samples of shape {shape}, the bundle's input is {wanted}")
        self.train, self.held_out = samples, held_out

    def run(self, until: Callable[[], bool] | None = None) -> None:
        """Take part until `stop`, or until `until()` says so."""
        if self.train is None:
            raise UsageError(f"device {self.name}: call train_on(samples) before run()")
        self.runtime.run(until)

    def start(self) -> None:
        """`run` in the background."""
        self.thread = threading.Thread(target=self.run, name=f"auscult-{self.name}", daemon=True)
        self.thread.start()

    def stop(self) -> None:
        """Leave in good order. What is under way is kept and goes on at the next start."""
        self.runtime.stop()
        if self.thread is not None:
            self.thread.join()
            self.thread = None

    def predict(self, x: npt.NDArray[np.float32], which: str = "personal") -> list[str] | npt.NDArray[np.int64]:
        """Classes of float32 (N, ...) inputs: names if a run has told them, else indices.

        Uses the personalised model, or the bundle's initial one before any run has ended here.
        """
        if isinstance(self.model, SplitModel):
            raise UsageError(f"device {self.name}: {self.model.name} is a split model, which no device runs alone")
        models = self.kept.models
        theta = models.get(which, models.get("global", self.model.theta0))
        codes = self.model.predict(theta, x).argmax(1)
        classes = self.current.classes if self.current else ()
        return [classes[code] for code in codes] if classes else np.asarray(codes, np.int64)

    def assemble(self, run: Run) -> Assembly:
        """What this device brings into a run: its samples, behind functions of theta."""
        check_bundle(run, self.model.bundle, "device")
        self.current = run
        self.kept = keepsake.load(self.keepsake_path(run))
        if self.kept.finished:
            self.finished.set()
        return assembly(run, "device", self.env(run))

    def env(self, run: Run, cancellable: bool = True) -> NodeEnv:
        """The samples behind functions of theta. `cancellable`: training gives way to newer questions."""
        given = family_of(run).for_device(self.parts(run, cancellable))
        return place(run, self.model.layout, self.model.theta0, **given)

    def parts(self, run: Run, cancellable: bool) -> DeviceParts:
        """What the method's family of kernels makes this device's env of."""
        assert self.train is not None  # run() has checked it
        return DeviceParts(
            run=run,
            settings=settings_of(run),
            whose=f"device {self.name}",
            model=self.model,
            x=self.train.x,
            y=self.codes(self.train, run),
            held_out=None if self.held_out is None else (self.held_out.x, self.codes(self.held_out, run)),
            public=self.public,
            cancel=self.runtime.cancelled if cancellable else None,
        )

    def codes(self, samples: Samples, run: Run) -> npt.NDArray[np.int64]:
        return class_codes(samples.labels, run.classes, f"device {self.name}")

    def told(self, number: int, message: Any) -> None:
        """From the runtime, after its commit, at least once: so what is kept may be written again, never missed."""
        if isinstance(message, Scores):
            self.kept = replace(self.kept, scores=message.sums)
            self.log.info("%s: judged the models of round %d: %s", self.name, message.round, judgement(message.sums))
        if isinstance(message, (Models, Finished)):
            self.keep(message)
        if self.on_event is not None:
            self.on_event(message)
        if isinstance(message, Finished):
            self.log.info("%s: the run is over", self.name)
            self.finished.set()

    def keep(self, message: Models | Finished) -> None:
        over = isinstance(message, Finished)
        models = message.models if isinstance(message, Models) else self.kept.models
        self.kept = replace(self.kept, models=models, finished=over)
        if self.current is not None:
            keepsake.save(self.keepsake_path(self.current), self.kept)

    def keepsake_path(self, run: Run) -> Path:
        return self.directory / f"{run.id}.npz"


def judgement(sums: Mapping[str, float]) -> str:
    """Own scores for people: how many of the held-out samples each model gets right."""
    right = {name.removesuffix("_correct"): count for name, count in sums.items() if name.endswith("_correct")}
    return (
        ", ".join(f"{name} {count:.0f} of {sums['samples']:.0f} right" for name, count in right.items()) or "no samples"
    )
