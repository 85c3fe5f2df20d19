"""Arrays of one device in three parts: to train on, to choose by, to be judged by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from edge_sdk.data.cut import check_shares
from edge_sdk.data.samples import Samples, SplitSamples
from edge_sdk.errors import UsageError

Array = npt.NDArray[Any]
Rows = npt.NDArray[np.intp]
BEFORE_ZERO = "a class is a whole number, 0 or more, or a text"


def parts_of_arrays(name: str, arrays: Sequence[Any], held_out: float, validation: float) -> SplitSamples:
    """The samples of a device.

    Args:
        arrays: x (N, ...) and labels (N,), of which a share is held out; or with x and labels of the test part behind.
        held_out, validation: shares of each class, its last samples: neighbours in time are often alike, so drawn ones
            would judge a model by what it has nearly seen.

    Raises:
        UsageError: they are no such arrays, or nothing would be left to train on or to be judged by.
    """
    if isinstance(arrays, (str, bytes)) or len(arrays) not in (2, 4):
        raise UsageError(f"device {name}: expected (x, y) or (x, y, x_test, y_test)")
    check_shares(validation, 0.0 if len(arrays) == 4 else held_out)
    x, labels = inputs_of(name, arrays[0]), labels_of(name, arrays[1])
    check_lengths(name, x, labels)
    if len(arrays) == 4:
        tests, test_labels = inputs_of(name, arrays[2]), labels_of(name, arrays[3])
        check_lengths(name, tests, test_labels)
        train, _, chosen = split_rows(labels, 0.0, validation)
        test = Samples(tests, tuple(test_labels))
    else:
        train, rest, chosen = split_rows(labels, held_out, validation)
        test = take(x, labels, rest)
    if not len(test):
        raise UsageError(f"device {name}: nothing is held out of {len(x)} samples; a larger held_out, or more samples")
    return SplitSamples(take(x, labels, train), test, take(x, labels, chosen) if validation else None)


def take(x: Array, labels: Sequence[str], rows: Rows) -> Samples:
    """Some of the samples."""
    return Samples(np.ascontiguousarray(x[rows]), tuple(labels[i] for i in rows))


def inputs_of(name: str, values: Any) -> Array:
    """Inputs as float32 or integers (N, ...).

    Raises:
        UsageError: they are neither, or not all finite as float32.
    """
    found = np.asarray(values)
    if found.dtype.kind == "f" and found.ndim >= 2:
        with np.errstate(over="ignore"):  # what is too large is told below
            found = np.ascontiguousarray(found, np.float32)
        if not (finite := np.isfinite(found).all(tuple(range(1, found.ndim)))).all():
            raise UsageError(
                f"device {name}: x[{int(finite.argmin())}] has a value that is not finite as float32; "
                "leave such samples out, or fill them"
            )
        return found
    if found.dtype.kind in "iu" and found.ndim >= 2:
        return found
    raise UsageError(f"device {name}: x is {found.dtype} {found.shape}, expected numbers (N, ...), one row per sample")


def labels_of(name: str, values: Any) -> list[str]:
    """Labels (N,) as texts: numbers keep their order among classes, so 7 is "07" where there is a 12.

    Raises:
        UsageError: they are neither whole numbers nor texts.
    """
    found = np.asarray(values)
    if found.ndim != 1:
        raise UsageError(f"device {name}: y is of shape {found.shape}, expected (N,): a class for each sample")
    if found.dtype.kind in "iub" or (found.dtype.kind == "f" and np.all(found == np.floor(found))):
        if len(found) and found.min() < 0:
            raise UsageError(f"device {name}: y has {found.min()}; {BEFORE_ZERO}")
        return [str(int(value)) for value in found]
    if found.dtype.kind in "UO" and all(isinstance(value, str) for value in found.tolist()):
        return [str(value) for value in found]
    raise UsageError(f"device {name}: y is {found.dtype}; {BEFORE_ZERO}")


def check_lengths(name: str, x: Array, labels: Sequence[str]) -> None:
    """Raises UsageError for another number of labels than of samples, or for none."""
    if len(x) != len(labels):
        raise UsageError(f"device {name}: {len(x)} samples and {len(labels)} labels; one label for each sample")
    if not len(x):
        raise UsageError(f"device {name}: no samples; leave it out")


def pad_numbers(labels: Sequence[str], digits: int) -> tuple[str, ...]:
    """Labels, those that are numbers with leading zeros."""
    return tuple(label.zfill(digits) if label.isdigit() else label for label in labels)


def split_rows(labels: Sequence[str], held_out: float, validation: float) -> tuple[Rows, Rows, Rows]:
    """Rows to train on, to be judged by and to choose by: of each class the first, the last, and those between.

    A class of a single sample is trained on. A part that is wanted gets a sample of each class that has enough.
    """
    train, test, chosen = list[int](), list[int](), list[int]()
    every = np.asarray(labels)
    for label in np.unique(every):
        rows = np.flatnonzero(every == label).tolist()
        last = share_of(len(rows), held_out, 1)
        middle = share_of(len(rows), validation, 1 + last)
        end = len(rows) - last
        test += rows[end:]
        chosen += rows[end - middle : end]
        train += rows[: end - middle]
    return tuple(np.sort(np.array(part, np.intp)) for part in (train, test, chosen))  # type: ignore[return-value]


def share_of(count: int, share: float, kept: int) -> int:
    """A share of some samples: at least one where it is wanted, and so many are kept for others."""
    return max(0, min(count - kept, max(1, round(share * count)))) if share else 0
