"""A device's judgement of models that predict something else than one class, when a run is over: sums on its samples.

Sums are as the task's `judged` has them, with "samples" beside them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from edge_sdk.algebra.metrics.regression import MEAN
from edge_sdk.contract.run import Run
from edge_sdk.data.samples import Samples
from edge_sdk.methods.standardising.equations import by_itself, placed
from edge_sdk.model.tasks.task import OneClass, OutputTask
from edge_sdk.nodes.device.participant import Participant
from edge_sdk.nodes.evaluation.local_baseline import OPTIMISERS, step_grid, train_in_steps
from edge_sdk.nodes.kernels.labels import kept

Sums = dict[str, float]
Told = Callable[[int, int], None]
"""Called with the steps that are done, and how many there are."""
LOCAL = "local"
"""A network trained alone."""


def judge_outputs(device: Participant, run: Run) -> dict[str, dict[str, Sums]]:
    """Sums of scores of the models that a device has kept of a run, and of what says the same of each sample.

    Returns:
        "test" and, where the device has such a part, "validation" -> model -> sums.
    """
    task, found, limits = task_of(device), dict[str, dict[str, Sums]](), dict[str, float | None]()
    assert device.train is not None
    mean = task.baseline(device.codes(device.select_listed(device.train, run, "training"), run))
    for part, samples in (("validation", device.validation), ("test", device.held_out)):
        if samples is not None and len(samples := select_judged(device, run, samples)):
            y = truths_of(device, run, samples)
            outputs = {n: device.model.predict(theta, samples.x) for n, theta in device.kept.models.items()}
            outputs[MEAN] = np.repeat(mean, len(y), 0)
            if part == "validation":
                limits = {name: task.limit_of(y, z) for name, z in outputs.items()}
            found[part] = {name: counted(task, y, z, limits.get(name)) for name, z in outputs.items()}
    return found


def judge_outputs_alone(device: Participant, run: Run, told: Told) -> dict[str, Sums]:
    """Sums of scores on the parts "test" and "validation" of a network that the device has trained alone.

    Optimiser and number of steps are those that are best on its validation part, by the task's `badness`: of equals,
    Adam before SGD and fewer steps before more.
    """
    assert device.train is not None and device.held_out is not None and device.validation is not None
    env, statistics = by_itself(replace(device.env(run, cancellable=False), me=device.name))
    steps, task = step_grid(env, run), task_of(device)
    chosen, test = (select_judged(device, run, part) for part in (device.validation, device.held_out))
    wanted, y = truths_of(device, run, chosen), truths_of(device, run, test)
    best: tuple[float, Sums, Sums] | None = None
    for number, optimiser in enumerate(OPTIMISERS):
        tell = partial(tell_steps, told, number, steps[-1])
        for trained in train_in_steps(env, run, optimiser, steps, tell):
            theta = placed(env.layout, trained, statistics)
            outputs = device.model.predict(theta, chosen.x)
            guessed = counted(task, wanted, outputs, limit := task.limit_of(wanted, outputs))
            error = task.badness(guessed)
            if best is None or error < best[0]:
                best = error, counted(task, y, device.model.predict(theta, test.x), limit), guessed
    assert best is not None
    return {"test": best[1], "validation": best[2]}


def tell_steps(told: Told, before: int, of_each: int, done: int) -> None:
    """Tells progress. `before`: trainings that are over; `of_each`: steps of one."""
    told(before * of_each + done, len(OPTIMISERS) * of_each)


def counted(task: OutputTask, y: Any, outputs: Any, limit: float | None) -> Sums:
    return {"samples": float(len(y)), **task.judged(y, outputs, limit)}


def select_judged(device: Participant, run: Run, samples: Samples) -> Samples:
    """The samples that models are judged by."""
    return kept(samples, task_of(device).judged_by(samples.labels, run.classes))


def truths_of(device: Participant, run: Run, samples: Samples) -> Any:
    """What models are judged by on these samples."""
    return task_of(device).truths(samples.labels, run.classes, f"device {device.name}", samples.x)


def task_of(device: Participant) -> OutputTask:
    """The task of a device whose model predicts no classes."""
    task = device.model.task
    assert not isinstance(task, OneClass)
    return task
