"""A device's own labelled samples. They never leave it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from edge_sdk.errors import UsageError
from edge_sdk.traces import read_trace, split, windows


@dataclass(frozen=True)
class Samples:
    """Inputs with the names of their classes.

    Attributes:
        x: float32 (N, ...), one row for each sample.
        labels: N names.
    """

    x: npt.NDArray[np.float32]
    labels: tuple[str, ...]

    def __post_init__(self) -> None:
        if self.x.dtype != np.float32 or self.x.ndim < 2:
            raise UsageError(f"samples: x is {self.x.dtype} {self.x.shape}, expected float32 (N, ...)")
        if len(self.labels) != len(self.x):
            raise UsageError(f"samples: {len(self.x)} rows but {len(self.labels)} labels")
        if not np.isfinite(self.x).all():
            row = int(np.argwhere(~np.isfinite(self.x))[0][0])
            raise UsageError(f"samples: row {row} has a value that is not finite")

    def __len__(self) -> int:
        return len(self.x)


@dataclass(frozen=True)
class Cut:
    """How a recorded trace becomes samples: the [data] table of a device's settings.

    Attributes:
        trace: CSV file.
        label: name of its label column.
        window, stride: in samples.
        gap: seconds without a sample after which a new recording starts.
        held_out: share of the windows, by whole recordings, that is kept for judging the model.
    """

    trace: Path
    label: str = "activity"
    window: int = 64
    stride: int = 32
    gap: float = 0.5
    held_out: float = 0.3

    def __post_init__(self) -> None:
        if self.window < 1 or self.stride < 1:
            raise UsageError(f"window = {self.window}, stride = {self.stride}: at least 1 sample each")
        if not 0 < self.held_out < 1:
            raise UsageError(f"held_out = {self.held_out}, it is a share between 0 and 1")
        if not self.gap > 0:
            raise UsageError(f"gap = {self.gap}, it is in seconds and above 0")


def samples_of(cut: Cut) -> tuple[Samples, Samples]:
    """The training and the held-out samples of a trace.

    Raises:
        UsageError: the trace cannot be read, or is too short for one window in each part.
    """
    cuts = windows(read_trace(cut.trace, label=cut.label), window=cut.window, stride=cut.stride, gap=cut.gap)
    train, test = split(cuts, held_out=cut.held_out)
    return labelled(train.x, train.y, train.classes), labelled(test.x, test.y, test.classes)


def labelled(x: npt.NDArray[np.float32], codes: npt.NDArray[np.integer], classes: Sequence[str]) -> Samples:
    return Samples(np.ascontiguousarray(x, np.float32), tuple(classes[int(c)] for c in codes))
