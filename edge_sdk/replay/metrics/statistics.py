"""Statistics of a replay, from the confusion matrix of each device and model: how good, and by how much better.

A confusion matrix is int64 (classes, classes): entry (i, j) counts test samples of class i that a model took for j.
Devices weigh the same, however many samples they have, as the papers report it. Macro-F1 and balanced accuracy are as
in scikit-learn: over the classes that occur or were guessed, and over those that occur.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import pi, sqrt, tan
from typing import Any

import numpy as np
import numpy.typing as npt

from edge_sdk.errors import UsageError

Counts = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

POINT = 0.01
Z = 1.959964
"""The 97.5 % quantile of the normal distribution."""

ACCURACY, MACRO_F1 = "accuracy", "macro_f1"
COLUMNS = {
    ACCURACY: {ACCURACY: "accuracy", MACRO_F1: "macro-F1", "balanced_accuracy": "balanced accuracy"},
    MACRO_F1: {MACRO_F1: "macro-F1", "exact_match": "exact match", "chosen_f1": "own thresholds"},
}
"""Score by which models are compared -> metrics of a table, it first, and their titles. Sets of labels have macro-F1,
classes accuracy."""
KAPPA, STEPS_RIGHT = "kappa", "steps_right"
STEP_COLUMNS = {MACRO_F1: "macro-F1", STEPS_RIGHT: "steps right", KAPPA: "kappa"}
"""The same of models that tell the classes of steps."""


def columns_with(metrics: Mapping[str, Any]) -> Mapping[str, str]:
    """Metrics of a table of models with these, and their titles."""
    return STEP_COLUMNS if KAPPA in metrics else COLUMNS[score_of(metrics)]


def score_of(metrics: Mapping[str, Any]) -> str:
    """The score by which models with these metrics are compared."""
    return ACCURACY if ACCURACY in metrics else MACRO_F1


def score_in(result: Mapping[str, Any]) -> str:
    """The score of a result, or of one of its devices."""
    return str(result.get("score", ACCURACY))


def shares_in(result: Mapping[str, Any]) -> Mapping[str, Any]:
    """Model -> that score, of a result or of one of its devices."""
    found: Mapping[str, Any] = result[score_in(result)]
    return found


def title_in(result: Mapping[str, Any]) -> str:
    """What that score is called."""
    return COLUMNS[score_in(result)][score_in(result)]


@dataclass(frozen=True)
class Quality:
    """Quality of one model on one device's test samples, all shares of 0 to 1.

    Attributes:
        accuracy: share of samples that it gets right.
        macro_f1: mean F1 over the classes that occur or were guessed.
        balanced_accuracy: mean recall over the classes that occur.
    """

    accuracy: float
    macro_f1: float
    balanced_accuracy: float


def measure(confusion: Counts) -> Quality:
    """The metrics of one model on one device.

    Raises:
        UsageError: there is no sample.
    """
    right, held, guessed = np.diag(confusion), confusion.sum(1), confusion.sum(0)
    if not held.sum():
        raise UsageError("metrics of no samples")
    seen = (held + guessed) > 0
    f1 = 2 * right[seen] / (held + guessed)[seen]
    recall = right[held > 0] / held[held > 0]
    return Quality(float(right.sum() / held.sum()), float(f1.mean()), float(recall.mean()))


def recall_by_class(confusion: Counts, names: Sequence[str]) -> dict[str, float]:
    """Share of each class that occurs which the model gets right."""
    held, right = confusion.sum(1), np.diag(confusion)
    return {name: float(right[i] / held[i]) for i, name in enumerate(names) if held[i]}


def majority_confusion(train: Mapping[str, int], confusion: Counts, names: Sequence[str]) -> Counts:
    """The confusion matrix of a guess that is always the most frequent training label; of equals, the first by name.

    Args:
        train: label -> how many training samples of it the device has.
        confusion: of any model on the same test samples.
    """
    most = min(train, key=lambda label: (-train[label], label))
    found = np.zeros_like(confusion)
    found[:, list(names).index(most)] = confusion.sum(1)
    return found


# Differences ----------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Difference:
    """Mean gain of one model over another on the same devices.

    Attributes:
        mean: of the devices' differences.
        low, high: 95 % interval of this mean over devices, see `mean_interval`.
        devices: how many.
        worse: share of devices where it is worse.
        worse_by_a_point: share of devices where it is worse by more than 0.01.
    """

    mean: float
    low: float
    high: float
    devices: int
    worse: float
    worse_by_a_point: float


def compare(values: Sequence[float], others: Sequence[float]) -> Difference:
    """Paired differences values - others of shares, one for each device, with an interval over devices.

    Raises:
        UsageError: there is no device, or not as many values as others.
    """
    if not values or len(values) != len(others):
        raise UsageError(f"{len(values)} values and {len(others)} others: pairs are compared, one or more")
    differences = np.asarray(values, np.float64) - np.asarray(others, np.float64)
    low, high = (min(1.0, max(-1.0, end)) for end in mean_interval(differences))
    tiny = 1e-9  # of two equal shares, one may be rounded differently
    return Difference(
        mean=float(differences.mean()),
        low=low,
        high=high,
        devices=len(differences),
        worse=float((differences < -tiny).mean()),
        worse_by_a_point=float((differences < -POINT - tiny).mean()),
    )


def mean_interval(values: Floats) -> tuple[float, float]:
    """The 95 % interval of a mean by Student's t; of a single value, which has none, that value twice.

    A percentile bootstrap of a few devices is too narrow (T. C. Hesterberg, "What Teachers Should Know About the
    Bootstrap", 2015): of five it holds the mean in 85 % of cases (`benchmarks/coverage.py`).
    """
    mean, count = float(values.mean()), len(values)
    if count == 1:
        return mean, mean
    half = student_t(count - 1) * float(values.std(ddof=1)) / sqrt(count)
    return mean - half, mean + half


def student_t(freedom: int) -> float:
    """The 97.5 % quantile of Student's t with so many degrees of freedom, to 0.2 %.

    Of one and two it is exact. Source: M. Abramowitz and I. A. Stegun, Handbook of Mathematical Functions (1964),
    26.7.5.
    """
    if freedom == 1:
        return tan(0.475 * pi)
    if freedom == 2:
        return 0.95 * sqrt(2 / (1 - 0.95**2))
    z, v = Z, float(freedom)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + sum(term / v**power for power, term in enumerate(terms, 1))


def wilson(share: float, count: int) -> tuple[float, float]:
    """The 95 % interval of a share of so many independent samples (E. B. Wilson, 1927)."""
    if count < 1:
        raise UsageError(f"a share of {count} samples: at least 1")
    z = Z
    middle, scale = share + z * z / (2 * count), 1 + z * z / count
    half = z * sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    return max(0.0, (middle - half) / scale), min(1.0, (middle + half) / scale)


def difference_interval(share: float, count: int, other: float, other_count: int) -> tuple[float, float]:
    """A 95 % interval of share - other, of so many samples each (R. G. Newcombe, 1998, method 10).

    The two are taken to be of different samples. Where they are of the same, this is wider than needed.
    """
    (low, high), (other_low, other_high) = wilson(share, count), wilson(other, other_count)
    down = sqrt((share - low) ** 2 + (other_high - other) ** 2)
    return share - other - down, share - other + sqrt((high - share) ** 2 + (other - other_low) ** 2)


def spread(values: Sequence[float]) -> tuple[float, float]:
    """Mean and standard deviation (n - 1) over seeds; the deviation of a single value is 0."""
    found = np.asarray(values, np.float64)
    return float(found.mean()), float(found.std(ddof=1)) if len(found) > 1 else 0.0
