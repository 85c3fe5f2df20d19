"""The way in which a recorded trace becomes windows: what a device's settings and a command line say of it."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from pathlib import Path

from edge_sdk.errors import UsageError
from edge_sdk.label_names import JOIN, check_separator


@dataclass(frozen=True)
class Cut:
    """The way in which a recorded trace becomes samples: the [data] table of a device's settings.

    Attributes:
        trace: CSV file.
        label: name of its label column.
        window, stride: in samples.
        gap: seconds without a sample after which a new recording starts.
        held_out: share of the windows, by whole recordings, that is kept for judging the model.
        validation: share of the windows, by whole recordings, on which choices are made; 0: there are none.
        labelled: seconds of each class that have labels, in the training part and again in the validation part. The
            rest of the training part has none (data/data_table.py), that of the validation part is not used. 0: all.
        asked: first samples of further windows of the training part whose labels are known.
        channels: names of the channel columns, in the order wanted; none: all columns of numbers.
        rate_hz: samples per second, to which a trace of another rate is brought; 0: as it was recorded.
        classes: names of classes, whose spelling labels take that differ in upper and lower case only.
        label_missing: further words in the label column that stand for no label.
        strict: refuse what would be put right when the trace is read.
        separator: what stands between the labels of a set in the label column, "+" where none is stated.
        target: columns of numbers that are to be predicted, in place of labels: their means over each window. They are
            among `channels`, where these are named, and no input.
        abnormal: of a model that reconstructs windows, the labels of what is abnormal, or no names: every window
            counts, labelled or not, and those with a moment of these are only judged by. None: it predicts something
            else.
        steps: of a window, each of which has a class of its own, or with `target` values of its own; 0: a window has
            one label.
    """

    trace: Path
    label: str = "activity"
    window: int = 64
    stride: int = 32
    gap: float = 0.5
    held_out: float = 0.3
    validation: float = 0.0
    labelled: float = 0.0
    asked: tuple[int, ...] = ()
    channels: tuple[str, ...] = ()
    rate_hz: float = 0.0
    classes: tuple[str, ...] = ()
    label_missing: tuple[str, ...] = ()
    strict: bool = False
    separator: str = JOIN
    target: tuple[str, ...] = ()
    abnormal: tuple[str, ...] | None = None
    steps: int = 0

    def __post_init__(self) -> None:
        check_separator(self.separator)
        if self.abnormal is not None and (self.target or self.labelled or self.asked):
            raise UsageError("abnormal: every window counts; leave out target, labelled and asked")
        if self.steps and (self.labelled or self.asked or self.abnormal is not None):
            raise UsageError("steps: each has what was said of it; leave out labelled, asked and abnormal")
        if self.steps < 0 or self.steps > self.window:
            raise UsageError(f"steps = {self.steps}: a window of {self.window} samples has 1 to {self.window}; 0: none")
        if self.window < 1 or self.stride < 1:
            raise UsageError(f"window = {self.window}, stride = {self.stride}: at least 1 sample each")
        if not 0 < self.held_out < 1:
            raise UsageError(f"held_out = {self.held_out}, it is a share between 0 and 1")
        check_shares(self.validation, self.held_out)
        if not 0 <= self.labelled < inf:
            raise UsageError(f"labelled = {self.labelled}, it is in seconds, 0 (all) or more")
        if not 0 <= self.rate_hz < inf:
            raise UsageError(f"rate_hz = {self.rate_hz}, it is in samples per second, 0 (as recorded) or more")
        if not self.gap > 0:
            raise UsageError(f"gap = {self.gap}, it is in seconds and above 0")


def check_shares(validation: float, held_out: float) -> None:
    """Raises UsageError if these shares leave nothing to train on."""
    if not (validation >= 0 and validation + held_out < 1):
        raise UsageError(
            f"validation = {validation}, held_out = {held_out}: shares of 0 or more that leave something to train on"
        )
