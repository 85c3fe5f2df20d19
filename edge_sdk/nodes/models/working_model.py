"""The model that a device predicts with: the latest that a run has made here, or the bundle's initial one.

A new run does not take it away: it works until the new run has made its own models, and it is on the disk with its
classes and a copy of its bundle, so a device that was started again predicts at once, without network or samples, also
where the application brings another bundle by then.

    working        id of the run that made it
    previous       ids of the runs that made those before it, the latest first, which a rollout can be taken back to
    before         a run, and the one whose models predicted before it (last_line.py)
    RUN.npz        its models (kept_models.py)
    BUNDLE.bundle  a copy of the bundle they are for
"""

from __future__ import annotations

import logging
import shutil
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from edge_sdk.algebra.vectors import Vector
from edge_sdk.atomic import replace_file, write_text
from edge_sdk.contract.run import ID
from edge_sdk.errors import UsageError
from edge_sdk.model.bundle import BundleError
from edge_sdk.model.inputs import Data, name_inputs, refuse_unknown
from edge_sdk.model.model import Model
from edge_sdk.model.tasks.task import OneClass
from edge_sdk.nodes.models import kept_models
from edge_sdk.nodes.models.kept_models import KeptModels

if TYPE_CHECKING:
    from edge_sdk.model.predictor import Output
    from edge_sdk.nodes.models.predictions import Predictions
NOTE, PREVIOUS, BEFORE = "working", "previous", "before"
INITIAL = "initial"
"""Name of the bundle's own model, which predicts until a run has ended here."""
ENSEMBLE = ("personal", "local")
"""Models that predict as a run which settles has chosen."""
PREFERRED = ("personal", "companion", "global")
"""Models by which a device predicts, if it may choose: the one that has seen most of its own samples first."""

log = logging.getLogger("auscult.working_model")


