"""Scores by which a trial is judged, higher ones better, whatever its models predict; and how people are told of them.

Of classes that is accuracy, of sets of labels macro-F1, of values minus the mean absolute error, in halves of the range
in which each is expected: a mean over values. Of windows that are reconstructed or forecast it is minus their mean
squared error.
"""

from __future__ import annotations

from collections.abc import Mapping

from edge_sdk.methods.shared.evaluation.reports import mean_errors, mean_macro_f1, mean_reconstruction_errors
from edge_sdk.model.tasks.task import Reconstruction, SeveralLabels, Task, Values
from edge_sdk.nodes.daemon.device_result import compute_accuracies

ACCURACY = "accuracy"


def own_scores(sums: Mapping[str, float]) -> dict[str, float]:
    """Model -> score of one device. `sums`: the device's own, as `reports.judge` names them."""
    if f1 := mean_macro_f1(sums):
        return f1
    if squares := mean_reconstruction_errors(sums):
        return {model: -error for model, error in squares.items()}
    errors = mean_errors(sums)
    models = dict.fromkeys(model for means in errors.values() for model in means)
    if models:
        return {model: -sum(means[model] for means in errors.values()) / len(errors) for model in models}
    return compute_accuracies(sums)


def name_of(task: Task) -> str:
    """What the score of a task is called."""
    if isinstance(task, SeveralLabels):
        return "macro-F1"
    if isinstance(task, Reconstruction):
        return "mean squared error"
    return "mean absolute error" if isinstance(task, Values) else ACCURACY


def in_words(task: Task, score: float) -> str:
    """A score for people: a share in percent, or an error in its unit; of several values in halves of their ranges."""
    if not (unit := unit_of(task)):
        return f"{score:.1%}"
    size, name = unit
    return f"{-size * score:.4g} {name}".rstrip()


def unit_of(task: Task) -> tuple[float, str] | tuple[()]:
    """What 1 of an error is for people: a number and its unit, of several values 1 of half the range; of other scores
    nothing."""
    if isinstance(task, Reconstruction):
        return 1.0, ""
    if not isinstance(task, Values):
        return ()
    return (float(task.half[0]), task.units[0]) if len(task.units) == 1 else (1.0, "half ranges")


def score_of_sums(task: Values | SeveralLabels | Reconstruction, sums: Mapping[str, float]) -> float:
    """The score that sums over samples come to, as the task's `judged` has them, with "samples"."""
    badness = task.badness(sums)
    if isinstance(task, Reconstruction):
        return -badness / sums["normal"]
    return -badness / (sums["samples"] * len(task.units)) if isinstance(task, Values) else 1 - badness
