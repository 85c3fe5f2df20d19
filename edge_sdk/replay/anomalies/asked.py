"""What a command line and the data say of windows that are to be reconstructed or forecast, of what is abnormal, and of
tasks of other packages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from edge_sdk.data.traces.labels import is_missing
from edge_sdk.data.traces.windows import Windows
from edge_sdk.errors import UsageError
from edge_sdk.label_names import NORMAL, label_key
from edge_sdk.model.tasks.forecast import Forecast
from edge_sdk.model.tasks.plugged import PluggedTask, find_plugged
from edge_sdk.model.tasks.reconstruction import USUAL_QUANTILE, Reconstruction
from edge_sdk.model.tasks.signal_spec import SignalSpec
from edge_sdk.model.tasks.task import CLASS, LABELS, STEP_VALUES, STEPS, VALUE
from edge_sdk.model.tasks.task_protocol import FORECAST, RECONSTRUCTION
from edge_sdk.replay.values.asked import words

QUARTER = 4
EIGHTH = 8


@dataclass(frozen=True, kw_only=True)
class AskedTask:
    """What is said of a reconstruction, a forecast, classes of steps or a task of another package, among the options of
    data.

    Attributes:
        task: "reconstruction", "forecast", "steps", "step_values", another package's NAME:KEY=VALUE;KEY=VALUE, or "": a
            model predicts classes, values or sets of labels.
        abnormal: labels of what is abnormal, with commas between them; "": none is.
        quantile: of errors on a device's validation windows, above which a window is an alarm; None: the bundle's.
        horizon: values at the end of a window that are forecast; None: the bundle's, or a quarter of the window.
        steps: of a window, each of which has a class or values; None: the bundle's, or one for each EIGHTH samples.
    """

    task: str = ""
    abnormal: str = ""
    quantile: float | None = None
    horizon: int | None = None
    steps: int | None = None

    def check_asked(self, others: bool, labels: str = "", target: str = "") -> None:
        """Raises UsageError if these options do not go together.

        Args:
            others: only some windows have labels. labels: names of labels that are to be predicted, too. target: of
                columns that are.
        """
        if self.task in (CLASS, VALUE, LABELS):
            raise UsageError(
                f"--task {self.task}: classes have no option; values have --target, sets of labels --labels"
            )
        if not self.reconstructs and (self.abnormal or self.quantile is not None):
            raise UsageError(f"--abnormal and --quantile are of anomalies: say --task {RECONSTRUCTION} or {FORECAST}")
        if self.horizon is not None and self.task != FORECAST:
            raise UsageError(f"--horizon {self.horizon}: it is of forecasts: say --task {FORECAST}")
        if self.steps is not None and not self.tells_steps:
            said = f"say --task {STEPS}, or with --target --task {STEP_VALUES}"
            raise UsageError(f"--steps {self.steps}: it is of windows with a class or a value at each step: {said}")
        if self.steps is not None and self.steps < 1:
            raise UsageError(f"--steps {self.steps}: expected a number of steps, 1 or more")
        if self.task == STEP_VALUES and labels:
            raise UsageError(f"--task {STEP_VALUES} with --labels {labels}: each step has numbers, those of --target")
        if self.tells_steps and (others or (target and self.task == STEPS)):
            what = "has the class that was said" if self.task == STEPS else "has the values of its column"
            leave = "--target, --labelled" if self.task == STEPS else "--labelled"
            more = f" (values at each step are --task {STEP_VALUES})" if target else ""
            raise UsageError(f"--task {self.task}: each step {what}; leave {leave} and --ask out{more}")
        if self.reconstructs and (others or labels or target):
            raise UsageError(
                f"--task {self.task}: every window counts; leave --target, --labels, --labelled and --ask out"
            )

    @property
    def words(self) -> tuple[str, ...] | None:
        """Labels of what is abnormal; None: neither windows nor their ends are predicted."""
        return words(self.abnormal) if self.reconstructs else None

    @property
    def tells_steps(self) -> bool:
        """Is a class, or are values, of each step of a window to be predicted?"""
        return self.task in (STEPS, STEP_VALUES)

    def steps_of(self, window: int) -> int:
        """Steps of a window of so many samples; 0: it has one label."""
        return 0 if not self.tells_steps else max(1, window // EIGHTH) if self.steps is None else self.steps

    @property
    def reconstructs(self) -> bool:
        """Are windows themselves to be reconstructed, or their ends to be forecast?"""
        return self.task in (RECONSTRUCTION, FORECAST)

    def plugged(self, found: Iterable[str], others: Iterable[str] = ()) -> PluggedTask | None:
        """The task of another package; None: it is another one.

        Args:
            found: all labels in the data; none: they are numbers.
            others: options of other tasks that are given, too.

        Raises:
            UsageError: there is no such task, it takes none of the labels, or an option is of another task.
        """
        if self.reconstructs or self.tells_steps or not self.task:
            return None
        task = find_plugged(self.task)
        if other := next(iter(others), None):
            raise UsageError(f"--{other} with --task {self.task}: the task says itself what it predicts; leave it out")
        there = sorted(label for label in {*found} if not is_missing(label))
        if there and not task.listed(there, task.names).any():
            raise UsageError(f"--task {self.task}: it takes none of the labels in the data: {', '.join(there)}")
        return task

    def reconstruction(self, found: Iterable[str], length: int) -> Reconstruction | None:
        """The task; None: it is another one.

        Args:
            found: all labels in the data.
            length: of a window along time; 0: samples have no time.

        Raises:
            UsageError: what is called abnormal is no label of the data, a name is used twice, or there is nothing to
                forecast.
        """
        if not self.reconstructs:
            return None
        there = sorted(label for label in {*found} if not is_missing(label))
        keys, names = {label_key(label) for label in there}, self.words or ()
        if strange := next((name for name in names if label_key(name) not in keys), None):
            raise UsageError(f"--abnormal {strange}: no such label; the data have {', '.join(there) or 'none'}")
        if len({label_key(name) for name in (NORMAL, *names)}) <= len(names):
            raise UsageError(f"--abnormal {self.abnormal}: each name once, and none of them {NORMAL!r}")
        quantile = USUAL_QUANTILE if self.quantile is None else self.quantile
        return Reconstruction(quantile) if self.task == RECONSTRUCTION else self.forecast(quantile, length)

    def forecast(self, quantile: float, length: int) -> Forecast:
        """The forecast of the end of windows of this length. UsageError: they have no time, or are too short."""
        if length < 2:
            raise UsageError(f"--task {FORECAST}: samples of windows along time have an end; these have none")
        horizon = max(1, length // QUARTER) if self.horizon is None else self.horizon
        if not 0 < horizon < length:
            raise UsageError(f"--horizon {horizon}: expected 1 to {length - 1}, of windows of {length} values")
        return Forecast(quantile, horizon)


def signal_of(channels: Sequence[str], rate_hz: float, stride: int, trained: Sequence[Windows]) -> SignalSpec:
    """The signal of a network that is compiled for some traces, standardised over their training windows.

    Each trace counts alike: of each channel the mean of the traces' means, and the root of the mean of their squares
    about it.

    Args:
        trained: training windows of each trace.
    """
    moments = np.array([[w.x.mean((0, 2), np.float64), np.square(w.x, dtype=np.float64).mean((0, 2))] for w in trained])
    mean, square = moments.mean(0)
    scale = np.sqrt(np.maximum(square - mean**2, 1e-12))
    numbers = (tuple(float(f"{v:.6g}") for v in values) for values in (mean, scale))
    units = ("",) * len(channels)
    return SignalSpec(tuple(channels), units, rate_hz, trained[0].x.shape[2], stride, *numbers)
