"""Which parts of a run take a bundle that predicts something else than one class; others refuse it beforehand."""

from __future__ import annotations

from edge_sdk.contract.run import Run
from edge_sdk.errors import UsageError
from edge_sdk.model.bundle import Bundle
from edge_sdk.model.tasks.task import OneClass, OutputTask
from edge_sdk.model.tasks.task_protocol import LABELS, MOVED, STEP_VALUES, VALUE

MOST_LABELS = 62
"""Labels whose sets devices give their own windows: a set is a whole number of 64 bits with a sign."""
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
    if why := find_reason(run, kernels, task):
        raise UsageError(f"task {task.kind}: {why}; bundle {name} predicts {task.in_words(run.classes)}")
    if not task.fits(run.classes):
        given = ", ".join(run.classes) or "none"
        raise UsageError(f"task {task.kind}: run {run.id} is for {given}, but bundle {name} predicts {task.in_words()}")


def find_reason(run: Run, kernels: str, task: OutputTask) -> str:
    """Why a run is not for a task, as half a sentence; "": it is."""
    if kernels != WHOLE:
        return f"method {run.method} compares or divides outputs of classifiers"
    if run.settle and (why := find_reason_against_settling(run, task)):
        return why
    if run.uploads.get("secret") and not task.histograms:  # of counts, which secret sums have places for
        return "secret sums have no place for errors among their scores; leave uploads.secret out"
    if run.augment and not task.augments:
        return "a changed window would be compared with itself as it was; leave run.augment out"
    if run.augment.get("shift") and task.steps:
        return MOVED
    return ""


def find_reason_against_settling(run: Run, task: OutputTask) -> str:
    """Why devices cannot settle on models for a task, as half a sentence; "": they can."""
    if run.settle.get("trees"):
        return "run.settle: forests tell classes apart; leave trees out"
    if run.settle.get("label_times") and (why := find_reason_against_labels(run, task)):
        return f"run.settle: {why}"
    if run.privacy:
        return "run.settle: no noise is reckoned for shares of samples; leave run.settle or run.privacy out"
    if not task.settles:
        if task.kind in (VALUE, STEP_VALUES):
            return "run.settle chooses by errors as shares of ranges, and there are none: compile with --range"
        return "run.settle chooses by right and wrong outputs, and there are none; leave it out"
    return ""


def find_reason_against_labels(run: Run, task: OutputTask) -> str:
    """Why devices cannot label their own windows, as half a sentence; "": they can."""
    if task.kind != LABELS or task.outputs > MOST_LABELS:
        few = f"; sets of up to {MOST_LABELS} labels could be" if task.kind == LABELS else ""
        return f"nothing says how sure a device is of such outputs, so it cannot label its own windows{few}"
    if tuple(run.settle.get("label_weights", ())) != (0.0,):
        return "sets of labels are given by the shared model alone, without a forest: set label_weights = [0]"
    return ""
