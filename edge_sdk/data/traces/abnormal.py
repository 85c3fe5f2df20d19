"""Windows that a model is to reconstruct: every one counts, also without a label, and labels say what is abnormal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from edge_sdk.data.traces.read import Trace
from edge_sdk.data.traces.split import split, split_off_validation
from edge_sdk.data.traces.windows import Windows, cut_windows
from edge_sdk.label_names import NORMAL, label_key


def cut_all_windows(trace: Trace, window: int, stride: int, gap: float, abnormal: Sequence[str]) -> Windows:
    """Cuts a trace into windows, whatever its labels are; none crosses a pause of the sensor.

    Args:
        window, stride, gap: as of `cut_windows`.
        abnormal: labels of what is abnormal.

    Returns:
        Windows of the classes NORMAL and those of `abnormal`: where a window has a moment of several, the first of
        these in the list.
    """
    names = [label_key(name) for name in trace.classes]
    found = cut_windows(replace(trace, codes=np.zeros_like(trace.codes)), window, stride, gap)
    y = np.zeros(len(found), np.int64)
    for place, name in reversed([*enumerate(abnormal, 1)]):
        there = np.isin(trace.codes, [code for code, own in enumerate(names) if own == label_key(name)])
        before = np.concatenate([[0], np.cumsum(there)])
        y[before[found.first + window] > before[found.first]] = place
    return replace(found, y=y, classes=(NORMAL, *abnormal))


def split_normal(cuts: Windows, held_out: float, validation: float) -> tuple[Windows, Windows, Windows | None]:
    """Windows to train on, those held out, and those for validation; None: `validation` is 0.

    The normal ones are divided as those of one class are (split.py). All others are held out: nothing is trained on
    them or chosen by them, so models may be judged by all of them.

    Args:
        held_out, validation: shares of the normal windows.

    Raises:
        UsageError: there are too few windows for two parts.
    """
    normal, others = cuts.take(cuts.y == 0), cuts.take(cuts.y > 0)
    train, test = split(normal, held_out=held_out)
    judged = joined(test, others)
    if not validation:
        return train, judged, None
    train, chosen = split_off_validation(train, validation / (1 - held_out))
    return train, judged, chosen


def joined(one: Windows, other: Windows) -> Windows:
    """Windows of one trace in two parts as one, in time order."""
    order = np.argsort(np.concatenate([one.first, other.first]), kind="stable")
    found: dict[str, Any] = {
        name: np.concatenate([getattr(one, name), getattr(other, name)])[order]
        for name in ("x", "y", "recording", "first", "end")
    }
    return replace(one, **found)
