"""A device's own samples, with labels and without. They never leave it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from edge_sdk.errors import UsageError
from edge_sdk.label_names import check_set_name, label_key, write_set
from edge_sdk.records import gather_arrays, join_records, list_inputs, name_arrays

Array = npt.NDArray[Any]
Label = str | float | tuple[float, ...] | frozenset[str]
"""What somebody has said of a sample: the name of its class, a number or several, or a set of labels (or its text)."""


@dataclass(frozen=True)
class Samples:
    """Inputs with their labels: names of classes or, for a model that predicts values, numbers.

    Attributes:
        x: float32 or integers (N, ...), one row for each sample; of a model with several inputs records (N,), with such
            a field for each (`Samples.of_inputs`).
        labels: N names; or N sets of names, or texts such as "af+pvc" and "none" for a model that predicts sets of
            labels; or N numbers, or N tuples of them where there are several values, in the units of the model's
            bundle. An array of floats, (N,) or (N, K), becomes such tuples.

    >>> import numpy as np
    >>> len(Samples(np.zeros((2, 3, 64), np.float32), ("sit", "walk")))
    2
    """

    x: Array
    labels: tuple[Label, ...]

    def __post_init__(self) -> None:
        if isinstance(self.labels, np.ndarray):
            object.__setattr__(self, "labels", read_labels(self.labels))
        elif any(isinstance(label, (set, frozenset)) for label in self.labels):
            object.__setattr__(self, "labels", tuple(map(checked_set, self.labels)))
        for name, values in list_inputs(self.x).items():
            check_values(name, values, at_least=2 if self.x.dtype.names is None else 1)
        if len(self.labels) != len(self.x):
            raise UsageError(f"samples: {len(self.x)} rows but {len(self.labels)} labels")

    @classmethod
    def of_inputs(cls, inputs: Mapping[str, Array], labels: Sequence[Label]) -> Samples:
        """Samples of a model with several inputs.

        Args:
            inputs: name of an input -> float32 or integers (N, ...).

        Raises:
            UsageError: they have different numbers of rows, or there are not as many labels.
        """
        return cls(join_records({name: np.asarray(values) for name, values in inputs.items()}), tuple(labels))

    def __len__(self) -> int:
        return len(self.x)


@dataclass(frozen=True)
class Unlabelled:
    """Inputs to train on whose classes nobody has said; a device may label them itself.

    Attributes:
        x: (M, ...), as of `Samples`.
        recording: integers (M,), the stretch of time of each; those of one lie side by side, in order of time.

    >>> import numpy as np
    >>> len(Unlabelled(np.zeros((2, 3, 64), np.float32), np.array([0, 0])))
    2
    """

    x: Array
    recording: npt.NDArray[np.int64]

    def __post_init__(self) -> None:
        for name, values in list_inputs(self.x).items():
            check_values(f"unlabelled {name}", values, at_least=2 if self.x.dtype.names is None else 1)
        found = np.asarray(self.recording)
        if found.shape != self.x.shape[:1] or (found.dtype.kind not in "iu" and found.size):
            raise UsageError(
                f"samples: {len(self.x)} unlabelled rows, recording is {found.dtype} {found.shape}: an integer for each"
            )
        object.__setattr__(self, "recording", found.astype(np.int64))

    def __len__(self) -> int:
        return len(self.x)


def checked_set(label: Label | set[str]) -> Label:
    """A label; a set becomes a frozen one of clean names. UsageError: a name in it would be read as something else."""
    if not isinstance(label, (set, frozenset)):
        return label
    try:
        return frozenset(map(check_set_name, label))
    except UsageError as error:
        raise UsageError(f"samples: {error}") from error


def check_values(name: str, values: Array, at_least: int) -> None:
    """Raises UsageError for values of another type, with fewer axes, or that are not finite."""
    if values.ndim < at_least or not (values.dtype == np.float32 or values.dtype.kind in "iu"):
        raise UsageError(f"samples: {name} is {values.dtype} {values.shape}, expected float32 or integers (N, ...)")
    if values.dtype == np.float32 and not np.isfinite(values).all():
        row, where = int(np.argwhere(~np.isfinite(values))[0][0]), "" if name == "x" else f" of {name}"
        raise UsageError(f"samples: row {row}{where} has a value that is not finite")


@dataclass(frozen=True)
class Stored:
    """Samples that are ready: the other form of the [data] table.

    Attributes:
        samples: NPZ file: `x` float32 or integers (N, ...), or of several inputs `x.INPUT` for each, and `labels`, N
            texts, or floats (N,) or (N, K) for a model that predicts values, or 0 and 1 (N, K) of sets of labels with
            `label_names`, K texts; to be judged by, `held_out_x` and `held_out_labels` alike; to make choices on,
            `validation_x` and `validation_labels`; without labels, `unlabelled_x` and `unlabelled_recording`, see
            `Unlabelled`.
    """

    samples: Path


@dataclass(frozen=True)
class SplitSamples:
    """The samples of one device, in three parts that have no recording in common.

    Attributes:
        train: what it trains on.
        held_out: the test part: what its models are judged by, once, when the run is over.
        validation: what choices are made on, and what the metrics of single rounds are from; None: there is no such
            part, and the metrics of rounds are from the test part, too.
        told: what was guessed and put right when they were read, in one line; "": nothing.
        channels: of a trace that they are cut from, in their order, without those that are predicted; empty: of none.
        rate_hz: of that trace.
    """

    train: Samples
    held_out: Samples
    validation: Samples | None = None
    told: str = ""
    channels: tuple[str, ...] = ()
    rate_hz: float = 0.0


Normalise = Callable[[npt.NDArray[np.float32]], npt.NDArray[np.float32]]


def label_samples(x: npt.NDArray[np.float32], codes: npt.NDArray[np.integer], classes: Sequence[str]) -> Samples:
    """Makes samples of inputs (N, ...) and the indices (N,) of their classes."""
    return Samples(np.ascontiguousarray(x, np.float32), tuple(classes[int(c)] for c in codes))


# Samples in a file ----------------------------------------------------------------------------------------------
HELD_OUT, VALIDATION, UNLABELLED = "held_out_", "validation_", "unlabelled_"
"""Prefixes of the arrays that are not for training, and of those without labels."""
OWN = ("x", "labels")
NAMES = "label_names"
"""Array with the names of the columns of labels that are 0 and 1."""


def read_samples(path: Path) -> SplitSamples:
    """Reads the samples of an NPZ file; where it has no held-out ones, these are empty."""
    others = [tuple(prefix + key for key in OWN) for prefix in (HELD_OUT, VALIDATION)]
    found = read_gathered(path, lambda name: not name.startswith(UNLABELLED), ("", HELD_OUT, VALIDATION))
    names = found.get(NAMES)
    file = check_arrays(path, {key: value for key, value in found.items() if key != NAMES}, OWN, *others)
    if names is not None:
        file = name_columns(path, file, names)
    train = check_samples(path, file["x"], file["labels"])
    if not len(train):
        raise UsageError(f"{path}: x has no rows, there is nothing to train on")
    held_out = read_part(path, file, HELD_OUT, train)
    return SplitSamples(train, held_out or Samples(train.x[:0], ()), read_part(path, file, VALIDATION, train))


def name_columns(path: Path, file: Mapping[str, Array], names: Array) -> Mapping[str, Array]:
    """Arrays whose labels are texts of sets in place of 0 and 1 (N, K). UsageError: they, or the K names, are not."""
    if names.ndim != 1 or names.dtype.kind != "U" or not len(names):
        raise UsageError(f"{path}: {NAMES} is {names.dtype} {names.shape}, expected a text for each column of labels")
    try:
        clean = [check_set_name(name) for name in names.tolist()]
    except UsageError as error:
        raise UsageError(f"{path}: {NAMES}: {error}") from error
    if len({*map(label_key, clean)}) < len(clean):
        raise UsageError(f"{path}: {NAMES} = {', '.join(clean)}: expected different names")
    made = dict(file)
    for key in (prefix + "labels" for prefix in ("", HELD_OUT, VALIDATION) if prefix + "labels" in file):
        values = file[key]
        if values.ndim != 2 or values.shape[1] != len(clean) or values.dtype.kind not in "biuf":
            wanted = f"expected ({len(values)}, {len(clean)}) of 0 and 1: {NAMES} names {len(clean)} columns"
            raise UsageError(f"{path}: {key} are {values.dtype} {values.shape}, {wanted}")
        if len(strange := np.argwhere((values != 0) & (values != 1))):
            row, column = strange[0]
            raise UsageError(f"{path}: row {row} of {key} has {values[row, column]}, expected 0 or 1 (by {NAMES})")
        sets = ([name for name, on in zip(clean, row, strict=True) if on] for row in values.tolist())
        made[key] = np.array([write_set(own) for own in sets], np.str_)
    return made


def read_gathered(path: Path, wanted: Callable[[str], bool], prefixes: Sequence[str]) -> Mapping[str, Array]:
    """Arrays of an NPZ file that are wanted, with inputs of these prefixes as records."""
    from edge_sdk.data.npz import read_npz  # with zipfile, for samples that are ready

    try:
        return gather_arrays(read_npz(path, wanted), tuple(prefix + "x" for prefix in prefixes))
    except UsageError as error:
        raise error if str(path) in str(error) else UsageError(f"{path}: {error}") from error


def read_part(path: Path, file: Mapping[str, Array], prefix: str, train: Samples) -> Samples | None:
    """Samples that are not for training; None: the file has none."""
    if prefix + "x" not in file:
        return None
    found = check_samples(path, file[prefix + "x"], file[prefix + "labels"])
    if found.x.shape[1:] != train.x.shape[1:]:
        raise UsageError(f"{path}: {prefix}x is of shape {found.x.shape}, x of {train.x.shape}: only N may differ")
    if found.x.dtype != train.x.dtype:
        raise UsageError(f"{path}: {prefix}x is {found.x.dtype}, x {train.x.dtype}: only N may differ")
    return found


def read_arrays(path: Path, needed: Sequence[str], *together: Sequence[str]) -> Mapping[str, Array]:
    """Reads the arrays of an NPZ file, never pickled ones.

    Args:
        needed: names of arrays that must be there.
        together: further ones, in groups: of each group there are all or none.

    Raises:
        UsageError: it cannot be read, one is missing, or there is one that nobody asked for.
    """
    from edge_sdk.data.npz import read_npz

    return check_arrays(path, read_npz(path), needed, *together)


def check_arrays(
    path: Path, found: Mapping[str, Array], needed: Sequence[str], *together: Sequence[str]
) -> Mapping[str, Array]:
    """The arrays of a file as `read_arrays` wants them."""
    present = [name for group in together if any(key in found for key in group) for name in group]
    wanted, known = [*needed, *present], [*needed, *(name for group in together for name in group)]
    if missing := [name for name in wanted if name not in found]:
        raise UsageError(f"{path}: has no array {missing[0]}; expected {', '.join(wanted)}")
    if unknown := [name for name in found if name not in wanted]:
        raise UsageError(f"{path}: array {unknown[0]} is none of {', '.join(known)}")
    return found


def check_samples(path: Path, x: Array, labels: Array) -> Samples:
    try:
        return Samples(np.ascontiguousarray(x), read_labels(labels))
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error


def read_labels(values: Array) -> tuple[Label, ...]:
    """Labels of an array of texts (N,), or of floats (N,) or (N, K)."""
    if values.ndim == 1 and values.dtype.kind == "U":
        return tuple(str(v) for v in values)
    if values.ndim not in (1, 2) or values.dtype.kind != "f":  # integers may be meant as classes
        more = f"; 0 and 1 for each label of a set, with {NAMES}, K texts" if values.ndim == 2 else ""
        raise UsageError(
            f"labels are {values.dtype} {values.shape}, expected texts (N,), or floats (N,) or (N, K){more}"
        )
    if values.ndim == 1:
        return tuple(float(v) for v in values)
    return tuple(tuple(float(v) for v in row) for row in values)


def read_texts(values: Array) -> tuple[str, ...]:
    if values.ndim != 1 or values.dtype.kind != "U":
        raise UsageError(f"labels are {values.dtype} {values.shape}, expected texts (N,)")
    return tuple(str(v) for v in values)


def write_labels(labels: Sequence[Label]) -> Array:
    """The array that `read_labels` reads."""
    texts = all(isinstance(label, str) for label in labels)
    if any(isinstance(label, frozenset) for label in labels):
        return np.array([write_set(label) if isinstance(label, frozenset) else str(label) for label in labels])
    return np.array(labels, str) if texts else np.array(labels, np.float64)


def store_samples(
    path: Path,
    train: Samples,
    held_out: Samples,
    validation: Samples | None = None,
    unlabelled: Unlabelled | None = None,
) -> Path:
    """Writes what `read_samples` and `unlabelled_of` read."""
    path.parent.mkdir(parents=True, exist_ok=True)
    parts = {"": train, HELD_OUT: held_out} | ({} if validation is None else {VALIDATION: validation})
    arrays: dict[str, Any] = {}
    for prefix, part in parts.items():
        arrays |= name_arrays(part.x, prefix + "x")
    arrays |= {prefix + "labels": write_labels(part.labels) for prefix, part in parts.items()}
    if unlabelled is not None:
        arrays |= name_arrays(unlabelled.x, f"{UNLABELLED}x") | {f"{UNLABELLED}recording": unlabelled.recording}
    with path.open("wb") as file:
        np.savez(file, **arrays)
    return path
