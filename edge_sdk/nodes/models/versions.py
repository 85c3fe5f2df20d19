"""Versions of the model that rollouts bring to a device: tried, taken in one step, and left again.

    rollout.json   the latest versions that rollouts brought: run, hashes, what predicted before, is it confirmed?
    previous       what predicted before (working_model.py), which stays on the disk with its bundle

A version predicts as soon as it is taken, and counts as a trial until its rollout is over and has kept it. A device
that does not hear that leaves the version when it is offered another run: its rollout may have been halted meanwhile.
Everything may happen twice, since what a role tells is told again after a kill: each step looks at what is there.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from edge_sdk.algebra.vectors import Vector
from edge_sdk.atomic import make_private_directory, write_bytes, write_text
from edge_sdk.contract.run import Run
from edge_sdk.data.samples import Samples
from edge_sdk.errors import UsageError
from edge_sdk.model.bundle import Bundle, BundleError
from edge_sdk.model.model import Model
from edge_sdk.model.tasks.task import ModelTask, OneClass, OutputTask
from edge_sdk.nodes.configuration.around import only_judges
from edge_sdk.nodes.configuration.settings import from_mapping
from edge_sdk.nodes.models import kept_models
from edge_sdk.nodes.models.kept_models import KeptModels
from edge_sdk.nodes.models.working_model import (
    NOTE,
    PREVIOUS,
    WorkingModel,
    bundle_path,
    load_run,
    load_working,
    note_working,
    working_run,
)

FILE = "rollout.json"
DEEP = 3
"""Versions before the present one that stay on the disk, and of which is known what was before them."""
BATCH = 512
"""Windows that both versions predict at once when they are compared."""


@dataclass(frozen=True)
class Rolled:
    """A version that a rollout has brought.

    Attributes:
        run: id of the rollout.
        bundle, theta: hashes of bundle and model.
        before: id of the run whose models predicted before; "": the initial one.
        confirmed: the rollout has kept it.
    """

    run: str
    bundle: str
    theta: str
    before: str = ""
    confirmed: bool = False


class Versions:
    """The versions on one device.

    Args:
        directory: the device's.
        model: that of the application's bundle.
        working: says which model predicts now.
        use: lets another one predict.

    Attributes:
        tried: the bundle that was tried last, as a model.
    """

    def __init__(
        self,
        name: str,
        directory: Path,
        model: Model,
        threads: int,
        working: Callable[[], WorkingModel],
        use: Callable[[WorkingModel], None],
        log: logging.Logger,
    ):
        self.name, self.directory, self.model, self.threads = name, directory, model, threads
        self.working, self.use, self.log = working, use, log
        self.tried: Model | None = None

    # -- trying

    def attempt(self, run: Run, bundle: Any, theta: Vector, samples: Samples | None) -> dict[str, float]:
        """Run the golden vectors of a version, and compare it with the one that predicts now.

        Args:
            samples: held-out ones; None: there are none.

        Returns:
            Counts of this device, as methods/rollout/plan.py names them.

        Raises:
            UsageError: it is not what the run has signed.
        """
        from edge_sdk.nodes.kernels.rollout import open_version

        file = open_version(run, bundle, theta)
        if self.has(run, theta) and not only_judges(run):
            return {"already": 1.0}
        try:
            model = self.load(file)
        except BundleError as error:
            self.log.error("%s: the version of rollout %s is not taken: %s", self.name, run.id, error)
            return {"golden_failed": 1.0}
        if why := self.find_misfit(run, model):
            self.log.error("%s: the version of rollout %s is not taken: %s", self.name, run.id, why)
            return {"unfit": 1.0}
        return {"installed": 1.0, **self.compare(self.make_candidate(run, model, theta), samples)}

    def find_misfit(self, run: Run, model: Model) -> str:
        """Why a version does not suit this device's samples; "": it does."""
        if model.input_shape != self.model.input_shape:
            return f"it has inputs of {model.input_shape}, this device's samples are {self.model.input_shape}"
        if isinstance(model.task, OneClass) and len(run.classes) > model.classes:
            return f"it has {model.classes} classes, the rollout {len(run.classes)}"
        if model.task.identity(run.classes) != self.model.task.identity(run.classes):
            return f"it predicts {model.task.in_words()}, this device's samples are of {self.model.task.in_words()}"
        return ""

    def has(self, run: Run, theta: Vector) -> bool:
        """Does this version predict here already, brought by an earlier rollout?"""
        from edge_sdk.nodes.kernels.rollout import hash_model

        rolled = self.read().get(self.working().run)
        if rolled is None or rolled.run == run.id or not rolled.confirmed:
            return False
        return (rolled.bundle, rolled.theta) == (run.bundle, hash_model(theta))

    def load(self, file: Bundle) -> Model:
        """The model of a bundle that has come, whose golden vectors are run. Raises BundleError if they fail."""
        for known in (self.tried, self.working().model, self.model):
            if known is not None and known.sha256 == file.sha256:
                return known
        made = self.tried = Model(file, self.threads)
        return made

    def make_candidate(self, run: Run, model: Model, theta: Vector) -> WorkingModel:
        """The version with this device's personal component, where that fits."""
        kept = carry_over(self.working(), model, np.asarray(theta, np.float32))
        kept = replace(kept, finished=True, classes=run.classes, bundle=model.sha256)
        return WorkingModel(f"device {self.name}", model, run.classes, kept, run.id)

    def compare(self, candidate: WorkingModel, samples: Samples | None) -> dict[str, float]:
        """Counts of held-out samples that are right by the model that predicts now, and by another one; of a model that
        predicts no class, sums of how right each is, by the other one's task."""
        from edge_sdk.nodes.kernels.labels import kept

        if samples is not None and not isinstance(candidate.model.task, OneClass):
            samples = kept(samples, candidate.model.task.listed(samples.labels, candidate.classes))
        if samples is None or not len(samples):
            return {}
        before, after = (float(rate(one, samples, candidate.model.task).sum()) for one in (self.working(), candidate))
        self.log.info("%s: of %d held-out samples %.4g are right, %.4g before", self.name, len(samples), after, before)
        return {"samples": float(len(samples)), "before": before, "after": after}

    # -- taking and leaving

    def receive_event(self, run: Run, message: Any) -> None:
        """Do what the role of a rollout tells."""
        from edge_sdk.methods.rollout.messages import VersionKept, VersionLeft, VersionTaken

        if isinstance(message, VersionTaken):
            self.take(run, message.bundle, message.theta)
        if isinstance(message, VersionKept):
            self.confirm(run.id)
        if isinstance(message, VersionLeft):
            self.leave(message.rollout or run.id)

    def take(self, run: Run, bundle: Any, theta: Vector) -> None:
        """Let a version predict from now on, and after a restart; the one before stays on the disk."""
        from edge_sdk.nodes.kernels.rollout import hash_model, open_version

        file, working = open_version(run, bundle, theta), self.working()
        if working.run == run.id:
            return  # told again
        model = self.load(file)
        candidate = self.make_candidate(run, model, theta)
        make_private_directory(self.directory)
        if not bundle_path(self.directory, file.sha256).exists():
            write_bytes(bundle_path(self.directory, file.sha256), np.asarray(bundle, np.uint8).tobytes(), lasting=True)
        kept_models.save(self.directory / f"{run.id}.npz", candidate.kept)
        self.write(Rolled(run.id, file.sha256, hash_model(theta), working_run(self.directory)))
        note_working(self.directory, candidate)
        self.use(candidate)
        self.log.info("%s: predicts with version %s of rollout %s", self.name, hash_model(theta)[:12], run.id)

    def confirm(self, run: str) -> None:
        """A rollout has kept its version, which predicts again if it was left while the rollout was paused."""
        rolled = self.read().get(run)
        if rolled is None or rolled.confirmed:
            return
        if self.working().run == rolled.before:
            again = load_run(self.directory, run, f"device {self.name}", self.model, self.threads)
            if again is not None:
                note_working(self.directory, again)
                self.use(again)
        self.write(replace(rolled, confirmed=True))

    def leave(self, rollout: str) -> None:
        """Go back to the version before that of a rollout, if it is this that predicts."""
        rolled = self.read().get(rollout)
        if rolled is None or not self.predicts(rollout):
            return
        if rolled.before:
            write_text(self.directory / NOTE, rolled.before + "\n", lasting=True)
        else:
            (self.directory / NOTE).unlink(missing_ok=True)
        self.use(load_working(self.directory, f"device {self.name}", self.model, self.threads))
        words = "%s: the version of rollout %s is left; %s predicts"
        self.log.warning(words, self.name, rollout, rolled.before or "the initial model")

    def leave_unconfirmed(self, next_run: str) -> None:
        """Leave a version whose rollout nobody has said to be kept, when another run begins."""
        rolled = self.read().get(self.working().run)
        if rolled is not None and rolled.run != next_run and not rolled.confirmed:
            self.leave(rolled.run)

    def predicts(self, rollout: str) -> bool:
        """Does the version of a rollout predict now?"""
        return bool(rollout) and self.working().run == rollout and rollout in self.read()

    # -- on the disk

    def read(self) -> dict[str, Rolled]:
        """Rollout -> what was noted, the latest last. A damaged note is as good as none: the version that predicts
        stays, and no rollout can take it back."""
        path = self.directory / FILE
        try:
            found = [from_mapping(Rolled, row, str(path)) for row in json.loads(path.read_text())]
        except FileNotFoundError:
            return {}
        except (ValueError, TypeError, UsageError) as error:
            self.log.error("%s: %s is damaged: %s", self.name, path, error)
            return {}
        return {rolled.run: rolled for rolled in found}

    def write(self, rolled: Rolled) -> None:
        """Note a version, and that those before it stay on the disk."""
        noted = {**{run: one for run, one in self.read().items() if run != rolled.run}, rolled.run: rolled}
        chain: list[str] = []
        run = rolled.before
        while run and len(chain) < DEEP and run not in chain:
            chain.append(run)
            run = noted[run].before if run in noted else ""
        write_text(self.directory / PREVIOUS, "".join(f"{run}\n" for run in chain), lasting=True)
        kept = [asdict(one) for one in [*noted.values()][-2 * DEEP :]]
        write_text(self.directory / FILE, json.dumps(kept) + "\n", lasting=True)


