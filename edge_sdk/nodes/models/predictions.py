"""What a device predicts: names of classes with their probabilities, and by which model of which run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating]
INITIAL = "initial"
"""Name of the bundle's own model, which predicts until a run has ended here."""


@dataclass(frozen=True, eq=False)
class Prediction:
    """One window's classes.

    Attributes:
        label: the most probable class; None: its probability lies below the threshold that was asked for.
        probability: of the most probable class.
        probabilities: float (C,), of all `classes`, in their order.
        model: "personal", "global", another model of the run, or "initial".
        run: id of the run that made the model; "" for the initial one.
        time: seconds since 1970 of the window's last sample; None where nobody has told.

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


@dataclass(frozen=True, eq=False)
class Predictions(Sequence[Prediction]):
    """Predictions of N windows by one model.

    Attributes:
        probabilities: float64 (N, C).
        classes: names of the C classes.
        model, run, abstain: see `Prediction`; `abstain` is the threshold.

    >>> import numpy as np
    >>> Predictions(np.array([[0.3, 0.7], [0.6, 0.4]]), ("sit", "walk"), "personal", "run-1", abstain=0.65).labels
    ('walk', None)
    """

    probabilities: Floats
    classes: tuple[str, ...]
    model: str
    run: str
    abstain: float = 0.0

    @property
    def labels(self) -> tuple[str | None, ...]:
        """The most probable class of each window; None where its probability lies below the threshold."""
        best = self.probabilities.argmax(1)
        sure = self.probabilities.max(1) >= self.abstain
        return tuple(self.classes[code] if is_sure else None for code, is_sure in zip(best, sure, strict=True))

    def __len__(self) -> int:
        return len(self.probabilities)

    def __iter__(self) -> Iterator[Prediction]:
        return (self.one(row) for row in self.probabilities)

    def __getitem__(self, at: int) -> Prediction:  # type: ignore[override]  # of one window; slices are numpy's affair
        return self.one(self.probabilities[at])

    def one(self, row: Floats, time: float | None = None) -> Prediction:
        """The prediction that probabilities (C,) make."""
        code = int(row.argmax())
        probability = float(row[code])
        label = self.classes[code] if probability >= self.abstain else None
        return Prediction(label, probability, row, self.classes, self.model, self.run, time)
