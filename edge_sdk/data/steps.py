"""Windows whose steps have a class or values each: they cross changes of the label, and are divided into equal
steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from edge_sdk.data.traces.labels import UNLABELLED
from edge_sdk.data.traces.read import Trace
from edge_sdk.data.traces.windows import Windows, cut_windows, split_channels
from edge_sdk.errors import UsageError
from edge_sdk.label_names import STEP_JOIN

Codes = npt.NDArray[np.int64]


def step_edges(window: int, steps: int) -> Codes:
    """First sample of each step of a window, and its end: (steps + 1,); steps differ by one sample at most.

    Raises:
        UsageError: the window has fewer samples than steps.
    """
    if not 1 <= steps <= window:
        raise UsageError(f"steps = {steps}: a window of {window} samples has 1 to {window} steps")
    return np.arange(steps + 1, dtype=np.int64) * window // steps


def cut_step_windows(trace: Trace, window: int, stride: int, gap: float, steps: int) -> Windows:
    """Cuts a trace into windows, whatever its labels are; none crosses a pause of the sensor.

    Args:
        window, stride, gap: as of `cut_windows`. steps: of a window.

    Returns:
        Windows of which a step has a label, with y int64 (N, steps): of each step the label that most of its samples
        have, UNLABELLED where more have none than any. Of equally many the first label.

    Raises:
        UsageError: a number is out of range, or no step of any window has a label.
    """
    edges = step_edges(window, steps)
    found = cut_windows(replace(trace, codes=np.zeros_like(trace.codes)), window, stride, gap)
    most, y = np.full((len(found), steps), -1, np.int64), np.full((len(found), steps), UNLABELLED, np.int64)
    for code in (*range(len(trace.classes)), UNLABELLED):
        before = np.concatenate([[0], np.cumsum(trace.codes == code)])
        count = np.diff(before[found.first[:, None] + edges], axis=1)
        y[count > most] = code
        most = np.maximum(most, count)
    known = (y != UNLABELLED).any(1)
    if len(found) and not known.any():
        raise UsageError(f"{trace.name}: none of its {len(found)} windows has a step with a label")
    return replace(found, y=y, classes=trace.classes).take(known)


def cut_value_steps(trace: Trace, window: int, stride: int, gap: float, steps: int, target: Sequence[str]) -> Windows:
    """Cuts a trace into windows, with y float64 (N, K, steps): of each of K columns means over the samples of steps
    that have a number, NaN where more than half have none.

    Args:
        window, stride, gap, target: as of `cut_windows`. steps: of a window.

    Raises:
        UsageError: as of `cut_windows`, or the window has fewer samples than steps.
    """
    edges = step_edges(window, steps)
    found = cut_windows(trace, window, stride, gap, target)
    columns = trace.values[:, split_channels(trace, target)[1]].astype(np.float64)
    known, lengths = np.isfinite(columns), np.diff(edges)[:, None]
    base = np.array([column[one][:1].sum() for column, one in zip(columns.T, known.T, strict=True)])

    def of_steps(values: npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
        sums = np.concatenate([np.zeros((1, len(base))), np.cumsum(values, 0)])
        return np.diff(sums[found.first[:, None] + edges], axis=1)

    count = of_steps(known.astype(np.float64))
    parts = base + of_steps(np.where(known, columns - base, 0.0)) / np.maximum(count, 1)
    parts[2 * count < lengths] = np.nan
    return replace(found, y=np.ascontiguousarray(np.moveaxis(parts, 1, 2)))


def step_texts(y: Codes, classes: Sequence[str]) -> tuple[str, ...]:
    """Codes of classes (N, steps) as labels of windows: "rest|rest|walk", "" for a step without one."""
    names = np.array([*classes, ""], object)  # UNLABELLED, -1, is the last one
    return tuple(STEP_JOIN.join(row) for row in names[y].tolist())
