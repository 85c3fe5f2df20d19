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

from edge_sdk.algebra.ensemble import log_probabilities, pooled, smoothed
from edge_sdk.algebra.vectors import Vector
from edge_sdk.contract.method import NodeEnv
from edge_sdk.contract.run import Run, checked_name
from edge_sdk.data.public_inputs import read_public
from edge_sdk.data.samples import Samples
from edge_sdk.errors import UsageError
from edge_sdk.live.runtime import Assembly, Runtime
from edge_sdk.methods.shared.evaluation import Finished, Scores
from edge_sdk.methods.shared.reports import COMPANION, Diverged, Models
from edge_sdk.model.model import Model
from edge_sdk.model.split_model import SplitModel
from edge_sdk.nodes import kept_models
from edge_sdk.nodes.assembly import augmentation_of, check_bundle, family_of, make_assembly, make_env, settings_of
from edge_sdk.nodes.kernels import split
from edge_sdk.nodes.kernels.family import Array, DeviceParts
from edge_sdk.nodes.labels import class_codes
from edge_sdk.wire.options import DEFAULTS, Wire

ENSEMBLE = ("personal", "local")
"""Models that predict as a run which settles has chosen."""
PREFERRED = ("personal", COMPANION, "global")
"""Models by which a device predicts, if it may choose: the one that has seen most of its own samples first."""


