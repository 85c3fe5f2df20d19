"""Classes of the arrays of a fleet: which labels are one class, as among recordings, and samples without a label."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from edge_sdk.data.traces.labels import describe_folds, fold_labels, is_missing
from edge_sdk.errors import UsageError
from edge_sdk.label_names import clean_label, is_number

Array = npt.NDArray[Any]


def spell_classes(labels: Iterable[str]) -> dict[str, str]:
    """The class of each label of a fleet, by the rules of recordings: those that differ by spaces, upper case or the
    form of Unicode are one, as most samples have it. Warns of labels that become another.

    Raises:
        UsageError: two labels are one number.
    """
    given = Counter(labels)
    counts: Counter[str] = Counter()
    for label, count in given.items():
        counts[clean_label(label)] += count
    if counts and all(map(is_number, counts)):
        check_numbers(sorted(counts))
    folds = fold_labels(counts)
    found = {label: folds[clean_label(label)] for label in given}
    if told := describe_folds(found):
        warnings.warn(f"from_arrays: {told}", stacklevel=2)
    return found


def check_numbers(labels: Sequence[str]) -> None:
    """Raises UsageError for a number that is written in two ways."""
    seen: dict[int, str] = {}
    for label in labels:
        if (other := seen.setdefault(int(label), label)) != label:
            raise UsageError(f"labels {label!r} and {other!r} are one number; write it in one way")


def array_of(values: Any) -> Array:
    """Labels as an array; rows of different lengths as objects."""
    try:
        return np.asarray(values)
    except ValueError:
        rows = list(values)
        found = np.empty(len(rows), object)
        found[:] = rows
        return found


def is_nothing(value: Any) -> bool:
    """Is it what libraries have in place of a label that there is not: None, NaN or NA?"""
    return value is None or type(value).__name__ == "NAType" or (isinstance(value, float) and value != value)


def blanked(found: Array) -> Array:
    """Labels (N,) or (N, S), where "" is in place of those that there are not."""
    if found.dtype != object or not found.ndim:
        return found
    filled = found.copy()
    filled[np.frompyfunc(is_nothing, 1, 1)(found).astype(bool)] = ""
    return filled


def check_labelled(name: str, labels: Sequence[Any]) -> None:
    """Raises UsageError for a sample of a device without a label."""
    at = next((i for i, label in enumerate(labels) if is_nothing(label) or is_missing(str(label))), None)
    if at is not None:
        raise UsageError(
            f"device {name}: y[{at}] is {labels[at]!r}, a sample without a label: leave such samples out of x and y; "
            "windows without labels are for task='reconstruction' or 'forecast', or lie in recordings (from_traces)"
        )
