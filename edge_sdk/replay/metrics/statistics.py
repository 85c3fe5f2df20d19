"""Statistics of a replay, from the confusion matrix of each device and model: how good, and by how much better.

A confusion matrix is int64 (classes, classes): entry (i, j) counts test samples of class i that a model took for j.
Devices weigh the same, however many samples they have, as the papers report it. Macro-F1 and balanced accuracy are as
in scikit-learn: over the classes that occur or were guessed, and over those that occur.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from edge_sdk.errors import UsageError

Counts = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

POINT = 0.01
RESAMPLES = 10_000
COVERED = 0.95
"""Share of resampled means that an interval covers."""


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
        low, high: interval of this mean over resampled devices.
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


def compare(values: Sequence[float], others: Sequence[float], seed: int = 0) -> Difference:
    """Paired differences values - others, one for each device, with a bootstrap interval over devices.

    Raises:
        UsageError: there is no device, or not as many values as others.
    """
    if not values or len(values) != len(others):
        raise UsageError(f"{len(values)} values and {len(others)} others: pairs are compared, one or more")
    differences = np.asarray(values, np.float64) - np.asarray(others, np.float64)
    low, high = bootstrap(differences, seed)
    tiny = 1e-9  # of two equal shares, one may be rounded differently
    return Difference(
        mean=float(differences.mean()),
        low=low,
        high=high,
        devices=len(differences),
        worse=float((differences < -tiny).mean()),
        worse_by_a_point=float((differences < -POINT - tiny).mean()),
    )


def bootstrap(values: Floats, seed: int = 0) -> tuple[float, float]:
    """Interval of the mean by the percentile bootstrap (B. Efron, 1979): the middle COVERED of RESAMPLES means.

    Each of these is the mean of as many values, drawn with replacement. The same seed draws the same.
    """
    random = np.random.default_rng([seed, 14])
    means = values[random.integers(len(values), size=(RESAMPLES, len(values)))].mean(1)
    low, high = np.quantile(means, [(1 - COVERED) / 2, (1 + COVERED) / 2])
    return float(low), float(high)


def wilson(share: float, count: int) -> tuple[float, float]:
    """The 95 % interval of a share of so many independent samples (E. B. Wilson, 1927)."""
    if count < 1:
        raise UsageError(f"a share of {count} samples: at least 1")
    z = 1.959964
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
