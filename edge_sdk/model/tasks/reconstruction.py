"""The task of reconstructing the window itself: its error is an anomaly score, and training needs no label."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from edge_sdk.algebra.metrics import reconstruction
from edge_sdk.algebra.metrics.reconstruction import QUANTILE, RECONSTRUCTION_ERROR, VARIANCE
from edge_sdk.errors import UsageError
from edge_sdk.label_names import NORMAL, label_key
from edge_sdk.model.tasks.task_protocol import RECONSTRUCTION, Array, Floats, Label

USUAL_QUANTILE = 0.99


@dataclass(frozen=True)
class Reconstruction:
    """The window itself. A run's names are "normal" and the labels, if any, of what is abnormal: no model is trained on
    windows that have one of these, and models are judged by them.

    Attributes:
        quantile: of the errors on a device's own validation windows, above which a window is an alarm.
    """

    kind, outputs, histograms, evaluates = RECONSTRUCTION, 1, 0, True
    needs_labels, augments, calibrates, steps, settles = False, False, True, 0, False

    quantile: float = USUAL_QUANTILE

    def __post_init__(self) -> None:
        if type(self.quantile) is not float or not 0 < self.quantile < 1:
            raise UsageError(f"task {self.kind}: quantile = {self.quantile!r}, expected a share between 0 and 1")

    def output_of(self, shape: Sequence[int]) -> tuple[int, ...]:
        return tuple(shape)

    def fits(self, names: Sequence[str]) -> bool:
        return bool(names) and label_key(names[0]) == NORMAL

    def named(self, names: Sequence[str] = ()) -> tuple[str, ...]:
        return tuple(names) or (NORMAL,)

    def in_words(self, names: Sequence[str] = ()) -> str:
        return f"the window itself{self.alarms_in_words(names)}"

    def alarms_in_words(self, names: Sequence[str]) -> str:
        """What an alarm is and what is called abnormal, in brackets."""
        more = f"; abnormal: {', '.join(names[1:])}" if len(names) > 1 else ""
        return f" (alarms above the {self.quantile:g} quantile of errors{more})"

    def entry(self) -> dict[str, Any]:
        return {"kind": self.kind, "quantile": self.quantile}

    def identity(self, names: Sequence[str]) -> tuple[str, ...]:
        return (RECONSTRUCTION,)

    # -- samples

    def part(self, x: Array) -> Array:
        """What a model is to return for windows (N, ...)."""
        return x

    def abnormal(self, labels: Sequence[Label], names: Sequence[str]) -> npt.NDArray[np.bool_]:
        """The samples that somebody calls abnormal, as a mask (N,)."""
        keys = {label_key(name) for name in names[1:]}
        return np.asarray([label_key(str(label)) in keys for label in labels], np.bool_)

    def listed(self, labels: Sequence[Label], names: Sequence[str]) -> npt.NDArray[np.bool_]:
        return ~self.abnormal(labels, names)

    def unlisted(self, labels: Sequence[str], names: Sequence[str]) -> str:
        return f"calls {', '.join(labels)} abnormal"

    def judged_by(self, labels: Sequence[Label], names: Sequence[str]) -> npt.NDArray[np.bool_]:
        return np.ones(len(labels), np.bool_)

    def targets(self, labels: Iterable[Label], names: Sequence[str], where: str, x: Array) -> Array:
        """The samples themselves, or a part of them."""
        return self.part(x)

    def truths(self, labels: Sequence[Label], names: Sequence[str], where: str, x: Array) -> Array:
        """Records (N,): "x", which is to be returned, and whether it is "abnormal"."""
        part = self.part(x)
        found = np.empty(len(x), [("x", x.dtype, part.shape[1:]), ("abnormal", np.bool_)])
        found["x"], found["abnormal"] = part, self.abnormal(labels, names)
        return found

    def write(self, label: Label) -> str:
        if not isinstance(label, str):
            raise UsageError(f"label {label!r:.60}: expected a text, what has happened in these windows")
        return label

    # -- scores

    def counts(self, y: Array, outputs: Floats) -> dict[str, float]:
        return self.variances(y)

    def of_a_device(self, sums: Mapping[str, float]) -> dict[str, float]:
        return {RECONSTRUCTION_ERROR: sums["loss"] / sums["samples"]} if sums["samples"] else {}

    def evaluate(self, y: Array, outputs: Floats, losses: Floats) -> dict[str, float]:
        sums = {"samples": float(len(y)), "loss": float(losses.sum()), **self.counts(y, outputs)}
        return {**sums, **self.of_a_device(sums), QUANTILE: float(np.quantile(losses, self.quantile))}

    def limit_of(self, y: Array, outputs: Floats) -> float | None:
        """The threshold that a device's validation windows make."""
        errors = reconstruction.window_errors(y["x"], outputs)
        return reconstruction.threshold_of(errors[~y["abnormal"]], self.quantile)

    def judged(self, y: Array, outputs: Floats, limit: float | None = None) -> dict[str, float]:
        return self.judged_scores(y, reconstruction.window_errors(y["x"], outputs), limit)

    def judged_scores(self, y: Array, errors: Floats, limit: float | None) -> dict[str, float]:
        """Sums of windows with scores (N,), see algebra/metrics/reconstruction.py."""
        abnormal = y["abnormal"]
        return {**reconstruction.score_sums(errors, abnormal, limit), **self.variances(y["x"][~abnormal])}

    def variances(self, x: Array) -> dict[str, float]:
        """The sum of what there is to explain in windows x (N, ...)."""
        return {VARIANCE: float(reconstruction.window_variances(x).sum())}

    def shown(self, outputs: Floats, x: Array) -> npt.NDArray[np.float64]:
        """Errors (N, 1)."""
        return reconstruction.window_errors(self.part(x), outputs)[:, None]

    def badness(self, sums: Mapping[str, float]) -> float:
        return sums["error"]

    def credits(self, y: Array, outputs: Floats) -> npt.NDArray[np.float64]:
        raise TypeError("windows have no right ones")

    def baseline(self, y: Array) -> Floats:
        """The mean window."""
        return np.asarray(y.mean(0, keepdims=True, dtype=np.float64))

    def sample_losses(self, labels: Sequence[Label], rows: Floats, where: str) -> npt.NDArray[np.float64]:
        return np.asarray(rows[:, 0], np.float64)

    def fleet_scores(self, sums: Mapping[str, float]) -> dict[str, Any]:
        return {}

    def describe(self, sums: Mapping[str, float]) -> str:
        ending = f"_{RECONSTRUCTION_ERROR}"
        return ", ".join(f"{n.removesuffix(ending)} error {v:.4g}" for n, v in sums.items() if n.endswith(ending))


def read_reconstruction(entry: Mapping[str, Any], output: Sequence[int], input: Sequence[int]) -> Reconstruction:
    """The task that an entry of a manifest says. UsageError: it is wrong, or output and input differ in shape."""
    if set(entry) != {"kind", "quantile"}:
        raise UsageError(f"task = {str(entry)[:80]}: expected kind = {RECONSTRUCTION!r} and quantile")
    if tuple(output) != tuple(input):
        shapes = f"the input is {tuple(input)} per sample and the output {tuple(output)}"
        raise UsageError(f"task {RECONSTRUCTION}: {shapes}; they are of one shape")
    return Reconstruction(entry["quantile"])
