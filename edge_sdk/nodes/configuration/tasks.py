"""Which parts of a run take a bundle that predicts values or sets of labels in place of classes; others are refused
before it begins."""

from __future__ import annotations

from collections.abc import Sequence

from edge_sdk.contract.run import Run
from edge_sdk.errors import UsageError
from edge_sdk.label_names import label_key
from edge_sdk.model.bundle import Bundle
from edge_sdk.model.tasks.task import OneClass, OutputTask

WHOLE = "plain"
"""Family of methods whose devices train one whole model on the gradient of its own loss, whatever that is."""


def check_task(run: Run, bundle: Bundle, kernels: str) -> None:
    """Raises UsageError if a run does more with a model's outputs than its task allows.

    Args:
        kernels: family of the run's method.
    """
    task, name = bundle.task, bundle.manifest["name"]
    if isinstance(task, OneClass):
        return
    if why := find_reason(run, kernels, task.histograms > 0):
        raise UsageError(f"task {task.kind}: {why}; bundle {name} predicts {task.in_words(run.classes)}")
    if not has_outputs(task, run.classes):
        given = ", ".join(run.classes) or "none"
        raise UsageError(f"task {task.kind}: run {run.id} is for {given}, but bundle {name} predicts {task.in_words()}")


def has_outputs(task: OutputTask, names: Sequence[str]) -> bool:
    """Are these the names of a task's outputs, in their order? Spellings of one label do not differ."""
    return len(names) == task.outputs and [*map(label_key, task.named(names))] == [*map(label_key, names)]


def find_reason(run: Run, kernels: str, masked: bool) -> str:
    """Why a run is for classes only, as half a sentence; "": it is not.

    Args:
        masked: the task's scores are counts and histograms, which secret sums have places for.
    """
    if kernels != WHOLE:
        return f"method {run.method} compares or divides outputs of classifiers"
    if run.settle:
        return "run.settle chooses by counts of right samples, and labels samples with classes; leave it out"
    if run.uploads.get("secret") and not masked:
        return "secret sums have no place for errors among their scores; leave uploads.secret out"
    return ""
