"""A device: its own samples, a model that it trains without torch, and a personal component that never leaves it.

device = Device("watch-7", hospital="north", broker="mqtts://north.example", bundle="wrist.bundle", directory="state")
device.train_on(Samples(x, labels), held_out=Samples(x_held, labels_held))
device.start()                        # in the background; or device.run()
device.predict(windows).labels        # with the personalised model, as soon as there is one
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
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
from edge_sdk.methods.shared.reports import Diverged, Models
from edge_sdk.model.model import Model
from edge_sdk.nodes import kept_models
from edge_sdk.nodes.assembly import augmentation_of, check_bundle, family_of, make_assembly, make_env, settings_of
from edge_sdk.nodes.kernels import split
from edge_sdk.nodes.kernels.family import Array, DeviceParts
from edge_sdk.nodes.labels import class_codes, listed
from edge_sdk.nodes.predictions import Predictions
from edge_sdk.nodes.progress_log import ProgressLog
from edge_sdk.nodes.working_model import WorkingModel, load_working, note_working, remove_old_runs
from edge_sdk.wire.options import DEFAULTS, Wire


@dataclass(frozen=True)
class RunRefused:
    """An event: this device cannot take part in the run that its hospital offers.

    Attributes:
        why: names the run, and what would have to be otherwise.
    """

    why: str


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
        on_event: called with what the run tells this device (scores, models, the end, `RunRefused`), on the network's
            thread.

    Attributes:
        finished: set when the run is over, and when it is refused: `refusal` says why. Another run clears it.

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
        self.working = load_working(self.directory, f"device {name}", self.model, threads)
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
            told_refusal=self.receive_refusal,
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

    # -- running

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

    @property
    def refusal(self) -> str:
        """Why the device cannot take part in the run that it was offered last; "": it can."""
        return self.runtime.refusal

    # -- predicting

    def predict(
        self, x: npt.NDArray[np.float32], which: str | None = None, smooth: int = 1, abstain: float = 0.0
    ) -> Predictions:
        """Predicts the classes of windows, by the latest models that a run has made here, or the bundle's initial one.

        Works at any time, from any thread, without network, and goes on with the models of the last run while a new one
        is under way. Outputs for which the run has no name are left out: nothing has taught them.

        Args:
            x: float32 (N, ...), of the bundle's input shape, or one window without the first axis.
            which: "personal", "global", "initial" or another model of the run; None: the one that has seen most of the
                device's own samples.
            smooth: for windows of one recording, in time order: decide by the mean over the last so many.
            abstain: a window whose best class has a smaller probability than this gets no label.

        Raises:
            UsageError: there is no such model, or the bundle is one that no device runs alone.
        """
        return self.working.predict(x, which, smooth, abstain)

    def log_probabilities(self, x: npt.NDArray[np.float32], which: str | None = None) -> npt.NDArray[np.floating]:
        """Log-probabilities of the classes, (N, classes), by the same models and with the same errors as `predict`.

        After a run that settles, the personal model is what the fleet has chosen: it may take in the local model, and
        classes that this device has never had a label of get -inf.
        """
        return self.working.log_probabilities(x, which)

    # -- taking part in a run

    def assemble(self, run: Run) -> Assembly:
        """This device's part in a run: role, env and codecs."""
        check_bundle(run, self.model.bundle, "device")
        assembly = make_assembly(run, "device", self.env(run))
        self.current, self.kept = run, kept_models.load(self.kept_path(run))
        if self.kept.models:
            self.use_models(run)
        if self.kept.finished:
            self.finished.set()
        else:
            self.finished.clear()
        for old in remove_old_runs(self.directory, run.id):
            self.log.info("%s: the files of run %s are removed: it is long over", self.name, old)
        return replace(assembly, role=ProgressLog(self.name, run.id, self.log).watch(assembly.role))

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
        train = self.select_listed(self.train, run, "training")
        if not len(train) and len(self.train):
            raise UsageError(
                f"device {self.name}: no training sample has a label of this run: {', '.join(run.classes)}"
            )
        return DeviceParts(
            run=run,
            settings=settings_of(run),
            whose=f"device {self.name}",
            model=self.model,
            x=train.x,
            y=self.codes(train, run),
            held_out=self.coded(self.held_out, run, "held-out"),
            validation=self.coded(self.validation, run, "validation"),
            augment=augmentation_of(run),
            public=self.public,
            cancel=self.runtime.cancelled if cancellable else None,
        )

    def coded(self, samples: Samples | None, run: Run, part: str) -> tuple[Array, Array] | None:
        if samples is None:
            return None
        samples = self.select_listed(samples, run, part)
        return samples.x, self.codes(samples, run)

    def select_listed(self, samples: Samples, run: Run, part: str) -> Samples:
        """The samples whose label is a class of the run. Others are left out with a warning: the owner of a device may
        label what nobody has foreseen, and the device is of use all the same."""
        known = listed(samples.labels, run.classes)
        if known.all():
            return samples
        strange = sorted({label for label, fits in zip(samples.labels, known, strict=True) if not fits})
        said = f"{(~known).sum()} of {len(samples)} {part} samples are left out: run {run.id} has no class"
        self.log.warning("%s: %s %s; it has %s", self.name, said, ", ".join(strange[:5]), ", ".join(run.classes))
        return Samples(samples.x[known], tuple(label for label in samples.labels if label in run.classes))

    def codes(self, samples: Samples, run: Run) -> npt.NDArray[np.int64]:
        return class_codes(samples.labels, run.classes, f"device {self.name}")

    # -- what the run tells

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

    def receive_refusal(self, why: str) -> None:
        """Tell the application that the run goes on without this device."""
        self.finished.set()
        if self.on_event is not None:
            try:
                self.on_event(RunRefused(why))
            except Exception:  # the application's own affair, as with events
                self.log.exception("%s: the application failed on a refused run", self.name)

    def keep(self, message: Models | Finished) -> None:
        """Save the run's models, and let new ones predict from now on."""
        over = isinstance(message, Finished)
        if isinstance(message, Models):
            self.kept = replace(self.kept, models=message.models, ensemble=message.ensemble)
        if self.current is None:
            self.kept = replace(self.kept, finished=over)
            return
        self.kept = replace(self.kept, finished=over, classes=self.current.classes, bundle=self.model.sha256)
        kept_models.save(self.kept_path(self.current), self.kept)
        if isinstance(message, Models):
            self.use_models(self.current)

    def use_models(self, run: Run) -> None:
        """Predict by the run's models from now on, and after a restart."""
        working = WorkingModel(f"device {self.name}", self.model, run.classes, self.kept, run.id)
        if self.kept.classes:  # else a file of before, whose models are known to predict only while the run is
            note_working(self.directory, working)
        self.working = working

    def kept_path(self, run: Run) -> Path:
        return self.directory / f"{run.id}.npz"


def describe_scores(sums: Mapping[str, float]) -> str:
    """A device's own scores for people, e.g. "global 3 of 9 right, personal 7 of 9 right"."""
    right = {name.removesuffix("_correct"): count for name, count in sums.items() if name.endswith("_correct")}
    return (
        ", ".join(f"{name} {count:.0f} of {sums['samples']:.0f} right" for name, count in right.items()) or "no samples"
    )
