"""A device's judgement of its own models when a run is over: confusion matrices on its own samples.

They stay in the device's result file. A replay reads these files, because there all devices are on one machine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from edge_sdk.algebra.metrics.classification import confusion
from edge_sdk.contract.method import NodeEnv
from edge_sdk.contract.run import Run
from edge_sdk.data.samples import Samples
from edge_sdk.methods.standardising.equations import by_itself, placed
from edge_sdk.model.model import Model
from edge_sdk.model.tasks.task import ModelTask, StepClasses, class_codes
from edge_sdk.nodes.device.participant import Participant
from edge_sdk.nodes.evaluation.local_baseline import OPTIMISERS, step_grid, train_in_steps

Codes = npt.NDArray[np.int64]
Matrix = list[list[int]]
"""Entry [i][j]: samples of class i that were taken for j."""
Told = Callable[[int, int], None]
PredictOwn = Callable[[npt.NDArray[np.float32], npt.NDArray[np.float32]], Codes]
"""Called with the steps that are done, and how many there are."""


class Judge:
    """Judges predictions by one part of a device's samples.

    Args:
        samples: inputs and the names of their classes.
        run: has the classes, in the order of the model's outputs.
        whose: the node, for errors.
    """

    def __init__(self, samples: Samples, run: Run, whose: str) -> None:
        self.x, self.y, self.classes = samples.x, class_codes(samples.labels, run.classes, whose), len(run.classes)

    def matrix(self, guessed: Codes) -> Matrix:
        """The confusion matrix of predicted codes (N,)."""
        found: Matrix = confusion(self.y, guessed, self.classes).tolist()
        return found

    def correct(self, guessed: Codes) -> int:
        """Number of the predicted codes (N,) that are right."""
        return int((guessed == self.y).sum())


def judge_kept_models(device: Participant, run: Run) -> dict[str, dict[str, Matrix]]:
    """Confusion matrices of the models that a device has kept of a run, where it has samples to judge them by.

    Returns:
        "test" and, where the device has such a part, "validation" -> model -> matrix.
    """
    parts = {"test": device.held_out, "validation": device.validation}
    found: dict[str, dict[str, Matrix]] = {}
    for part, samples in parts.items():
        if samples is not None and len(samples := device.select_listed(samples, run, part)):
            judge = Judge(samples, run, f"device {device.name}")
            codes = {name: device.working.log_probabilities(judge.x, name).argmax(1) for name in device.kept.models}
            found[part] = {name: judge.matrix(guessed) for name, guessed in codes.items()}
    return found


def judge_alone(device: Participant, run: Run, told: Told) -> list[dict[str, Any]]:
    """Trains alone in all ways, and judges each; such a model predicts classes that the device has labels of, only.

    Returns:
        For each way "optimiser", "steps", "validation_correct" (how many validation samples it gets right) and, on the
        test part, "test" (confusion matrix) and "accuracy". These two are for the way that is chosen on validation, by
        the device or by all of them, and for nothing else.
    """
    assert device.train is not None and device.held_out is not None and device.validation is not None
    env, whose = replace(device.env(run, cancellable=False), me=device.name), f"device {device.name}"
    train, *rest = (device.select_listed(p, run, "own") for p in (device.train, device.validation, device.held_out))
    validation, test = (Judge(part, run, whose) for part in rest)
    own = np.unique(np.concatenate([class_codes(train.labels, run.classes, whose), validation.y]))

    def predict(theta: npt.NDArray[np.float32], x: npt.NDArray[np.float32]) -> Codes:
        return predict_own(device.model, theta, x, own)

    return [
        trial
        for number in range(len(OPTIMISERS))
        for trial in judge_optimiser(env, run, number, predict, validation, test, told)
    ]


def judge_optimiser(
    env: NodeEnv, run: Run, number: int, predict: PredictOwn, validation: Judge, test: Judge, told: Told
) -> list[dict[str, Any]]:
    """Judges one training alone, with the optimiser of a number, after each number of steps."""
    optimiser = OPTIMISERS[number]
    env, statistics = by_itself(env)
    steps, found = step_grid(env, run), []
    models = train_in_steps(
        env, run, optimiser, steps, lambda done: told(number * steps[-1] + done, len(OPTIMISERS) * steps[-1])
    )
    for done, trained in zip(steps, models, strict=True):
        theta = placed(env.layout, trained, statistics)
        right = validation.correct(predict(theta, validation.x))
        guessed = predict(theta, test.x)
        judged = {"test": test.matrix(guessed), "accuracy": test.correct(guessed) / len(test.y)}
        found.append({"optimiser": optimiser, "steps": done, "validation_correct": right, **judged})
    return found


def predict_own(model: Model, theta: npt.NDArray[np.float32], x: npt.NDArray[np.float32], own: Codes) -> Codes:
    """The most likely of the device's own classes for each input, (N,)."""
    return np.asarray(own[model.predict(theta, x)[:, own].argmax(1)], np.int64)


def count_labels(samples: Samples, task: ModelTask) -> dict[str, int]:
    """Label -> how many samples have it; of steps class -> how many steps."""
    texts = map(str, samples.labels)
    if isinstance(task, StepClasses):
        return dict(sorted(Counter(name for text in texts for name in task.along(text) or () if name).items()))
    return dict(sorted(Counter(texts).items()))