def carry_over(before: WorkingModel, model: Model, theta: Vector) -> KeptModels:
    """A new global model with the personal component of the model before, w' + (v - w), where its shapes fit. What was
    trained alone goes along with its own bundle; what does not fit stays with the version before."""
    models: dict[str, Vector] = {"global": theta}
    old, kept = before.kept.models, before.kept
    if before.model.layout != model.layout or not {"global", "personal"} <= {*old}:
        return KeptModels(models)
    models["personal"] = (theta + (old["personal"] - old["global"])).astype(np.float32)
    same_bundle = before.model.sha256 == model.sha256 and "local" in old
    if kept.ensemble is not None and same_bundle:
        models["local"] = old["local"]
    return KeptModels(models, ensemble=kept.ensemble if same_bundle else None)


def rate(working: WorkingModel, samples: Samples, task: ModelTask) -> npt.NDArray[np.float64]:
    """Shares (N,) to which a model is right: 1 or 0 of a class, else as `credits` of a task has them."""
    if isinstance(task, OneClass):
        return mark_right(working, samples).astype(np.float64)
    worst = 1.0 if task.histograms else 2.0  # of labels the share that is wrong, of values errors in halves of a range
    return 1 - np.minimum(lose(working, samples, cast(OutputTask, task)) / worst, 1)


