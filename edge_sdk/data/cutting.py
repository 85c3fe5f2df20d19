"""Samples from a recorded trace: its windows, those of each part, and what their labels are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from edge_sdk.data.cut import Cut
from edge_sdk.data.live.resample import is_same_rate
from edge_sdk.data.samples import Normalise, Samples, SplitSamples, label_samples, read_labels
from edge_sdk.data.steps import cut_step_windows, cut_value_steps, step_texts
from edge_sdk.data.traces.abnormal import cut_all_windows, split_normal
from edge_sdk.data.traces.rates import resample_trace
from edge_sdk.data.traces.read import Trace, read_stated, stated
from edge_sdk.data.traces.split import split, split_off_validation
from edge_sdk.data.traces.unlabelled import keep_labelled
from edge_sdk.data.traces.windows import Windows, cut_windows
from edge_sdk.errors import UsageError


def cut_trace(data: Cut) -> tuple[Trace, Windows]:
    """A trace and all its windows."""
    columns, labels = data.channels or None, not data.target and data.abnormal != ()
    said = stated(data.label, columns, data.strict, data.label_missing, data.separator, data.target, labels)
    trace = read_stated(Path(data.trace), said, classes=data.classes)
    if data.rate_hz and data.strict and not is_same_rate(trace.rate_hz, data.rate_hz):
        raise UsageError(
            f"{data.trace}: {trace.rate_hz:.4g} Hz, not {data.rate_hz:.4g}; without strict it is resampled"
        )
    trace = resample_trace(trace, data.rate_hz) if data.rate_hz else trace
    if data.abnormal is not None:
        return trace, cut_all_windows(trace, data.window, data.stride, data.gap, data.abnormal)
    if data.steps and data.target:
        cuts = cut_value_steps(trace, data.window, data.stride, data.gap, data.steps, data.target)
        return trace, cuts
    if data.steps:
        return trace, cut_step_windows(trace, data.window, data.stride, data.gap, data.steps)
    return trace, cut_windows(trace, window=data.window, stride=data.stride, gap=data.gap, target=data.target)


def cut_samples(data: Cut, normalise: Normalise | None = None) -> SplitSamples:
    """Cuts a trace into samples, and splits them."""
    trace, cuts = cut_trace(data)
    train, test, chosen = cut_windows_of(trace, cuts, data, normalise)
    inputs = tuple(name for name in trace.channels if name not in data.target)
    parts = as_samples(train), as_samples(test), None if chosen is None else as_samples(chosen)
    return SplitSamples(*parts, trace.told, inputs, trace.rate_hz)


def cut_parts(data: Cut, normalise: Normalise | None = None) -> tuple[Windows, Windows, Windows | None]:
    """Cuts a trace into windows; returns those to train on, those held out, and those for validation (None: there is
    no such part)."""
    return cut_windows_of(*cut_trace(data), data, normalise)


def cut_windows_of(
    trace: Trace, cuts: Windows, data: Cut, normalise: Normalise | None
) -> tuple[Windows, Windows, Windows | None]:
    """The windows that `cut_parts` returns, of a trace that has been read and all its windows."""
    cuts = cuts if normalise is None else replace(cuts, x=normalise(cuts.x))
    train, test, chosen = three_parts(cuts, data)
    known = round(data.labelled * trace.rate_hz)
    own = labelled_part(train, known, data.asked)
    return own, test, None if chosen is None else keep_labelled(chosen, known)


def three_parts(cuts: Windows, data: Cut) -> tuple[Windows, Windows, Windows | None]:
    """The windows to train on, those held out, and those for validation, labelled in this run or not."""
    if data.abnormal is not None:
        return split_normal(cuts, data.held_out, data.validation)
    train, test = split(cuts, held_out=data.held_out)
    if not data.validation:
        return train, test, None
    train, chosen = split_off_validation(train, data.validation / (1 - data.held_out))
    return train, test, chosen


def labelled_part(train: Windows, samples: int, asked: Sequence[int] = ()) -> Windows:
    """The training windows that have labels: so many samples of each class, and those that begin at samples `asked`.

    Raises:
        UsageError: none has.
    """
    found = keep_labelled(train, samples)
    if not len(found):
        length = train.x.shape[2]
        raise UsageError(f"{train.name}: {samples} labelled samples of each class hold no window of {length}")
    return train.take(np.isin(train.first, found.first) | np.isin(train.first, asked)) if len(asked) else found


def as_samples(windows: Windows) -> Samples:
    """The windows with the names of their classes, those of their steps, or with their values."""
    if windows.in_steps:
        return Samples(np.ascontiguousarray(windows.x, np.float32), step_texts(windows.y, windows.classes))
    if windows.in_values:
        rows = windows.y.reshape(len(windows), -1)  # of steps value by value, each along time
        return Samples(np.ascontiguousarray(windows.x, np.float32), read_labels(rows))
    return label_samples(windows.x, windows.y, windows.classes)
