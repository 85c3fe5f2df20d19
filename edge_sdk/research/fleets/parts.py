"""Arrays of one device in three parts: to train on, to choose by, to be judged by; and what their labels are."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from edge_sdk.data.cut import check_shares
from edge_sdk.data.samples import Label, Samples, SplitSamples
from edge_sdk.errors import UsageError
from edge_sdk.label_names import JOIN, NONE, write_set
from edge_sdk.model.tasks.task import CLASS, LABELS, VALUE
from edge_sdk.research.fleets.class_names import array_of, blanked, check_labelled, is_nothing, spell_classes

Array = npt.NDArray[Any]
Rows = npt.NDArray[np.intp]
BEFORE_ZERO = "a class is a whole number, 0 or more, or a text"
OTHERS = "values are named, predict=[...]; of sets of labels y has a column of booleans for each, labels=[...]"
WINDOWS, SHORT = 3, 16
"""Axes of windows (N, channels, time), and fewer samples of time than anybody's windows have."""
EXACT = 1 << 24
"""The whole numbers up to this one are float32 numbers."""
RARE = 5
"""Samples of a set of labels below which it is divided together with other rare ones: parts of it would be empty."""


def parts_of_arrays(
    name: str, arrays: Sequence[Any], held_out: float, validation: float, targets: Targets | None = None
) -> SplitSamples:
    """The samples of a device.

    Args:
        arrays: x (N, ...) and labels (N,), of which a share is held out; or with x and labels of the test part behind.
        held_out, validation: shares of each class, its last samples: neighbours in time are often alike, so drawn ones
            would judge a model by what it has nearly seen. Of values it is a share of all.
        targets: what y is, as `targets_in` finds it; None: classes.

    Raises:
        UsageError: they are no such arrays, or nothing would be left to train on or to be judged by.
    """
    if isinstance(arrays, (str, bytes)) or len(arrays) not in (2, 4):
        raise UsageError(f"device {name}: expected (x, y) or (x, y, x_test, y_test)")
    check_shares(validation, 0.0 if len(arrays) == 4 else held_out)
    targets = targets or Targets()
    read = targets.read
    x, labels = inputs_of(name, arrays[0]), read(name, arrays[1])
    check_lengths(name, x, labels)
    if len(arrays) == 4:
        tests, test_labels = inputs_of(name, arrays[2]), read(name, arrays[3])
        check_lengths(name, tests, test_labels)
        train, _, chosen = split_rows(targets.strata(labels), 0.0, validation)
        test = Samples(tests, tuple(test_labels))
    else:
        train, rest, chosen = split_rows(targets.strata(labels), held_out, validation)
        test = take(x, labels, rest)
    if not len(test):
        raise UsageError(f"device {name}: nothing is held out of {len(x)} samples; a larger held_out, or more samples")
    return SplitSamples(take(x, labels, train), test, take(x, labels, chosen) if validation else None)


def take(x: Array, labels: Sequence[Label], rows: Rows) -> Samples:
    """Some of the samples."""
    return Samples(np.ascontiguousarray(x[rows]), tuple(labels[i] for i in rows))


def inputs_of(name: str, values: Any) -> Array:
    """Inputs as float32 (N, ...). Whole numbers may be any that this holds exactly.

    Raises:
        UsageError: they are no numbers, or not all finite, or whole and exact, as float32.
    """
    found = np.asarray(values)
    if found.dtype.kind in "iub" and found.ndim >= 2:
        return exact_floats(name, found)
    if found.dtype.kind == "f" and found.ndim >= 2:
        with np.errstate(over="ignore"):  # what is too large is told below
            found = np.ascontiguousarray(found, np.float32)
        if not (finite := np.isfinite(found).all(tuple(range(1, found.ndim)))).all():
            raise UsageError(
                f"device {name}: x[{int(finite.argmin())}] has a value that is not finite as float32; "
                "leave such samples out, or fill them"
            )
        warn_of_axes(found.shape)
        return found
    raise UsageError(f"device {name}: x is {found.dtype} {found.shape}, expected numbers (N, ...), one row per sample")


