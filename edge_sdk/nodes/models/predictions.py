"""What a device predicts: names of classes with their probabilities, sets of labels or values, classes and values also
for each step of a window, or how unusual a window is; and by which model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import nan

import numpy as np
import numpy.typing as npt

from edge_sdk.errors import UsageError

Floats = npt.NDArray[np.floating]
VALUES_AXES = 2
"""Of values of whole windows: windows, and values."""


@dataclass(frozen=True)
class Value:
    """A predicted number.

    Attributes:
        name, unit: what it is; "" where nobody has said.
        value: in the unit.
        low, high: an interval about it, two ends which the truth lies between in about 90 % of cases if errors are
            normal: by the root of the mean squared error on the device's own validation samples (held-out ones where
            there are no others) at the end of the run. None: no run has judged the model here.
    """

    value: float
    unit: str = ""
    name: str = ""
    low: float | None = None
    high: float | None = None

    def __str__(self) -> str:
        return f"{self.value:.4g} {self.unit}".rstrip()


@dataclass(frozen=True, eq=False)
class Prediction:
    """One window's class, its labels, or its values.

    Attributes:
        label: the most probable class; None: its probability lies below the threshold that was asked for, or the model
            predicts something else than one class.
        probability: of the most probable class.
        probabilities: float (C,), of all `classes`, in their order; of labels each by itself, not 1
            together. Of a model that tells the classes of steps (C, S), 1 together at each of S steps.
        model: "personal", "global", another model of the run, or "initial".
        run: id of the run that made the model; "" for the initial one.
        time: seconds since 1970 of the window's last sample; None where nobody has told.
        values: of a model that predicts values, with `probability` nan and no `probabilities`.
        labels: of a model that predicts sets of labels, those whose probability reaches their threshold; None: it
            predicts something else.
        thresholds: of each label; empty: the model predicts something else.
        chosen: labels whose threshold was chosen, for the best F1 on the device's own validation samples (held-out ones
            where there are no others) at the end of the run. That of all others is 0.5.
        steps: of a model that tells the classes of steps, the most probable class of each, with `probability` nan;
            empty: it predicts something else.
        curve: of a model that predicts values at each of S steps, float64 (K, S) in their units, with `probability` nan
            and no `values`; None: it predicts something else. Step s of a window lasts from s / S of it to (s + 1) / S.
        units, spread: of the K values of a curve, see `Predictions`.
        score: of a model that reconstructs windows, the mean squared error of this one, with `probability` nan and no
            `probabilities`; None: it predicts something else.
        ahead: of a model that forecasts, the values that come after the window, float64 (C, horizon), in the units of
            the channels; None: it predicts something else. `score` is the error of the window's own end.
        threshold: of the score, by the device's own validation samples (held-out ones where there are no others) at the
            end of the run; None: no run has judged the model here.

    >>> import numpy as np
    >>> one = Predictions(np.array([[0.3, 0.7]]), ("sit", "walk"), "personal", "run-1")[0]
    >>> one.label, one.probability
    ('walk', 0.7)
    """

    label: str | None
    probability: float
    probabilities: Floats
    classes: tuple[str, ...]
    model: str
    run: str
    time: float | None = None
    values: tuple[Value, ...] = ()
    labels: frozenset[str] | None = None
    thresholds: Mapping[str, float] = field(default_factory=dict)
    chosen: frozenset[str] = frozenset()
    score: float | None = None
    threshold: float | None = None
    ahead: Floats | None = None
    steps: tuple[str, ...] = ()
    curve: Floats | None = None
    units: tuple[str, ...] = ()
    spread: tuple[float, ...] = ()

    @property
    def is_alarm(self) -> bool | None:
        """Is the score above its threshold? None: there is no score, or no threshold yet."""
        return None if self.score is None or self.threshold is None else self.score > self.threshold

    @property
    def low(self) -> Floats | None:
        """Lower ends (K, S) of the intervals about a curve, as `Value` has one; None: there is none."""
        return None if self.curve is None or not self.spread else self.curve - np.array(self.spread)[:, None]

    @property
    def high(self) -> Floats | None:
        """Upper ends (K, S) of them."""
        return None if self.curve is None or not self.spread else self.curve + np.array(self.spread)[:, None]

    @property
    def value(self) -> Value:
        """The only value, or the first. Raises UsageError if the model predicts something else."""
        if not self.values:
            more = "values at steps, its `curve`" if self.curve is not None else "a class, of labels, steps or a score"
            raise UsageError(f"this prediction is of {more}, and has no value")
        return self.values[0]


@dataclass(frozen=True, eq=False)
class Predictions(Sequence[Prediction]):
    """Predictions of N windows by one model.

    Attributes:
        probabilities: float64 (N, C); of steps (N, C, S).
        classes: names of the C classes or labels, or of the K values.
        model, run, abstain: see `Prediction`; `abstain` is the threshold.
        values: of a model that predicts values, float64 (N, K) in their units, of values at each of S steps (N, K, S);
            None: it predicts classes.
        units: of the K values.
        spread: half the width of their intervals; empty: it is not known.
        thresholds: of a model that predicts sets of labels, for each; empty: it predicts something else.
        chosen: which of these were chosen, see `Prediction`.
        scores: of a model that reconstructs windows or forecasts their ends, float64 (N, 1); None: of another model.
        threshold: of the scores, see `Prediction`.
        ahead: of a model that forecasts, the next values, float64 (N, C, horizon); None: it predicts something else.

    >>> import numpy as np
    >>> Predictions(np.array([[0.3, 0.7], [0.6, 0.4]]), ("sit", "walk"), "personal", "run-1", abstain=0.65).labels
    ('walk', None)
    """

    probabilities: Floats
    classes: tuple[str, ...]
    model: str
    run: str
    abstain: float = 0.0
    values: Floats | None = None
    units: tuple[str, ...] = ()
    spread: tuple[float, ...] = ()
    thresholds: tuple[float, ...] = ()
    chosen: frozenset[str] = frozenset()
    scores: Floats | None = None
    threshold: float | None = None
    ahead: Floats | None = None

    @property
    def rows(self) -> Floats:
        """What each window's prediction is made of: probabilities (N, C), values (N, K) or scores (N, 1)."""
        return next((rows for rows in (self.values, self.scores) if rows is not None), self.probabilities)

    @property
    def labels(self) -> tuple[str | None, ...]:
        """The most probable class of each window; None where its probability lies below the threshold."""
        if self.rows is not self.probabilities or self.thresholds or self.in_steps:
            return (None,) * len(self)
        best = self.probabilities.argmax(1)
        sure = self.probabilities.max(1) >= self.abstain
        return tuple(self.classes[code] if is_sure else None for code, is_sure in zip(best, sure, strict=True))

    @property
    def in_steps(self) -> bool:
        """Has each step of a window a class of its own?"""
        return self.probabilities.ndim > 2  # windows and classes

    @property
    def sets(self) -> tuple[frozenset[str], ...]:
        """The labels of each window whose probability reaches their threshold; empty: it predicts no sets."""
        return tuple(self.set_of(row) for row in self.probabilities) if self.thresholds else ()

    def set_of(self, row: Floats) -> frozenset[str]:
        """The labels that probabilities (C,) make."""
        pairs = zip(self.classes, row >= np.array(self.thresholds), strict=True)
        return frozenset(name for name, there in pairs if there)

    def __len__(self) -> int:
        return len(self.rows)

    def values_of(self, row: Floats) -> Iterator[Value]:
        """Numbers (K,) with their names, units and intervals."""
        for k, (number, unit, name) in enumerate(zip(row.tolist(), self.units, self.classes, strict=True)):
            ends = (number - self.spread[k], number + self.spread[k]) if self.spread else (None, None)
            yield Value(number, unit, name, *ends)

    def __iter__(self) -> Iterator[Prediction]:
        return (self.one(row, at=at) for at, row in enumerate(self.rows))

    def __getitem__(self, at: int) -> Prediction:  # type: ignore[override]  # of one window; slices are numpy's affair
        return self.one(self.rows[at], at=at)

    def one(self, row: Floats, time: float | None = None, at: int = 0) -> Prediction:
        """The prediction that probabilities (C,) or (C, S), or values (K,) or (K, S), of window number `at` make."""
        if self.values is not None and self.values.ndim > VALUES_AXES:
            of = (self.classes, self.model, self.run, time)
            return Prediction(None, nan, np.zeros(0), *of, curve=row, units=self.units, spread=self.spread)
        if self.values is not None:
            return Prediction(
                None, nan, row[:0], self.classes, self.model, self.run, time, values=tuple(self.values_of(row))
            )
        if self.scores is not None:
            of = (self.classes, self.model, self.run, time)
            ahead = None if self.ahead is None else self.ahead[at]
            return Prediction(None, nan, row[:0], *of, score=float(row[0]), threshold=self.threshold, ahead=ahead)
        if self.thresholds:
            own = dict(zip(self.classes, self.thresholds, strict=True))
            of = (self.classes, self.model, self.run, time)
            return Prediction(None, nan, row, *of, labels=self.set_of(row), thresholds=own, chosen=self.chosen)
        if self.in_steps:
            steps = tuple(self.classes[code] for code in row.argmax(0).tolist())
            return Prediction(None, nan, row, self.classes, self.model, self.run, time, steps=steps)
        code = int(row.argmax())
        probability = float(row[code])
        label = self.classes[code] if probability >= self.abstain else None
        return Prediction(label, probability, row, self.classes, self.model, self.run, time)
