"""The task of predicting one or several numbers for each sample, and the mean absolute error by which they are judged.

A bundle for values says so in its manifest, with their units: its network works on (value - middle) / half of the range
in which they are expected, so that step sizes mean the same whatever the unit, and what is shown to people is in the
unit again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np
import numpy.typing as npt

from edge_sdk.algebra.metrics import regression
from edge_sdk.algebra.metrics.regression import MAE, Errors
from edge_sdk.errors import UsageError
from edge_sdk.model.tasks.signal_spec import TEXT, check_names
from edge_sdk.model.tasks.task_protocol import VALUE, Array, ByTargets, Floats, Label

MOST_VALUES = 16
"""Values that one model predicts, at most: each has scores of its own."""


@dataclass(frozen=True)
class Values(ByTargets):
    """One or several numbers for each sample.

    Attributes:
        units: of each, such as "bpm"; "" where it has none.
        names: of each; empty: whoever has the data names them.
        low, high: between which each is expected, in its unit; empty: the network works on the numbers themselves.
    """

    histograms, evaluates = 0, False

    units: tuple[str, ...]
    names: tuple[str, ...] = ()
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not 0 < len(self.units) <= MOST_VALUES:
            raise UsageError(f"task {self.kind}: {len(self.units)} values, expected 1 to {MOST_VALUES}")
        if any(type(unit) is not str or len(unit) > TEXT or not unit.isprintable() for unit in self.units):
            raise UsageError(f"task {self.kind}: units = {self.units!r:.80}, expected one text for each value")
        if self.names:
            check_names(f"task {self.kind}: names", self.names)
        if len(self.names) not in (0, len(self.units)):
            raise UsageError(f"task {self.kind}: {len(self.names)} names of {len(self.units)} values")
        if len(self.low) not in (0, len(self.units)) or len(self.low) != len(self.high):
            raise UsageError(f"task {self.kind}: {len(self.low)} lower and {len(self.high)} upper ends of ranges")
        if not all(isfinite(a) and isfinite(b) and a < b for a, b in zip(self.low, self.high, strict=True)):
            raise UsageError(f"task {self.kind}: ranges {self.low} to {self.high}: numbers, the lower one first")

    @property
    def kind(self) -> str:
        return VALUE

    @property
    def outputs(self) -> int:
        return len(self.units)

    def identity(self, names: Sequence[str]) -> tuple[str, ...]:
        return (VALUE, *names, *self.units)

    @property
    def middle(self) -> npt.NDArray[np.float64]:
        """(K,), in the units."""
        return np.array([(a + b) / 2 for a, b in zip(self.low, self.high, strict=True)] or [0.0] * len(self.units))

    @property
    def half(self) -> npt.NDArray[np.float64]:
        """Halves of the ranges, (K,), in the units: 1 of what the network predicts."""
        return np.array([(b - a) / 2 for a, b in zip(self.low, self.high, strict=True)] or [1.0] * len(self.units))

    def listed(self, labels: Sequence[Label], names: Sequence[str]) -> npt.NDArray[np.bool_]:
        return np.asarray([self.read(label) is not None for label in labels], np.bool_)

    def targets(self, labels: Iterable[Label], names: Sequence[str], where: str, x: Array | None = None) -> Array:
        """What the network is trained with, float32 (N, K)."""
        return self.scaled(self.numbers(labels, where))

    def numbers(self, labels: Iterable[Label], where: str) -> npt.NDArray[np.float64]:
        """Labels as numbers (N, K), in the units. UsageError: one is none."""
        found = list[tuple[float, ...]]()
        for label in labels:
            if (numbers := self.read(label)) is None:
                wanted = "a finite number" if len(self.units) == 1 else f"{len(self.units)} finite numbers"
                raise UsageError(f"{where}: label {label!r:.60}, expected {wanted}{self.in_units()}")
            found.append(numbers)
        return np.array(found, np.float64).reshape(len(found), len(self.units))

    def read(self, label: Label) -> tuple[float, ...] | None:
        """The numbers of a label; None: it is none of these values. In a text they have spaces between them."""
        parts: Sequence[Any] = (
            label.split() if isinstance(label, str) else label if isinstance(label, tuple) else (label,)
        )
        try:
            numbers = tuple(float(part) for part in parts)
        except (TypeError, ValueError):
            return None
        return numbers if len(numbers) == len(self.units) and all(map(isfinite, numbers)) else None

    def in_units(self) -> str:
        """The units in words, with a space before them: " in bpm"."""
        named = [unit for unit in self.units if unit]
        return f" in {', '.join(named)}" if named else ""

    def in_words(self, names: Sequence[str] = ()) -> str:
        """What is predicted, e.g. "heart_rate (bpm, 40 to 180)"."""
        ranges = [f"{a:g} to {b:g}" for a, b in zip(self.low, self.high, strict=True)] or [""] * len(self.units)
        facts = [", ".join(filter(None, pair)) for pair in zip(self.units, ranges, strict=True)]
        return ", ".join(f"{n} ({fact})" if fact else n for n, fact in zip(self.named(names), facts, strict=True))

    def scaled(self, numbers: Floats) -> npt.NDArray[np.float32]:
        """Numbers (N, K) in the units, as the network has them."""
        return np.asarray((numbers - self.middle) / self.half, np.float32)

    def in_unit(self, outputs: Floats) -> npt.NDArray[np.float64]:
        """Outputs (N, K) of the network, in the units."""
        return np.asarray(self.middle + self.half * outputs.astype(np.float64))

    def write(self, label: Label) -> str:
        return " ".join(map(repr, self.numbers([label], "label()")[0].tolist()))

    def write_along(self, said: Any) -> tuple[str | None, ...]:
        """The values of equal parts of a stretch of time, of an array (n,) or (K, n); NaN: nobody knows."""
        try:
            found = np.array(said, np.float64)
        except (TypeError, ValueError):
            found = np.zeros(())
        count = len(self.units)
        found = found[None] if found.ndim == 1 and count == 1 else found
        if found.ndim != 2 or len(found) != count or np.isinf(found).any():
            wanted = f"numbers (n,){self.in_units()}" if count == 1 else f"numbers ({count}, n){self.in_units()}"
            raise UsageError(f"label {said!r:.60}: expected {wanted}, of n parts of this time, NaN where nobody knows")
        return tuple(self.write(tuple(one)) if np.isfinite(one).all() else None for one in found.T.tolist())

    def in_step(self, lasted: Mapping[str, float], unknown: float) -> str:
        """The mean of what was said, by time; "": of more of it nobody has said a number."""
        said = [(numbers, time) for text, time in lasted.items() if (numbers := Values.read(self, text)) is not None]
        known = sum(time for _, time in said)
        if not said or known < unknown + sum(lasted.values()) - known:
            return ""
        return self.write(tuple(np.average([one for one, _ in said], 0, [time for _, time in said]).tolist()))

    def counts(self, y: Array, outputs: Floats) -> dict[str, float]:
        return regression.error_sums(y, outputs)

    def shown(self, outputs: Floats, x: Array | None = None) -> npt.NDArray[np.float64]:
        return self.in_unit(outputs)

    def judged(self, y: Array, outputs: Floats, limit: float | None = None) -> dict[str, float]:
        return self.counts(y, outputs)

    def of_a_device(self, sums: Mapping[str, float]) -> dict[str, float]:
        return {}

    def evaluate(self, y: Array, outputs: Floats, losses: Floats) -> dict[str, float]:
        raise TypeError("values have no histograms")

    def fleet_scores(self, sums: Mapping[str, float]) -> dict[str, Any]:
        return {}

    def badness(self, sums: Mapping[str, float]) -> float:
        return regression.sum_of(sums)

    @property
    def settles(self) -> bool:
        """By errors as shares of ranges, where there are any."""
        return bool(self.low)

    def credits(self, y: Array, outputs: Floats) -> npt.NDArray[np.float64]:
        """1 less the mean error as a share of the range."""
        return np.asarray(1 - np.minimum(np.abs(outputs - y, dtype=np.float64) / 2, 1).mean(1))

    def baseline(self, y: Array) -> Floats:
        return np.asarray(y.mean(0, keepdims=True))

    def sample_losses(self, labels: Sequence[Label], rows: Floats, where: str) -> npt.NDArray[np.float64]:
        """The mean of |error| in half ranges."""
        return np.asarray((np.abs(rows - self.numbers(labels, where)) / self.half).mean(1))

    def errors(self, sums: Mapping[str, float], samples: float, names: Sequence[str] = ()) -> dict[str, Errors]:
        """Name of a value -> its errors, in its unit; of sums as `counts` names them, over so many samples."""
        named = self.named(names)
        return {n: regression.errors_of(sums, samples, k, float(self.half[k])) for k, n in enumerate(named)}

    def mean_errors(
        self, means: Mapping[str, Mapping[str, float]], names: Sequence[str]
    ) -> dict[str, dict[str, float]]:
        """Model -> name of a value -> mean absolute error in its unit.

        Args:
            means: `mae:k` -> model -> mean over devices, in halves of the range.
        """
        found: dict[str, dict[str, float]] = {}
        for k, name in enumerate(self.named(names)):
            for model, mean in means.get(f"{MAE}:{k}", {}).items():
                found.setdefault(model, {})[name] = mean * float(self.half[k])
        return found

    def named(self, names: Sequence[str] = ()) -> tuple[str, ...]:
        """Names of the values: those of the bundle, of a run, or numbers."""
        return self.names or tuple(names) or tuple(f"value {k + 1}" for k in range(len(self.units)))

    def entry(self) -> dict[str, Any]:
        entry: dict[str, Any] = {"kind": VALUE, "units": list(self.units)}
        for name in ("names", "low", "high"):
            if found := getattr(self, name):
                entry[name] = list(found)
        return entry

    def describe(self, sums: Mapping[str, float]) -> str:
        said = list[str]()
        for key, value in sums.items():
            if (at := key.find(f"_{MAE}:")) >= 0:
                k = int(key[at + len(MAE) + 2 :])
                said.append(f"{key[:at]} off by {self.show(value * float(self.half[k]), k)}")
        return ", ".join(said)

    def show(self, number: float, value: int = 0) -> str:
        """A number with the unit of a value."""
        return f"{number:.4g} {self.units[value]}".rstrip()


def read_values(entry: Mapping[str, Any], output: Sequence[int], input: Sequence[int] = ()) -> Values:
    """The task that an entry of a manifest says. UsageError: it is wrong, or the output has another shape."""
    if set(entry) - {"kind", "names", "units", "low", "high"}:
        raise UsageError(f"task = {str(entry)[:80]}: expected kind = {VALUE!r}, units, and names, low, high or none")
    low, high = (tuple(float(number) for number in entry.get(name, ())) for name in ("low", "high"))
    found = Values(tuple(entry["units"]), tuple(entry.get("names", ())), low, high)
    if tuple(output) != (len(found.units),):
        raise UsageError(f"task {VALUE}: {len(found.units)} values, but an output of shape {tuple(output)} per sample")
    return found
