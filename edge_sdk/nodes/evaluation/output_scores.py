"""A device's judgement of models that predict values or sets of labels, when a run is over: sums on its own samples.

Sums are as the task's `judged` has them, with "samples" beside them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from edge_sdk.algebra.ensemble import Ensemble, mixed
from edge_sdk.algebra.metrics.regression import MEAN
from edge_sdk.algebra.vectors import Vector
from edge_sdk.contract.method import NodeEnv
from edge_sdk.contract.run import Run
from edge_sdk.data.samples import Samples
from edge_sdk.methods.standardising.equations import by_itself, placed
from edge_sdk.model.model import Model
from edge_sdk.model.tasks.task import OneClass, OutputTask
from edge_sdk.nodes.device.participant import Participant
from edge_sdk.nodes.evaluation.local_baseline import OPTIMISERS, step_grid, train_in_steps
from edge_sdk.nodes.kernels.labels import kept

Sums = dict[str, float]
Targets = npt.NDArray[Any]
"""What a network is trained with, (N, K)."""
Part = tuple[npt.NDArray[Any], npt.NDArray[Any]]
"""Inputs (N, ...), and what models are judged by on them: `truths` of the task."""
Told = Callable[[int, int], None]
"""Called with the steps that are done, and how many there are."""
LOCAL = "local"
"""A network trained alone."""


def judge_outputs(device: Participant, run: Run) -> dict[str, dict[str, Sums]]:
    """Sums of scores of the models that a device has kept of a run, and of what says the same of each sample.

    Returns:
        "test" and, where the device has such a part, "validation" -> model -> sums.
    """
    assert device.train is not None
    parts = dict[str, Part]()
    for part, samples in (("test", device.held_out), ("validation", device.validation)):
        if samples is not None:
            parts[part] = judged_part(device, run, samples)
    train = device.codes(device.select_listed(device.train, run, "training"), run)
    return judge_models(device.model, device.kept.models, train, parts, device.kept.ensemble)


def judge_models(
    model: Model,
    models: Mapping[str, Vector],
    train: Targets,
    parts: Mapping[str, Part],
    ensemble: Ensemble | None = None,
) -> dict[str, dict[str, Sums]]:
    """Sums of scores of models, and of what says the same of each sample.

    Args:
        model: their graphs, which predict no classes.
        train: targets (N, K) of the training samples, of which that is learned.
        parts: name -> samples to judge by; of one without any there are no sums. What the task learns to judge with,
            it learns of the part "validation".
        ensemble: how the personal model predicts, together with "local"; None: alone.

    Returns:
        Part -> model -> sums.
    """
    task, found, limits = output_task(model), dict[str, dict[str, Sums]](), dict[str, float | None]()
    mean = task.baseline(train)
    for part in sorted(parts, key=lambda name: name != "validation"):
        x, y = parts[part]
        if len(y):
            outputs = {name: model.predict(theta, x) for name, theta in models.items()}
            if ensemble is not None:
                outputs["personal"] = mixed(ensemble, outputs["personal"], partial(outputs.__getitem__, LOCAL))
            outputs[MEAN] = np.repeat(mean, len(y), 0)
            if part == "validation":
                limits = {name: task.limit_of(y, z) for name, z in outputs.items()}
            found[part] = {name: counted(task, y, z, limits.get(name)) for name, z in outputs.items()}
    return found


def judge_outputs_alone(device: Participant, run: Run, told: Told) -> dict[str, Sums]:
    """Sums of scores of a network that the device has trained alone, as `judge_training_alone` has them."""
    assert device.held_out is not None and device.validation is not None
    env = replace(device.env(run, cancellable=False), me=device.name)
    chosen, test = (judged_part(device, run, part) for part in (device.validation, device.held_out))
    return judge_training_alone(env, run, device.model, chosen, test, told)


def judge_training_alone(
    env: NodeEnv, run: Run, model: Model, chosen: Part, test: Part, told: Told = lambda done, of: None
) -> dict[str, Sums]:
    """Sums of scores on the parts "test" and "validation" of a network that is trained alone.

    Optimiser and number of steps are those that are best on the validation part, by the task's `badness`: of equals,
    Adam before SGD and fewer steps before more.

    Args:
        env: of the device, with its name.
        chosen: the validation part, one sample or more.
    """
    env, statistics = by_itself(env)
    steps, task, (x, wanted) = step_grid(env, run), output_task(model), chosen
    best: tuple[float, Sums, Sums] | None = None
    for number, optimiser in enumerate(OPTIMISERS):
        tell = partial(tell_steps, told, number, steps[-1])
        for trained in train_in_steps(env, run, optimiser, steps, tell):
            theta = placed(env.layout, trained, statistics)
            outputs = model.predict(theta, x)
            guessed = counted(task, wanted, outputs, limit := task.limit_of(wanted, outputs))
            error = task.badness(guessed)
            if best is None or error < best[0]:
                best = error, counted(task, test[1], model.predict(theta, test[0]), limit), guessed
    assert best is not None
    return {"test": best[1], "validation": best[2]}


def tell_steps(told: Told, before: int, of_each: int, done: int) -> None:
    """Tells progress. `before`: trainings that are over; `of_each`: steps of one."""
    told(before * of_each + done, len(OPTIMISERS) * of_each)


def counted(task: OutputTask, y: Any, outputs: Any, limit: float | None) -> Sums:
    return {"samples": float(len(y)), **task.judged(y, outputs, limit)}


def judged_part(device: Participant, run: Run, samples: Samples) -> Part:
    """The samples that models are judged by when a run is over, and what they are judged by."""
    task = output_task(device.model)
    known = kept(samples, task.judged_by(samples.labels, run.classes))
    return known.x, task.truths(known.labels, run.classes, f"device {device.name}", known.x)


def output_task(model: Model) -> OutputTask:
    """The task of a model that predicts no classes."""
    task = model.task
    assert not isinstance(task, OneClass)
    return task