@dataclass(frozen=True)
class WorkingModel:
    """Models of one run, ready to predict. It never changes: a newer one takes its place in one step.

    Attributes:
        whose: the device, for errors.
        model: the graphs.
        classes: names of the outputs that mean something.
        kept: the run's models; none in it: the bundle's initial one predicts.
        run: id of the run; "": none.
        predictors: name of a model -> its outputs, made when they are first wanted.
    """

    whose: str
    model: Model
    classes: tuple[str, ...]
    kept: KeptModels
    run: str = ""
    predictors: dict[str, Output] = field(default_factory=dict, compare=False, repr=False)

    def predict(self, x: Data, which: str | None, smooth: int = 1, abstain: float = 0.0) -> Predictions:
        """Predicts as `Device.predict` describes it."""
        name, _ = self.find_model(which)
        if not 0 <= abstain <= 1:
            raise UsageError(f"predict: abstain = {abstain}, expected a probability, from 0 to 1")
        if not isinstance(self.model.task, OneClass):
            from edge_sdk.model.tasks.task import Forecast
            from edge_sdk.nodes.models.shown import show

            if abstain:
                what = f"{self.model.name} predicts {self.model.task.in_words(self.classes)}"
                raise UsageError(f"abstain = {abstain}: there is no probability of one class; {what}")
            if smooth > 1 and self.model.task.steps:
                raise UsageError(f"smooth = {smooth}: {self.model.name} tells the steps of each window, no others")
            x = self.model.samples(self.with_first_axis(x))
            rows = mean_of_last(self.model.task.shown(self.together(name, x), x), smooth)
            found = show(self, name, rows)
            return replace(found, ahead=self.forecast(name, x)) if isinstance(self.model.task, Forecast) else found
        from edge_sdk.algebra.ensemble import probabilities, smoothed  # with the first prediction, as the next
        from edge_sdk.nodes.models.predictions import Predictions

        if smooth == 1 and self.kept.ensemble is None and not self.model.bundle.is_split:
            p = probabilities(self.outputs(name, x))
        else:
            p = smoothed(self.log_probabilities(x, which), smooth)
        return Predictions(p, self.classes, name, self.run, abstain)

    def log_probabilities(self, x: Data, which: str | None) -> npt.NDArray[np.floating]:
        """Log-probabilities as `Device.log_probabilities` describes them."""
        from edge_sdk.algebra.ensemble import combined, log_probabilities

        if self.model.bundle.is_split:
            raise UsageError(f"{self.whose}: {self.model.name} is a split model, which no device runs alone")
        if not isinstance(self.model.task, OneClass):
            what = self.model.task.in_words(self.classes)
            raise UsageError(f"{self.whose}: {self.model.name} predicts {what}, which has no probabilities of classes")
        name, _ = self.find_model(which)
        found = self.kept.ensemble if name in ENSEMBLE else None
        classes = () if found is None else found.classes
        own = self.outputs(name, x)
        if found is None or name == "local":
            return log_probabilities(own, classes)
        return combined(found, own, lambda: self.outputs("local", x), lambda: self.features(x))

    def forecast(self, name: str, x: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """The next values after windows x (N, C, T), (N, C, horizon), in the units of the channels."""
        from edge_sdk.model.tasks.forecast import Forecast

        task, signal = self.model.task, self.model.bundle.signal
        assert isinstance(task, Forecast)
        made = self.outputs(name, task.shifted(x)).astype(np.float64)
        return made if signal is None else signal.restore(made)

    def features(self, x: Data) -> npt.NDArray[np.floating]:
        """What the forest of this device sees of samples, (N, F)."""
        from edge_sdk.nodes.kernels.own_windows import features_of

        return features_of(self.model.samples(self.with_first_axis(x)))

    def outputs(self, name: str, x: Data) -> npt.NDArray[np.float32]:
        """Outputs, of those that have a name, (N, classes); one sample may come without its first axis.

        Args:
            name: of the model, as `find_model` gives it.
        """
        output = self.predictors.get(name) or self.make_predictor(name)
        x = self.with_first_axis(x)
        refuse_unknown(x)
        found = output(x)
        return found[:, : len(self.classes)] if isinstance(self.model.task, OneClass) else found

    def together(self, name: str, x: Data) -> npt.NDArray[np.floating]:
        """Outputs (N, ...) of a model that predicts no class, with the local one where the run has chosen that."""
        from edge_sdk.algebra.ensemble import mixed

        found = self.kept.ensemble if name in ENSEMBLE and name != "local" else None
        return mixed(found, self.outputs(name, x), lambda: self.outputs("local", x))

    def with_first_axis(self, x: Data) -> Data:
        """Samples (N, ...) of one that comes without its first axis; others as they are."""
        if isinstance(x, np.ndarray):
            return x[None] if x.ndim == (self.rank if x.dtype.names is None else 0) else x
        given = name_inputs([str(i["name"]) for i in self.model.bundle.manifest["inputs"]], x)
        alone = np.ndim(next(iter(given.values()))) == self.rank
        return {name: np.asarray(values)[None] if alone else values for name, values in given.items()}

    def make_predictor(self, name: str) -> Output:
        from edge_sdk.model.predictor import make_predictor

        theta = self.model.theta0 if name == INITIAL else self.kept.models[name]
        return self.predictors.setdefault(name, make_predictor(self.model, theta))

    @cached_property
    def rank(self) -> int:
        """Number of axes of one sample, of the first input where there are several."""
        return len(self.model.input_shape)

    def find_model(self, which: str | None) -> tuple[str, Vector]:
        """Name and theta (n,) of one of the models; `which` as for `Device.predict`."""
        models = self.kept.models
        if which is None:  # as a rule, and often
            for name in PREFERRED:
                if name in models:
                    return name, models[name]
        known = ("personal", "global", INITIAL, *models)
        if which is not None and which not in known:
            raise UsageError(f"which = {which!r}: expected one of {', '.join(dict.fromkeys(known))}")
        if which == INITIAL or not models:
            return INITIAL, self.model.theta0
        name = which or next((name for name in PREFERRED if name in models), next(iter(models)))
        if name not in models:
            raise UsageError(f"which = {name!r}: run {self.run} has made only {', '.join(sorted(models))}")
        return name, models[name]


def initial_model(whose: str, model: Model) -> WorkingModel:
    """The bundle's own model, with the names that the bundle has for its outputs, or else their numbers."""
    outputs = 0 if model.bundle.is_split else model.classes
    if not isinstance(model.task, OneClass):
        return WorkingModel(whose, model, model.task.named(), KeptModels())
    names = model.bundle.class_names or tuple(map(str, range(outputs)))
    return WorkingModel(whose, model, names, KeptModels())


def mean_of_last(rows: npt.NDArray[np.floating], last: int) -> npt.NDArray[np.floating]:
    """Means of each row (N, K) with those before it, up to `last` in all."""
    if last < 1:
        raise UsageError(f"smoothing over {last} windows: at least 1")
    if last == 1 or not len(rows):
        return rows
    return np.stack([rows[max(0, n - last + 1) : n + 1].mean(0) for n in range(len(rows))])


# On the disk ----------------------------------------------------------------------------------------------------
def note_working(directory: Path, working: WorkingModel) -> None:
    """Make the models of a run, which are saved, those that predict after a restart. The bundle's copy comes first."""
    keep_bundle(directory, working.model)
    write_text(directory / NOTE, working.run + "\n", lasting=True)
    earlier = {*previous_runs(directory), read_before(directory)[1]} - {""}
    before = {kept_models.load(directory / f"{run}.npz").bundle for run in earlier}
    kept = {bundle_path(directory, sha256) for sha256 in (*before, working.model.sha256) if sha256}
    for path in directory.glob("*.bundle"):
        if path not in kept:
            path.unlink(missing_ok=True)


def keep_bundle(directory: Path, model: Model) -> None:
    """Copy the bundle, unless that was done before."""
    target = bundle_path(directory, model.sha256)
    if model.bundle.path is None or target.exists():
        return
    with model.bundle.path.open("rb") as source, replace_file(target, lasting=True) as file:
        shutil.copyfileobj(source, file)


def bundle_path(directory: Path, sha256: str) -> Path:
    return directory / f"{sha256[:16]}.bundle"


def load_working(directory: Path, whose: str, model: Model, threads: int) -> WorkingModel:
    """The model that worked when the device was last stopped, or the latest before it where that is damaged; the
    bundle's initial one where there is none.

    Args:
        model: that of the application's bundle, which is used again where it is the same.
    """
    run, (later, before) = working_run(directory), read_before(directory)
    earlier = () if not run else (*((before,) if later == run else ()), *previous_runs(directory))
    found = (load_run(directory, one, whose, model, threads) for one in dict.fromkeys((run, *earlier)))
    return next((one for one in found if one is not None), None) or initial_model(whose, model)


def load_run(directory: Path, run: str, whose: str, model: Model, threads: int) -> WorkingModel | None:
    """The models that a run has made here, ready to predict; None, and the reason in the log, where they cannot."""
    kept = kept_models.load(directory / f"{run}.npz") if run else KeptModels()
    if not kept.models or not kept.classes:
        return None
    if kept.bundle == model.sha256:
        return WorkingModel(whose, model, kept.classes, kept, run)
    try:
        other = Model(bundle_path(directory, kept.bundle), threads)
    except BundleError as error:
        log.error("%s: the models of run %s cannot be used: %s", whose, run, error)
        return None
    if other.input_shape != model.input_shape:
        shapes = f"{other.input_shape}, and this bundle's of {model.input_shape}"
        log.warning("%s: the models of run %s take inputs of %s: they predict no more", whose, run, shapes)
        return None
    return WorkingModel(whose, other, kept.classes, kept, run)


def working_run(directory: Path) -> str:
    """Id of the run whose models work; "": none."""
    note = directory / NOTE
    found = note.read_text(errors="replace").strip() if note.is_file() else ""
    return found if ID.fullmatch(found) else ""


def read_before(directory: Path) -> tuple[str, str]:
    """A run, and the one whose models predicted before it; "": none, or none is known."""
    note = directory / BEFORE
    lines = note.read_text(errors="replace").splitlines() if note.is_file() else []
    run, before = (*lines, "", "")[:2]
    return (run, before) if ID.fullmatch(run) and (not before or ID.fullmatch(before)) else ("", "")


def previous_runs(directory: Path) -> tuple[str, ...]:
    """Ids of the runs whose models a rollout may be taken back to."""
    note = directory / PREVIOUS
    lines = note.read_text(errors="replace").splitlines() if note.is_file() else []
    return tuple(line for line in lines if ID.fullmatch(line))


# Old runs -------------------------------------------------------------------------------------------------------
KEEP = 3
"""Runs whose files stay: the present one, and the latest before it."""
OF_A_RUN = (".db", ".db-wal", ".db-shm", ".db-writing", ".npz", ".npz.damaged")


def remove_old_runs(directory: Path, current: str) -> list[str]:
    """Remove the files of all but the latest KEEP runs. Those of the present run and of the working model stay.

    Returns:
        Ids of the runs that were removed.
    """
    ages = {path.stem: path.stat().st_mtime for path in directory.glob("*.db") if ID.fullmatch(path.stem)}
    latest = sorted(ages.keys() - {current}, key=lambda run: (ages[run], run))[-(KEEP - 1) :]
    kept = {current, working_run(directory), *previous_runs(directory), *read_before(directory), *latest}
    old = sorted(ages.keys() - kept)
    for run in old:
        for ending in OF_A_RUN:
            (directory / f"{run}{ending}").unlink(missing_ok=True)
        for ending in (".bodies", ".damaged"):
            shutil.rmtree(directory / f"{run}{ending}", ignore_errors=True)
    return old
