"""Windows of fixed length, which a model trains on; none crosses the boundary of a recording."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

from edge_sdk.data.live.resample import INTERVALS
from edge_sdk.data.traces.labels import UNLABELLED
from edge_sdk.data.traces.read import Trace
from edge_sdk.errors import UsageError

SLACK = 1.5
"""Sampling intervals that a gap has at least."""


@dataclass(frozen=True, eq=False)
class Windows:
    """N windows of one trace, in time order.

    Attributes:
        name: of the trace.
        x: float32 (N, c, window), contiguous.
        y: int64 (N,), indices into `classes`; UNLABELLED of a stretch without a label. Of values: float64 (N, K), their
            means over each window, NaN where most of it has none. Of steps: int64 (N, S), a code for each, or float64
            (N, K, S), values of each.
        classes: label names, those of the trace; of values their names.
        recording: int64 (N,), which recording of the trace a window lies in (from 0, in time order).
        first: int64 (N,), index of a window's first sample in the trace.
        end: float64 (N,), time of a window's last sample, seconds since the trace's first: when it has arrived.
        note: what a reader of results must know about how these windows were chosen; "" where there is nothing.
    """

    name: str
    x: npt.NDArray[np.float32]
    y: npt.NDArray[Any]
    classes: tuple[str, ...]
    recording: npt.NDArray[np.int64]
    first: npt.NDArray[np.int64]
    end: npt.NDArray[np.float64]
    note: str = ""

    def __len__(self) -> int:
        return len(self.y)

    @property
    def in_values(self) -> bool:
        """Is each label numbers, rather than the code of a class, or of one for each step?"""
        return self.y.ndim > 1 and not self.in_steps

    @property
    def in_steps(self) -> bool:
        """Is each label the codes of a window's steps?"""
        return self.y.ndim > 1 and self.y.dtype.kind == "i"

    @property
    def codes(self) -> npt.NDArray[np.int64]:
        """int64 (N,): by which a device's windows are divided evenly; those with several numbers are all alike, but
        for those whose values, or the values of whose steps, nobody knows: UNLABELLED."""
        if self.y.ndim == 1:
            return self.y
        known = np.isfinite(self.y).all(1)
        return (
            np.where(known if known.ndim == 1 else known.any(1), 0, UNLABELLED)
            if self.y.dtype.kind == "f"
            else (np.zeros(len(self), np.int64))
        )

    def take(self, chosen: npt.NDArray[np.bool_] | npt.NDArray[np.int64], note: str = "") -> Windows:
        """Copies the chosen windows (a mask or indices)."""
        fields = {name: getattr(self, name)[chosen] for name in ("x", "y", "recording", "first", "end")}
        return replace(self, **fields, note=note or self.note)


def find_recordings(trace: Trace, gap: float = 0.5, by_label: bool = True) -> npt.NDArray[np.int64]:
    """Finds where the sensor was switched off or the activity changed, which is where one recording ends.

    Args:
        trace: n samples.
        gap: seconds; a longer step from one sample to the next starts a new recording. Of a sensor whose samples lie
            further apart, INTERVALS of these do.
        by_label: a change of the activity ends one, too.

    Returns:
        int64 (r, 2): first sample and end (exclusive) of every recording, in time order; together all n samples.
    """
    if not gap > 0:
        raise UsageError(f"gap = {gap}; seconds above 0 are needed, more than one sampling interval")
    new = find_gaps(trace.time, longest_step(trace, gap))
    if by_label:
        new = new | (np.diff(trace.codes) != 0)
    inner = np.flatnonzero(new) + 1
    return np.stack([np.concatenate([[0], inner]), np.concatenate([inner, [len(trace.time)]])], axis=1).astype(np.int64)


def longest_step(trace: Trace, gap: float) -> float:
    """Seconds from one sample to the next that still lie in one recording."""
    return gap if gap * trace.rate_hz > SLACK else INTERVALS / trace.rate_hz


def find_gaps(time: npt.NDArray[np.float64], gap: float) -> npt.NDArray[np.bool_]:
    """Finds the steps, (n - 1,), from one sample to the next that are longer than `gap` seconds, also backwards: the
    sensor was off, or its clock was set."""
    steps = np.diff(time)
    return np.asarray(np.abs(steps, out=steps) > gap)


def cut_windows(
    trace: Trace, window: int = 64, stride: int = 32, gap: float = 0.5, target: Sequence[str] = ()
) -> Windows:
    """Cuts a trace into windows. A recording shorter than `window` gives none; what remains of one is left out.

    Args:
        trace: n samples of c channels.
        window: samples per window.
        stride: samples from the start of a window to the start of the next.
        gap: seconds, see `find_recordings`.
        target: channels that are no input, but the values to be predicted; none: labels are.

    Raises:
        UsageError: a number is out of range, or the trace has no such channel, or no other.
    """
    for name, value in (("window", window), ("stride", stride)):
        if value < 1:
            raise UsageError(f"{name} = {value}; a whole number of samples, 1 or more, is needed")
    inputs, targets = split_channels(trace, target)
    bounds = find_recordings(trace, gap, by_label=not target)
    starts = [list_starts(a, b, window, stride) for a, b in bounds]
    first = np.concatenate(starts)
    return Windows(
        name=trace.name,
        x=copy_windows(trace.values[:, inputs] if target else trace.values, first, window),
        y=mean_known(copy_windows(trace.values[:, targets], first, window)) if target else trace.codes[first],
        classes=tuple(target) or trace.classes,
        recording=np.repeat(np.arange(len(bounds), dtype=np.int64), [len(s) for s in starts]),
        first=first,
        end=trace.time[first + window - 1],
    )


def mean_known(values: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """Means (N, K) of values (N, K, window), over those that are known; NaN where more than half are not."""
    known = np.isfinite(values)
    if known.all():
        return np.asarray(values.mean(2, np.float64))
    count = known.sum(2)
    sums = np.where(known, values, 0).sum(2, np.float64)
    return np.where(2 * count >= values.shape[2], sums / np.maximum(count, 1), np.nan)


def split_channels(trace: Trace, target: Sequence[str]) -> tuple[list[int], list[int]]:
    """Numbers of a trace's channels that are inputs, and of those that are to be predicted.

    Raises:
        UsageError: it has no such channel, or no other.
    """
    if missing := [name for name in target if name not in trace.channels]:
        there = ", ".join(trace.channels)
        raise UsageError(f"{trace.name}: no column of numbers {missing[0]!r} to be predicted; there are {there}")
    targets = [trace.channels.index(name) for name in target]
    inputs = [n for n in range(len(trace.channels)) if n not in targets]
    if not inputs:
        raise UsageError(f"{trace.name}: no channel beside {', '.join(target)}, of which these could be predicted")
    return inputs, targets


def list_starts(begin: int, end: int, window: int, stride: int) -> npt.NDArray[np.int64]:
    """First samples of the windows between two samples, every `stride`; what remains at the end is left out."""
    return np.arange(begin, end - window + 1, stride, dtype=np.int64)


def copy_windows(values: npt.NDArray[np.float32], first: npt.NDArray[np.int64], window: int) -> npt.NDArray[np.float32]:
    """Copies the windows that begin at samples `first` (N,), float32 (N, c, window).

    The view costs nothing; only the windows that are wanted are copied.
    """
    if not len(first):
        return np.empty((0, values.shape[1], window), np.float32)
    return np.ascontiguousarray(sliding_window_view(values, window, axis=0)[first])