def mark_right(working: WorkingModel, samples: Samples) -> npt.NDArray[np.bool_]:
    """The samples to which a model gives their label, as a mask (N,)."""
    right = np.zeros(len(samples), np.bool_)
    for start in range(0, len(samples), BATCH):
        part = slice(start, start + BATCH)
        found = working.predict(samples.x[part], None).labels
        right[part] = [label == said for label, said in zip(samples.labels[part], found, strict=True)]
    return right


def mark_losses(working: WorkingModel, samples: Samples) -> npt.NDArray[np.float64]:
    """What a model loses on each sample, (N,): 1 for a wrong class; else as the task has it."""
    task = working.model.task
    if isinstance(task, OneClass):
        return (~mark_right(working, samples)).astype(np.float64)
    return lose(working, samples, task)


def lose(working: WorkingModel, samples: Samples, task: OutputTask) -> npt.NDArray[np.float64]:
    """What a model that predicts no class loses on each sample, (N,), as the task has it. Where it has diverged, so
    that a number of what it says is none, it is as wrong as can be: of labels 1, else inf."""
    found = np.zeros(len(samples))
    for start in range(0, len(samples), BATCH):
        part = slice(start, start + BATCH)
        rows = working.predict(samples.x[part], None).rows
        sound = np.isfinite(rows).all(tuple(range(1, rows.ndim)))
        losses = task.sample_losses(samples.labels[part], rows, working.whose)
        found[part] = np.where(sound, losses, 1.0 if task.histograms else np.inf)
    return found


def choose_judges(held_out: Samples | None, validation: Samples | None) -> Samples | None:
    """Samples that two versions are compared on: the test part, else the validation part."""
    return held_out if held_out is not None and len(held_out) else validation


def check_whole(model: Model) -> None:
    """Raises UsageError for a split model, which no device runs alone."""
    if model.bundle.is_split:
        raise UsageError(f"{model.name} is a split model, which no device runs alone: it takes no version by itself")


def choose_bundle(model: Model, working: WorkingModel, run: Run) -> Model:
    """The model that a run is for: the application's, or that of a bundle which a rollout has brought."""
    rolled = working.model
    fits = rolled.bundle.signal == model.bundle.signal and rolled.input_shape == model.input_shape
    return rolled if run.bundle == rolled.sha256 and fits else model
