"""What clients that judge models leave behind: for each an object such as a device in the field writes at the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from edge_sdk.algebra.ensemble import Ensemble, combined, log_probabilities
from edge_sdk.algebra.metrics.classification import confusion
from edge_sdk.algebra.vectors import Vector
from edge_sdk.methods.shared.evaluation.evaluation import Scores
from edge_sdk.methods.shared.evaluation.reports import Models, sums_on_test, sums_on_validation
from edge_sdk.model.model import Model
from edge_sdk.model.split_model import SplitModel
from edge_sdk.model.tasks.task import CLASS, ModelTask, StepClasses
from edge_sdk.nodes.daemon.device_result import compute_accuracies, measure_density
from edge_sdk.nodes.evaluation.output_scores import judge_models
from edge_sdk.nodes.kernels.own_windows import features_of
from edge_sdk.nodes.models.kept_models import KeptModels, save
from edge_sdk.nodes.models.working_model import ENSEMBLE
from edge_sdk.simulation.clients.clients import Worked
from edge_sdk.simulation.clients.population import ClientData, Part
from edge_sdk.simulation.runs.node_envs import Envs

Written = dict[str, Any]


class Judges:
    """What the judging clients of one rank have said last, by name.

    Args:
        models: folder for their models; None: these are not kept.
    """

    def __init__(self, envs: Envs, models: Path | None = None) -> None:
        self.envs, self.models = envs, models
        self.written: dict[str, Written] = {}

    def note(self, name: str, hospital: str, worked: Worked) -> None:
        """Takes what a client has told its application, if that are its last scores and models."""
        if not worked.told:
            return
        scores = next((m for m in worked.told if isinstance(m, Scores)), None)
        models = next((m for m in worked.told if isinstance(m, Models)), None)
        if scores is not None and models is not None:
            self.written[name] = self.describe(name, hospital, scores.sums, models)
            if self.models is not None:
                self.keep(self.models / f"{name}.npz", name, models, scores.sums)

    def keep(self, path: Path, name: str, found: Models, sums: Mapping[str, float]) -> None:
        """Writes a client's models and scores as its device would keep them."""
        bundle = self.envs.model(name, "device").sha256
        classes = self.envs.prepared.run.classes
        save(path, KeptModels(found.models, sums, True, found.ensemble, classes, bundle))

    def describe(self, name: str, hospital: str, sums: Mapping[str, float], found: Models) -> Written:
        """The object that `nodes.device_service` writes, as far as it makes sense here."""
        data, classes = self.envs.prepared.population.data(name), self.envs.prepared.run.classes
        apart = data.validation is not None
        labels = count_labels(self.envs.prepared.task, data.train[1], classes)
        return {
            "device": name,
            "hospital": hospital,
            "samples": len(data.train[1]),
            "validation": None if data.validation is None else len(data.validation[1]),
            "held_out": len(data.truths.get("test", data.held_out)[1]),
            "classes": len(labels),
            "labels": labels,
            "accuracy": compute_accuracies(sums_on_test(sums) if apart else sums),
            "validation_accuracy": compute_accuracies(sums_on_validation(sums)) if apart else {},
            **self.judge(name, data, found),
            "alone": [],
            "density": measure_density(found.models),
        }

    def judge(self, name: str, data: ClientData, found: Models) -> dict[str, Any]:
        """Part -> model -> "confusion", a matrix of classes; of other tasks "sums" of scores."""
        model, count = self.envs.model(name, "device"), len(self.envs.prepared.run.classes)
        parts = data.judged_parts()
        if self.envs.prepared.task.kind != CLASS:
            return {"confusion": {}, "sums": judge_models(model, found.models, data.train[1], parts, found.ensemble)}
        if not model.classes or isinstance(model, SplitModel):
            return {"confusion": {}}
        matrices = {
            part: {which: matrix(model, found, which, samples, count) for which in found.models}
            for part, samples in parts.items()
        }
        return {"confusion": matrices}


def count_labels(task: ModelTask, y: npt.NDArray[Any], names: Sequence[str]) -> dict[str, int]:
    """Class, or set of labels, -> how many samples, or steps, have it; of numbers nothing is counted.

    Args:
        y: what a network is trained with.
        names: of the run's classes or labels.
    """
    if (y.ndim > 1 and not task.histograms) or not task.needs_labels:
        return {}
    if isinstance(task, StepClasses):
        return {name: int(n) for name, n in zip(task.names, y.sum((0, 2)).tolist(), strict=True) if n}
    rows, counts = np.unique(y, axis=0, return_counts=True)
    texts = [names[row] if y.ndim == 1 else task.write(frozenset(np.array(names)[row > 0])) for row in rows]
    return {text: int(n) for text, n in zip(texts, counts, strict=True)}


def matrix(model: Model, found: Models, which: str, samples: Part, classes: int) -> list[list[int]]:
    """Entry [i][j]: samples of class i that a model takes for j."""
    guessed = predicted(model, found.models, found.ensemble if which in ENSEMBLE else None, which, samples[0], classes)
    return np.asarray(confusion(samples[1], guessed, classes)).tolist()  # type: ignore[no-any-return]


def predicted(
    model: Model, models: Mapping[str, Vector], ensemble: Ensemble | None, which: str, x: npt.NDArray[Any], classes: int
) -> npt.NDArray[np.int64]:
    """Classes (N,) that a device would predict with a model; see `nodes.device.Device.log_probabilities`."""
    own = model.predict(models[which], x)[:, :classes]
    if ensemble is not None and which == "local":
        own = log_probabilities(own, ensemble.classes)
    elif ensemble is not None:
        own = combined(
            ensemble, own, lambda: model.predict(models["local"], x)[:, :classes], lambda: features_of(model.samples(x))
        )
    return np.asarray(own.argmax(1), np.int64)