class Device:
    """One wearable or board.

    Args:
        name: unique in its hospital; also its MQTT client id.
        hospital: name of the hospital that it belongs to.
        broker: URL of the hospital's broker, `mqtts://host[:port]`, or `mqtt://` on this machine.
        bundle: file with the compiled model; must be the one that the run names, unless the method's models differ.
        directory: where it keeps its state; the personal component is nowhere else.
        public: file of the public inputs that the run names, if it names any; see `edge_sdk.data.public_inputs`.
        threads: number of threads of onnxruntime.
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
        self.validation: Samples | None = None
        self.directory = Path(directory)
        self.public = None if public is None else read_public(public)
        self.current: Run | None = None
        self.kept = kept_models.KeptModels()
        self.log = log or logging.getLogger(f"auscult.{name}")
        self.finished = threading.Event()
        self.runtime = Runtime(
            name,
            parent=checked_name(hospital, "hospital"),
            children=(),
            directory=self.directory,
            broker=broker,
            assemble=self.assemble,
            told=self.receive_event,
            log=self.log,
            **wire.options(broker),
        )
        self.thread: threading.Thread | None = None
        self.running = threading.Lock()  # held from the call of run() or start() until the device has stopped

    def train_on(self, samples: Samples, held_out: Samples | None = None, validation: Samples | None = None) -> None:
        """Set the samples to learn from and, apart from them, those to judge the models by.

        Args:
            validation: apart from both: rounds are judged on them, and a run that settles makes its choices on them.

        Raises:
            UsageError: their shape is not that of the bundle's input, or the device is running.
        """
        if self.running.locked():
            raise UsageError(f"device {self.name} is running: stop() it before train_on()")
        for part in (samples, held_out, validation):
            wanted = split.own_shape(self.model, split.DEVICE)
            if part is not None and (shape := part.x.shape[1:]) != wanted:
                raise UsageError(f"device {self.name}: samples of shape {shape}, the bundle's input is {wanted}")
        self.train, self.held_out, self.validation = samples, held_out, validation

    def run(self, until: Callable[[], bool] | None = None) -> None:
        """Take part until `stop`, or until `until()` says so.

        Raises:
            UsageError: it has no samples to learn from, or it is running already.
        """
        self.claim()
        self.serve(until)

    def start(self) -> None:
        """Take part in the background, until `stop`.

        Raises:
            UsageError: it has no samples to learn from, or it is running already.
        """
        self.claim()
        self.thread = threading.Thread(target=self.serve, name=f"auscult-{self.name}", daemon=True)
        self.thread.start()

    def claim(self) -> None:
        """Take the one right to run; `serve` gives it back. Whoever starts the device hears what is missing."""
        if self.train is None:
            raise UsageError(f"device {self.name}: call train_on(samples) before run() or start()")
        if not self.running.acquire(blocking=False):
            raise UsageError(f"device {self.name} is running already")

    def serve(self, until: Callable[[], bool] | None = None) -> None:
        try:
            self.runtime.run(until)
        finally:
            self.running.release()

    def stop(self) -> None:
        """Leave in good order. What is under way is kept and goes on at the next start."""
        self.runtime.stop()
        if self.thread is not None:
            self.thread.join()
            self.thread = None

    def predict(
        self, x: npt.NDArray[np.float32], which: str | None = None, smooth: int = 1
    ) -> list[str] | npt.NDArray[np.int64]:
        """Classes of inputs, from the bundle's initial model until a run has ended here.

        Args:
            x: float32 (N, ...), of the bundle's input shape.
            which: "personal", "global", or another model of the run; None: the first of PREFERRED that it has made.
            smooth: for windows of one recording, in time order: decide by the mean over the last so many.

        Returns:
            The run's names of the classes or, where no run has told them, indices (N,) of the bundle's outputs. Outputs
            for which the run has no name are left out: nothing has taught them.

        Raises:
            UsageError: there is no such model, or the bundle is one that no device runs alone.
        """
        codes = smoothed(self.log_probabilities(x, which), smooth).argmax(1)
        if self.current is None:
            return np.asarray(codes, np.int64)
        return [self.current.classes[code] for code in codes]

    def log_probabilities(self, x: npt.NDArray[np.float32], which: str | None = None) -> npt.NDArray[np.floating]:
        """Log-probabilities of the classes, (N, classes), by the same models and with the same errors as `predict`.

        After a run that settles, the personal model is what the fleet has chosen: it may take in the local model, and
        classes that this device has never had a label of get -inf.
        """
        if isinstance(self.model, SplitModel):
            raise UsageError(f"device {self.name}: {self.model.name} is a split model, which no device runs alone")
        name, theta = self.find_model(which)
        found = self.kept.ensemble if name in ENSEMBLE else None
        classes = () if found is None else found.classes
        own = log_probabilities(self.outputs(theta, x), classes)
        if found is None or name == "local" or found.weight == 0:
            return own
        return pooled(own, log_probabilities(self.outputs(self.kept.models["local"], x), classes), found.weight)

    def outputs(self, theta: Vector, x: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """The model's outputs for which the run has a name, (N, classes)."""
        found = self.model.predict(theta, x)
        return found if self.current is None else found[:, : len(self.current.classes)]

    def find_model(self, which: str | None) -> tuple[str, Vector]:
        """Name and theta (n,) of one of the models; `which` as for `predict`; "" for the bundle's initial one."""
        models, known = self.kept.models, ("personal", "global", *self.kept.models)
        if which is not None and which not in known:
            raise UsageError(f"which = {which!r}: expected one of {', '.join(dict.fromkeys(known))}")
        if not models or self.current is None:
            return "", self.model.theta0
        name = which or next(name for name in PREFERRED if name in models)
        if name not in models:
            raise UsageError(f"which = {name!r}: run {self.current.id} has made only {', '.join(sorted(models))}")
        return name, models[name]

    def assemble(self, run: Run) -> Assembly:
        """This device's part in a run: role, env and codecs."""
        check_bundle(run, self.model.bundle, "device")
        if self.current is not None and self.current.id != run.id:
            self.finished.clear()  # the run before was
        self.current = run
        self.kept = kept_models.load(self.kept_path(run))
        if self.kept.finished:
            self.finished.set()
        return make_assembly(run, "device", self.env(run))

    def env(self, run: Run, cancellable: bool = True) -> NodeEnv:
        """The env of this device: its samples behind functions of theta.

        Args:
            cancellable: training stops between two steps when a newer question has come.
        """
        given = family_of(run).for_device(self.parts(run, cancellable))
        return make_env(run, self.model.layout, self.model.theta0, **given)

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
            held_out=self.coded(self.held_out, run),
            validation=self.coded(self.validation, run),
            augment=augmentation_of(run),
            public=self.public,
            cancel=self.runtime.cancelled if cancellable else None,
        )

    def coded(self, samples: Samples | None, run: Run) -> tuple[Array, Array] | None:
        return None if samples is None else (samples.x, self.codes(samples, run))

    def codes(self, samples: Samples, run: Run) -> npt.NDArray[np.int64]:
        return class_codes(samples.labels, run.classes, f"device {self.name}")

    def receive_event(self, number: int, message: Any) -> None:
        """Keep what the role tells the application, and pass it on.

        The runtime calls this after its commit, and again if the process dies before it notes that it has. So a file
        may be written twice with the same content, and no event is missed.
        """
        if isinstance(message, Scores):
            self.kept = replace(self.kept, scores=message.sums)
            self.log.info(
                "%s: judged the models of round %d: %s", self.name, message.round, describe_scores(message.sums)
            )
        if isinstance(message, Diverged):
            self.log.warning("%s: round %d: %s", self.name, message.round, message.what)
        if isinstance(message, (Models, Finished)):
            self.keep(message)
        if self.on_event is not None:
            self.on_event(message)
        if isinstance(message, Finished):
            self.log.info("%s: the run is over", self.name)
            self.finished.set()

    def keep(self, message: Models | Finished) -> None:
        over = isinstance(message, Finished)
        if isinstance(message, Models):
            self.kept = replace(self.kept, models=message.models, ensemble=message.ensemble)
        self.kept = replace(self.kept, finished=over)
        if self.current is not None:
            kept_models.save(self.kept_path(self.current), self.kept)

    def kept_path(self, run: Run) -> Path:
        return self.directory / f"{run.id}.npz"


def describe_scores(sums: Mapping[str, float]) -> str:
    """A device's own scores for people, e.g. "global 3 of 9 right, personal 7 of 9 right"."""
    right = {name.removesuffix("_correct"): count for name, count in sums.items() if name.endswith("_correct")}
    return (
        ", ".join(f"{name} {count:.0f} of {sums['samples']:.0f} right" for name, count in right.items()) or "no samples"
    )
