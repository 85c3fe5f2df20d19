"""The task of forecasting a signal: a window's last values, from those before them.

A sample is a whole window, as everywhere; the network sees its beginning, because the compiler puts it behind a cut
(models/bundle/ahead.py), and is trained with its end. So recordings need no label, and a window whose end comes as
nobody expects it is an anomaly, as one that cannot be reconstructed is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edge_sdk.errors import UsageError
from edge_sdk.model.tasks.reconstruction import Reconstruction
from edge_sdk.model.tasks.task_protocol import FORECAST, Array


@dataclass(frozen=True)
class Forecast(Reconstruction):
    """The last values of a window along time, its last axis. All else is as of `Reconstruction`.

    Attributes:
        horizon: how many of them, of each channel.
    """

    kind = FORECAST

    horizon: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if type(self.horizon) is not int or self.horizon < 1:
            raise UsageError(f"task {FORECAST}: horizon = {self.horizon!r}, expected a number of values above 0")

    def output_of(self, shape: Sequence[int]) -> tuple[int, ...]:
        if len(shape) < 1 or shape[-1] <= self.horizon:
            raise UsageError(f"task {FORECAST}: a window of shape {tuple(shape)} has no values before the last "
                             f"{self.horizon}")  # fmt: skip
        return (*shape[:-1], self.horizon)

    def part(self, x: Array) -> Array:
        return x[..., -self.horizon :]

    def before(self, x: Array) -> Array:
        """What the network sees of windows (N, ..., T): (N, ..., T - horizon)."""
        return x[..., : -self.horizon]

    def seen(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Shape of what the network sees of a window of this shape. UsageError: it sees nothing."""
        self.output_of(shape)
        return (*shape[:-1], shape[-1] - self.horizon)

    def shifted(self, x: Array) -> Array:
        """Windows (N, ..., T) whose unseen end lies after the end of windows x: a model forecasts it."""
        return np.concatenate([x[..., self.horizon :], np.zeros_like(self.part(x))], -1)

    def variances(self, x: Array) -> dict[str, float]:
        """None: about its own mean, which lies in the future, an end varies less than the best forecast of it errs."""
        return {}

    def in_words(self, names: Sequence[str] = ()) -> str:
        return f"the last {self.horizon} values of a window{self.alarms_in_words(names)}"

    def entry(self) -> dict[str, Any]:
        return {**super().entry(), "horizon": self.horizon}

    def identity(self, names: Sequence[str]) -> tuple[str, ...]:
        return (FORECAST, str(self.horizon))


def read_forecast(entry: Mapping[str, Any], output: Sequence[int], input: Sequence[int]) -> Forecast:
    """The task that an entry of a manifest says. UsageError: it is wrong, or the output is no end of the input."""
    if set(entry) != {"kind", "quantile", "horizon"}:
        raise UsageError(f"task = {str(entry)[:80]}: expected kind = {FORECAST!r}, quantile and horizon")
    found = Forecast(entry["quantile"], entry["horizon"])
    if tuple(output) != found.output_of(input):
        shapes = f"the input is {tuple(input)} per sample and the output {tuple(output)}"
        raise UsageError(f"task {FORECAST}: {shapes}; expected {found.output_of(input)}")
    return found
