"""The task of predicting numbers at each step of a window: a heart rate, a blood pressure, the angle of a joint."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import nan
from typing import Any

import numpy as np
import numpy.typing as npt

from edge_sdk.algebra.metrics import regression
from edge_sdk.errors import UsageError
from edge_sdk.label_names import STEP_JOIN
from edge_sdk.model.inputs import KNOWN_BELOW, UNKNOWN
from edge_sdk.model.tasks.task_protocol import STEP_VALUES, Array, Floats, Label, check_steps
from edge_sdk.model.tasks.values import Values

Numbers = npt.NDArray[np.float64]
DIGITS = 9
"""Of a value in a text: more than float32 has."""


@dataclass(frozen=True)
class StepValues(Values):
    """One or several numbers at each step of a window, which is divided into steps of equal length.

    A network returns (K, S) of K values at S steps. The label of a window is K * S numbers, value by value and along
    time, NaN where nobody knows; or a text with the numbers of each step, "61.5|62|", nothing for an unknown one, and
    spaces between several. A step of which a number is unknown is not trained on, and nothing is judged by it.
    "samples" of scores are the other steps, and so errors are of all steps together; "loss" is their mean square or
    what else trains the model.

    Attributes:
        steps: of a window.
    """

    steps: int = 1

    def __post_init__(self) -> None:
        check_steps(STEP_VALUES, self.steps)
        super().__post_init__()

    @property
    def kind(self) -> str:
        return STEP_VALUES

    def output_of(self, shape: Sequence[int]) -> tuple[int, ...]:
        return (len(self.units), self.steps)

    def identity(self, names: Sequence[str]) -> tuple[str, ...]:
        return (STEP_VALUES, str(self.steps), *names, *self.units)

    def in_words(self, names: Sequence[str] = ()) -> str:
        return f"{super().in_words(names)} at each of {self.steps} steps"

    def entry(self) -> dict[str, Any]:
        return {**super().entry(), "kind": STEP_VALUES, "steps": self.steps}

    # -- labels

    def along(self, label: Any) -> Numbers | None:
        """The numbers (K, S) of a label, NaN where nobody knows; None: it is of something else."""
        count = len(self.units)
        try:
            if isinstance(label, str):
                parts = label.split(STEP_JOIN) if label else [""] * self.steps
                rows = [[float(word) for word in part.split()] or [nan] * count for part in parts]
                found = np.array(rows, np.float64).T if {*map(len, rows)} == {count} else np.zeros(0)
            else:
                found = np.array(label, np.float64).reshape(count, -1)
        except (TypeError, ValueError):
            return None
        return found if found.shape == (count, self.steps) and not np.isinf(found).any() else None

    def listed(self, labels: Sequence[Label], names: Sequence[str]) -> npt.NDArray[np.bool_]:
        """Samples with a step whose values are known, as a mask (N,)."""
        found = (self.along(label) for label in labels)
        return np.asarray([one is not None and bool(np.isfinite(one).all(0).any()) for one in found], np.bool_)

    def unlisted(self, labels: Sequence[str], names: Sequence[str]) -> str:
        few = ", ".join(f"{label!r:.60}" for label in labels)
        return f"has {self.steps} steps{self.in_units()}, and these labels have other ones, or none: {few}"

    def numbers(self, labels: Iterable[Label], where: str) -> Numbers:
        """Labels as numbers (N, K, S), in the units, NaN where nobody knows. UsageError: one is none."""
        found = list[Numbers]()
        for label in labels:
            if (one := self.along(label)) is None:
                each = f"{len(self.units)} numbers" if len(self.units) > 1 else "a number"
                wanted = f"{each}{self.in_units()} at each of {self.steps} steps"
                raise UsageError(f"{where}: label {label!r:.60}, expected {wanted}, or a text with {STEP_JOIN!r} "
                                 "between them")  # fmt: skip
            found.append(one)
        return np.array(found, np.float64).reshape(len(found), *self.output_of(()))

    def targets(self, labels: Iterable[Label], names: Sequence[str], where: str, x: Array | None = None) -> Array:
        """What the network is trained with, float32 (N, K, S); `UNKNOWN` at steps that do not count."""
        found = self.scaled(self.numbers(labels, where))
        known = np.isfinite(found).all(1, keepdims=True)
        if (large := np.abs(found, where=known, out=np.zeros_like(found)) >= KNOWN_BELOW).any():
            raise UsageError(f"{where}: label {found[large][0]:g}, expected numbers below {KNOWN_BELOW:g}")
        return np.where(known, found, np.float32(UNKNOWN))

    def write(self, label: Label) -> str:
        """The values of a stretch of time. UsageError: they are no finite numbers, or not so many."""
        numbers = Values.read(self, label)
        if numbers is None:
            wanted = "a finite number" if len(self.units) == 1 else f"{len(self.units)} finite numbers"
            raise UsageError(f"label {label!r:.60}: expected {wanted}{self.in_units()} of this time")
        return " ".join(f"{number:.{DIGITS}g}" for number in numbers)

    # -- in the units and out of them

    def scaled(self, numbers: Floats) -> npt.NDArray[np.float32]:
        """Numbers (N, K, S) in the units, as the network has them."""
        return np.moveaxis(super().scaled(np.moveaxis(numbers, 1, 2)), 2, 1)

    def in_unit(self, outputs: Floats) -> Numbers:
        """Outputs (N, K, S) of the network, in the units."""
        return np.moveaxis(super().in_unit(np.moveaxis(outputs, 1, 2)), 2, 1)

    # -- scores

    def known_rows(self, y: Array) -> tuple[Array, npt.NDArray[np.bool_]]:
        """Targets (N * S, K) of all steps, and which of them are known, (N * S,)."""
        rows = np.moveaxis(y, 1, 2).reshape(-1, len(self.units))
        return rows, np.asarray((rows < KNOWN_BELOW).all(1), np.bool_)

    def known_steps(self, y: Array, outputs: Floats) -> tuple[Array, Array]:
        """Targets and outputs (M, K) of the M steps whose values are known."""
        rows, known = self.known_rows(y)
        return rows[known], np.moveaxis(outputs, 1, 2).reshape(rows.shape)[known]

    def counts(self, y: Array, outputs: Floats) -> dict[str, float]:
        rows, z = self.known_steps(y, outputs)
        return {"samples": float(len(rows)), **regression.error_sums(rows, z)}

    def of_a_device(self, sums: Mapping[str, float]) -> dict[str, float]:
        """The loss of steps: that of a window is its mean over all of them."""
        return {"loss": self.steps * sums["loss"]} if "loss" in sums else {}

    def credits(self, y: Array, outputs: Floats) -> Numbers:
        """1 less the mean error of a window's known steps as a share of the range; 0 of a window that has none."""
        known = (y < KNOWN_BELOW).all(1)
        each = 1 - np.minimum(np.abs(outputs - y, dtype=np.float64) / 2, 1).mean(1)
        return np.asarray((each * known).sum(1) / np.maximum(known.sum(1), 1))

    def baseline(self, y: Array) -> Floats:
        """Means (1, K, S) of known steps, the same at each."""
        rows, _ = self.known_steps(y, y)
        mean = rows.mean(0, dtype=np.float64) if len(rows) else np.zeros(len(self.units))
        return np.asarray(np.repeat(mean[None, :, None], self.steps, 2))

    def sample_losses(self, labels: Sequence[Label], rows: Floats, where: str) -> Numbers:
        """The mean of |error| over a window's known steps, in half ranges, (N,). `rows`: values (N, K, S)."""
        errors = np.abs(rows - self.numbers(labels, where)) / self.half[:, None]
        known = np.isfinite(errors).all(1)
        totals = np.where(known, errors.mean(1), 0.0).sum(1)
        return np.asarray(totals / np.maximum(known.sum(1), 1))


def read_step_values(entry: Mapping[str, Any], output: Sequence[int], input: Sequence[int] = ()) -> StepValues:
    """The task that an entry of a manifest says. UsageError: it is wrong, or the output has another shape."""
    if not {"kind", "units", "steps"} <= set(entry) <= {"kind", "units", "steps", "names", "low", "high"}:
        wanted = f"kind = {STEP_VALUES!r}, units, steps, and names, low, high or none"
        raise UsageError(f"task = {str(entry)[:80]}: expected {wanted}")
    low, high = (tuple(float(number) for number in entry.get(name, ())) for name in ("low", "high"))
    found = StepValues(tuple(entry["units"]), tuple(entry.get("names", ())), low, high, entry["steps"])
    if tuple(output) != (wanted_shape := found.output_of(())):
        raise UsageError(f"task {STEP_VALUES}: an output of shape {tuple(output)} per sample; expected {wanted_shape}")
    return found
