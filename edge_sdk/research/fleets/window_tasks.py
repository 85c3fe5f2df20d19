"""Arrays of windows without labels, which models reconstruct or forecast, and with a class or values at each step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edge_sdk.data.cut import check_shares
from edge_sdk.data.samples import Label, Samples, SplitSamples
from edge_sdk.errors import UsageError, nearest
from edge_sdk.label_names import STEP_JOIN, label_key
from edge_sdk.model.tasks.task import FORECAST, RECONSTRUCTION, STEP_VALUES, STEPS
from edge_sdk.research.fleets.class_names import array_of, blanked
from edge_sdk.research.fleets.parts import Array, check_lengths, inputs_of, labels_of, split_rows, take

WINDOW_TASKS = (RECONSTRUCTION, FORECAST, STEPS, STEP_VALUES)
OPTIONS: Mapping[str, tuple[str, ...]] = {
    RECONSTRUCTION: ("abnormal", "quantile"),
    FORECAST: ("abnormal", "quantile", "horizon"),
    STEPS: ("labels",),
    STEP_VALUES: ("predict", "unit", "range"),
}
"""Options that each takes."""
UNKNOWN = -1
"""In place of the number of a step's class: nobody knows it."""


@dataclass(frozen=True)
class WindowTask:
    """What windows of arrays are for.

    Attributes:
        kind: one of WINDOW_TASKS.
        held_out, validation: shares of the windows, as `parts_of_arrays` has them.
        labels: names of the classes of steps, in their order; none: those that occur.
        abnormal: labels of what is abnormal: all windows with one are held out.
        values: of each step, in their order; none: one that has no name.
    """

    kind: str
    held_out: float = 0.2
    validation: float = 0.2
    labels: tuple[str, ...] = ()
    abnormal: tuple[str, ...] = ()
    values: tuple[str, ...] = ()

    def parts(self, devices: Mapping[str, Any]) -> dict[str, SplitSamples]:
        """The samples of each device.

        Args:
            devices: name -> x, (x, y) or (x, y, x_test, y_test); y None, or only x, where there are no labels.

        Raises:
            UsageError: an array has another shape or type, or nothing would be left to train on or to be judged by.
        """
        return {str(name): self.part(str(name), listed(arrays)) for name, arrays in devices.items()}

    def part(self, name: str, arrays: Sequence[Any]) -> SplitSamples:
        """The samples of one device."""
        if len(arrays) not in (2, 4):
            wanted = "(x, y) or (x, y, x_test, y_test)" + " or x alone" * (self.kind not in (STEPS, STEP_VALUES))
            raise UsageError(f"device {name}: {len(arrays)} arrays, expected {wanted}")
        check_shares(self.validation, 0.0 if len(arrays) == 4 else self.held_out)
        pairs = [self.read(name, arrays[at], arrays[at + 1]) for at in range(0, len(arrays), 2)]
        (x, labels), strange = pairs[0], self.strange(pairs[0][1])
        own = np.flatnonzero(~strange)
        held_out = 0.0 if len(arrays) == 4 else self.held_out
        train, rest, chosen = (own[rows] for rows in split_rows([""] * len(own), held_out, self.validation))
        if len(pairs) == 2:
            test = Samples(pairs[1][0], tuple(pairs[1][1]))
        else:
            test = take(x, labels, np.sort(np.concatenate([rest, np.flatnonzero(strange)])))
        if not len(train) or not len(test):
            lacks = "to train on" if not len(train) else "held out"
            raise UsageError(f"device {name}: nothing is {lacks} of {len(x)} windows, {int(strange.sum())} abnormal")
        return SplitSamples(take(x, labels, train), test, take(x, labels, chosen) if self.validation else None)

    def strange(self, labels: Sequence[Label]) -> Any:
        """The windows that are called abnormal, as a mask (N,)."""
        keys = {label_key(name) for name in self.abnormal}
        return np.array([label_key(str(label)) in keys for label in labels], np.bool_)

    def read(self, name: str, x: Any, y: Any) -> tuple[Array, list[Label]]:
        """Windows of a device, and the text of each one's label."""
        found = inputs_of(name, x)
        if self.kind != RECONSTRUCTION and found.ndim < 3:
            raise UsageError(
                f"device {name}: x is {found.dtype} {found.shape}; for task {self.kind} expected (N, channels, time)"
            )
        if self.kind in (STEPS, STEP_VALUES):
            labels = (self.steps_of if self.kind == STEPS else self.curves_of)(name, y, found.shape)
        else:
            labels = [""] * len(found) if y is None else labels_of(name, y)
        check_lengths(name, found, labels)
        return found, labels

    def steps_of(self, name: str, y: Any, shape: Sequence[int]) -> list[Label]:
        """Texts with the class of each step of windows."""
        found = blanked(array_of(y))
        if found.ndim != 2 or found.dtype.kind not in "iuUO" or not 0 < found.shape[1] <= shape[-1]:
            wanted = f"({shape[0]}, steps), a class at each of 1 to {shape[-1]} steps of a window"
            raise UsageError(f"device {name}: y is {found.dtype} {found.shape}, expected {wanted}: numbers or texts")
        if found.dtype.kind in "iu":
            most = len(self.labels) if self.labels else np.inf
            if found.min(initial=0) < UNKNOWN or found.max(initial=0) >= most:
                wanted = f"0 to {most - 1} of {', '.join(self.labels)}" if self.labels else "0 or more"
                raise UsageError(
                    f"device {name}: y has {found.min()} to {found.max()}, expected {wanted}, "
                    f"or {UNKNOWN} where nobody knows"
                )
            names = [*(self.labels or (str(k) for k in range(int(found.max(initial=-1)) + 1))), ""]
            found = np.array(names, object)[found]
        elif strange := [one for one in found.ravel().tolist() if not isinstance(one, str)][:1]:
            raise UsageError(f"device {name}: y has {strange[0]!r:.60}, expected texts, or '' where nobody knows")
        return [STEP_JOIN.join(map(str, row)) for row in found.tolist()]

    def curves_of(self, name: str, y: Any, shape: Sequence[int]) -> list[Label]:
        """Numbers of each step of windows, value by value and along time; NaN where nobody knows."""
        count = len(self.values) or 1
        try:
            found = np.asarray(y, np.float64)
        except (TypeError, ValueError):
            found = np.zeros(())
        curves = found[:, None] if found.ndim == 2 and count == 1 else found
        if curves.ndim != 3 or curves.shape[1] != count or not 0 < curves.shape[2] <= shape[-1]:
            each = f"({shape[0]}, {count}, steps)" if count > 1 else f"({shape[0]}, steps)"
            wanted = f"{each}, numbers at each of 1 to {shape[-1]} steps of a window"
            raise UsageError(f"device {name}: y is {np.asarray(y, object).shape}, expected {wanted}")
        if np.isinf(curves).any():
            raise UsageError(f"device {name}: y has infinite numbers; NaN says that nobody knows")
        return [tuple(row) for row in curves.reshape(len(curves), -1).tolist()]


def listed(arrays: Any) -> Sequence[Any]:
    """The arrays of a device, (x, y) or (x, y, x_test, y_test); x alone has no labels."""
    if hasattr(arrays, "__array__"):
        return (arrays, None)
    if isinstance(arrays, (str, bytes)) or not isinstance(arrays, Sequence):
        return ()
    return (arrays[0], None) if len(arrays) == 1 else arrays


def check_window_options(kind: str, given: Mapping[str, Any]) -> None:
    """Raises UsageError for options that a task of windows does not have. `kind`: of the task; "": another one."""
    known = OPTIONS.get(kind, ())
    if strange := next((name for name in given if name not in known), None):
        others = [task for task, names in OPTIONS.items() if strange in names]
        more = f"; it is of task {' or '.join(others)}" if others else nearest(strange, known)
        raise UsageError(f"from_arrays: no option {strange}{f' of task {kind}' if kind else ''}{more}")