def exact_floats(name: str, found: Array) -> Array:
    """Whole numbers (N, ...) as float32. UsageError: one is too large for that."""
    if found.size and found.dtype.kind != "b" and max(abs(int(found.min())), abs(int(found.max()))) > EXACT:
        worst = int(max(found.min(), found.max(), key=lambda value: abs(int(value))))
        raise UsageError(
            f"device {name}: x is {found.dtype} and has {worst}; float32 holds whole numbers up to {EXACT:,} exactly: "
            "scale them, or hand over x.astype('float32')"
        )
    warn_of_axes(found.shape)
    return np.ascontiguousarray(found, np.float32)


def warn_of_axes(shape: Sequence[int]) -> None:
    """Warns where the axes of windows look changed: more channels than samples of time, and few of these."""
    if len(shape) == WINDOWS and shape[2] < min(SHORT, shape[1]):
        said = f"x (N, {shape[1]}, {shape[2]}) is taken for windows of {shape[1]} channels, {shape[2]} samples of time"
        warnings.warn(f"{said}; if time is the middle axis, hand over x.transpose(0, 2, 1)", stacklevel=2)


def labels_of(name: str, values: Any) -> list[Label]:
    """Labels (N,) as texts; "" in place of those that there are not.

    Raises:
        UsageError: they are neither whole numbers nor texts.
    """
    found = blanked(array_of(values))
    if found.ndim != 1:
        raise UsageError(
            f"device {name}: y is of shape {found.shape}, expected (N,), a class for each sample; {OTHERS}"
        )
    if found.dtype.kind in "iub" or (found.dtype.kind == "f" and np.all(found == np.floor(found))):
        if len(found) and found.min() < 0:
            raise UsageError(f"device {name}: y has {found.min()}; {BEFORE_ZERO}")
        return [str(int(value)) for value in found]
    if found.dtype.kind in "UO" and all(isinstance(value, str) for value in found.tolist()):
        return [str(value) for value in found]
    raise UsageError(f"device {name}: y is {found.dtype}; {BEFORE_ZERO}")


def find_classes(devices: Mapping[str, Sequence[Any]]) -> dict[str, str]:
    """The class of each label in the y of all devices, which are (x, y) or (x, y, x_test, y_test).

    Raises:
        UsageError: a y has no classes, or a sample no label.
    """
    found = list[str]()
    for name, arrays in devices.items():
        for values in arrays[1::2]:
            given = array_of(values)
            check_labelled(str(name), given.tolist() if given.dtype.kind in "UO" else ())
            found += map(str, labels_of(str(name), values))
    return spell_classes(found)


# Values and sets of labels --------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Targets:
    """What the labels of a fleet are.

    Attributes:
        kind: of the task.
        names: of values, or of the columns of labels; none: nobody has named them.
        classes: label as it is given -> its class; none: they are as they are given.
    """

    kind: str = CLASS
    names: tuple[str, ...] = ()
    classes: Mapping[str, str] = field(default_factory=dict)

    def read(self, device: str, values: Any) -> list[Label]:
        """Labels of a device's y. UsageError: they are none of this kind."""
        if self.kind == CLASS:
            return [self.classes.get(str(label), label) for label in labels_of(device, values)]
        return (values_of if self.kind == VALUE else sets_of)(self.names, device, values)

    def strata(self, labels: Sequence[Label]) -> list[str]:
        """What each sample counts as where all parts are to have a share of each: its class, or its set of labels;
        rare sets count as one, and so do all values."""
        if self.kind == VALUE:
            return [""] * len(labels)
        texts = [str(label) for label in labels]
        counts = Counter(texts)
        return ["" if self.kind == LABELS and counts[text] < RARE else text for text in texts]


def targets_in(devices: Mapping[str, Sequence[Any]], predict: Sequence[str], labels: Sequence[str] | None) -> Targets:
    """What the y of all devices are.

    Args:
        devices: name -> (x, y) or (x, y, x_test, y_test).
        predict: names of values; none: floats that are not whole numbers are values all the same.
        labels: names of labels, of which each sample has a set; none of them: those that occur. None: nobody has asked
            for sets; lists of names and matrices of booleans are sets all the same.

    Raises:
        UsageError: both are asked for.
    """
    every = [arrays[i] for arrays in devices.values() for i in (1, 3) if i < len(arrays)]
    if predict and labels is not None:
        raise UsageError(f"predict = {list(predict)} with labels = {list(labels)}: a model predicts values or labels")
    if labels is not None or any(map(has_sets, every)):
        return Targets(LABELS, tuple(labels or ()))
    return Targets(VALUE, tuple(predict)) if predict or any(map(has_fractions, every)) else Targets()


