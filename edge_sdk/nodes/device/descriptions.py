"""What a device says of itself, in words for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from edge_sdk.data.samples import Label
from edge_sdk.model.tasks.task import ModelTask
from edge_sdk.model.tasks.task_protocol import CLASS, LABELS, STEP_VALUES, VALUE


@dataclass(frozen=True)
class RunRefused:
    """An event: this device cannot take part in the run that its hospital offers.

    Attributes:
        why: names the run, and what would have to be otherwise.

    >>> RunRefused("run-1 is for another bundle").why
    'run-1 is for another bundle'
    """

    why: str


def describe_want(listed: int, given: int, held_out: int, least: int, needs_labels: bool = True) -> str:
    """The reason why a device has too little to learn from: of the samples given for that so many have a label of the
    run, others are held out. `needs_labels`: windows without one are of no use."""
    if not needs_labels:
        more = f", {given - listed} are abnormal" if given > listed else ""
        return f"{listed} windows to train on, and {held_out} held out{more}; {least} are needed: go on recording"
    if given and not listed:
        return "no training sample has a label of this run"
    if held_out and not given:
        return (
            f"0 labelled windows to train on, and {held_out} held out; {least} are needed, of other recordings: record "
            "for more than five minutes, or once more, and label that"
        )
    if given or held_out:
        return f"{listed} labelled windows to train on, and {held_out} held out; {least} are needed: label more"
    return f"nothing is labelled yet; {least} labelled windows are needed"


GIVEN = {VALUE: "value", STEP_VALUES: "value", LABELS: "names"}
"""Kind of task -> what its label is called, where that is no activity."""


def describe_labels(task: ModelTask, names: Sequence[str], labels: Sequence[Label]) -> str:
    """The end of such a reason: how labels are given, and which there are none of.

    Args:
        names: of the run. labels: of the samples that the device would train on.
    """
    if not task.needs_labels:
        return ""
    told = f"; labels are given with device.label({GIVEN.get(task.kind, 'activity')}, began, ended), of {quoted(names)}"
    missing = [name for name in names if name not in labels] if task.kind == CLASS and labels else []
    return f"{told}; there is none of {quoted(missing)} yet" if missing else told


def quoted(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names))


def describe_scores(sums: Mapping[str, float]) -> str:
    """A device's own scores for people, e.g. "global 3 of 9 right, personal 7 of 9 right"."""
    from edge_sdk.methods.shared.aggregation.scores import TEST  # which the run has loaded

    right = {name.removesuffix("_correct"): count for name, count in sums.items() if name.endswith("_correct")}

    def count_of(name: str) -> float:
        return sums[TEST + "samples" if name.startswith(TEST) else "samples"]

    return ", ".join(f"{name} {n:.0f} of {count_of(name):.0f} right" for name, n in right.items()) or "no samples"