def has_sets(values: Any) -> bool:
    """Says if each label is several names, or a row of booleans."""
    if hasattr(values, "__array__") and (found := np.asarray(values)).dtype != object:
        return found.ndim == 2 and found.dtype == bool
    rows = [row for row in values if not is_nothing(row) and not (isinstance(row, str) and not row.strip())]
    if any(isinstance(row, (set, frozenset)) for row in rows):
        return True
    lists = all(isinstance(row, (list, tuple)) for row in rows)
    return bool(rows) and lists and all(isinstance(name, (str, bool)) for row in rows for name in row)


def has_fractions(values: Any) -> bool:
    """Says if labels are numbers, and one of them is no whole one."""
    found = array_of(values)
    return found.ndim == 1 and found.dtype.kind == "f" and bool((found != np.floor(found)).any())


def values_of(names: tuple[str, ...], name: str, values: Any) -> list[Label]:
    """Labels as numbers, or as tuples of them where there are several values. `names`: of the values; none: one.

    Raises:
        UsageError: they are no finite numbers, or not so many.
    """
    found, count = np.asarray(values), len(names) or 1
    if found.dtype.kind not in "fiu" or found.ndim not in (1, 2) or (found.shape[1:] or (1,)) != (count,):
        wanted = f"numbers (N,){f' or (N, {count})' if count > 1 else ''}: {', '.join(names) or 'a value'}"
        raise UsageError(f"device {name}: y is {found.dtype} {found.shape}, expected {wanted} for each sample")
    rows = found.reshape(len(found), -1).astype(np.float64)
    if not (finite := np.isfinite(rows).all(1)).all():
        raise UsageError(f"device {name}: y[{int(finite.argmin())}] is not finite; leave such samples out")
    return [row[0] if count == 1 else tuple(row) for row in rows.tolist()]


def sets_of(names: tuple[str, ...], name: str, values: Any) -> list[Label]:
    """Sets of labels as texts, such as "af+pvc" and "none". `names`: of the columns; none: y has names.

    Raises:
        UsageError: a row is no set of labels, or there are not as many columns as names.
    """
    if is_flags(values) or (names and array_of(values).ndim == 2 and array_of(values).dtype.kind in "iuf"):
        found: Array = np.asarray(values)
        if len(strange := np.argwhere((found != 0) & (found != 1))):
            row, column = strange[0]
            raise UsageError(
                f"device {name}: y[{row}] has {found[row, column]}, expected 0 or 1 for {', '.join(names)}"
            )
        if found.ndim != 2 or found.shape[1] != len(names):
            wanted = f"(N, {len(names)}): {', '.join(names)}" if names else "names for its columns, labels=[...]"
            raise UsageError(f"device {name}: y is {found.dtype} {found.shape}, expected {wanted}")
        return [write_set(np.array(names)[row].tolist()) for row in found.astype(bool)]
    return [read_set(name, at, row) for at, row in enumerate(values)]


def is_flags(values: Any) -> bool:
    """Says if rows are booleans."""
    if hasattr(values, "__array__"):
        return bool(np.asarray(values).dtype == bool)
    rows = list(values)
    return bool(rows) and all(isinstance(row, (list, tuple)) and row and type(row[0]) is bool for row in rows)


def read_set(device: str, at: int, row: Any) -> str:
    """One set of labels, of names or of a text; "": nobody has looked."""
    if isinstance(row, str) or is_nothing(row):
        return row if isinstance(row, str) else ""
    if not isinstance(row, (set, frozenset, list, tuple)):
        expected = f"a set of names, or a text such as 'af{JOIN}pvc' or {NONE!r}"
        raise UsageError(f"device {device}: y[{at}] is {row!r:.60}, expected {expected}")
    try:
        return write_set(row)
    except UsageError as error:
        raise UsageError(f"device {device}: y[{at}]: {error}") from error


def check_lengths(name: str, x: Array, labels: Sequence[Label]) -> None:
    """Raises UsageError for another number of labels than of samples, or for none."""
    if len(x) != len(labels):
        raise UsageError(f"device {name}: {len(x)} samples and {len(labels)} labels; one label for each sample")
    if not len(x):
        raise UsageError(f"device {name}: no samples; leave it out")


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
