"""`auscult traces watch`: recordings of physiotherapy exercises by smartwatch, as traces of the product.

D. M. Burns et al.: "Shoulder physiotherapy exercise recognition: machine learning the inertial signals from a
smartwatch", Physiological Measurement, 2018 (arXiv:1802.01489). Ten persons, both wrists, seven exercises of about 20
repetitions each; acceleration and angular velocity at 50 Hz. The recordings are a file in the package `seglearn` (BSD
licence), which need not be imported and whose own dependencies need not be there: `pip install --no-deps seglearn`.

The file is a pickle, which could run any code when it is loaded. So it is read only if its SHA-256 is the one of the
published file, and then by an unpickler that resolves four names, to functions of this module that make plain arrays.
"""

from __future__ import annotations

import hashlib
import io
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from edge_sdk.errors import UsageError
from edge_sdk.replay.traces.synth import Summary, open_folder

PACKAGE, FILE = "seglearn", "seglearn/data/watch_dataset.npy"
SHA256 = "eb122f23cdf06ef6bd6c6c5312958ec5cf9d038e2e6d457b8081662c75a42537"
RATE = 50  # Hz
PAUSE = 10  # seconds between two exercises of a trace, as the file says nothing of when they were recorded
SIDES = ("left", "right")
CHANNELS = ("ax", "ay", "az", "wx", "wy", "wz")
EXERCISES = {
    "PEN": "pendulum",
    "ABD": "abduction",
    "FEL": "forward_elevation",
    "IR": "internal_rotation",
    "ER": "external_rotation",
    "TRAP": "trapezius_extension",
    "ROW": "upright_row",
}

Array = npt.NDArray[Any]


def write_watch_traces(directory: Path, source: Path | None = None, *, overwrite: bool = False) -> tuple[Summary, ...]:
    """Writes one CSV file per wrist, `patient-01-left.csv` to `patient-10-right.csv`.

    Columns: `time` (seconds), `ax`, `ay`, `az`, `wx`, `wy`, `wz` as recorded, and `activity`, the exercise. Every
    exercise is one recording, in the order of `EXERCISES`.

    Args:
        source: the file; None: that of the installed package.
        overwrite: write into a directory that has files already.

    Raises:
        UsageError: there is no such file, it is not the published one, or the directory is not empty.
    """
    data = read_watch(installed() if source is None else source)
    folder = open_folder(directory, overwrite)
    wrists = sorted({*zip(data.subject.tolist(), data.side.tolist(), strict=True)})
    return tuple(write_wrist(folder / f"patient-{p:02d}-{SIDES[s]}.csv", data, p, s) for p, s in wrists)


def installed() -> Path:
    """The file of the installed package, found without importing it.

    Raises:
        UsageError: it is not installed.
    """
    try:
        path = Path(str(distribution(PACKAGE).locate_file(FILE)))
    except PackageNotFoundError:
        raise UsageError(f"package {PACKAGE} is missing here: pip install --no-deps {PACKAGE}") from None
    if not path.is_file():
        raise UsageError(f"{path}: there is no such file, and package {PACKAGE} should have it")
    return path


def write_wrist(file: Path, data: Recordings, subject: int, side: int) -> Summary:
    """One trace: all exercises of one wrist, one after the other."""
    mine = [i for i in range(len(data.y)) if data.subject[i] == subject and data.side[i] == side]
    begin, samples, count = 0.0, 0, dict[str, int]()
    with file.open("w", encoding="utf-8", newline="\n") as out:
        out.write(",".join(("time", *CHANNELS, "activity")) + "\n")
        for i in sorted(mine, key=lambda i: int(data.y[i])):
            name, values = data.exercises[int(data.y[i])], data.x[i]
            times = begin + np.arange(len(values)) / RATE
            rows = zip(times.tolist(), values.tolist(), strict=True)
            out.writelines(f"{t:.2f},{','.join(f'{v:.6f}' for v in row)},{name}\n" for t, row in rows)
            begin, samples = float(times[-1]) + PAUSE, samples + len(values)
            count[name] = count.get(name, 0) + 1
    return Summary(file.stem, samples, samples / RATE, dict(sorted(count.items())))


# The file -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Recordings:
    """What the file holds: N recordings.

    Attributes:
        x: float64 (samples, 6) each.
        y: int64 (N,), indices into `exercises`. subject: int64 (N,), from 1. side: int64 (N,), 0 left, 1 right.
        exercises: readable names.
    """

    x: tuple[Array, ...]
    y: Array
    subject: Array
    side: Array
    exercises: tuple[str, ...]


def read_watch(path: Path) -> Recordings:
    """The recordings of the published file.

    Raises:
        UsageError: it cannot be read, or is any other file.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error
    if (found := hashlib.sha256(raw).hexdigest()) != SHA256:
        raise UsageError(f"{path}: SHA-256 is {found[:12]}..., the published file has {SHA256[:12]}...; not read")
    try:
        return recordings_of(unpickled(raw))
    except (ValueError, KeyError, TypeError, pickle.UnpicklingError) as error:
        raise UsageError(f"{path}: not as published: {error}") from error


def unpickled(raw: bytes) -> Any:
    """The one object of an NPY file of dtype object, of arrays, lists, dictionaries, texts and numbers only.

    Raises:
        ValueError: it is no such file. pickle.UnpicklingError: it names anything else.
    """
    file = io.BytesIO(raw)
    version = np.lib.format.read_magic(file)
    if version != (1, 0):
        raise ValueError(f"NPY version {version}, expected (1, 0)")
    shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    if shape != () or dtype != np.dtype(object):
        raise ValueError(f"an array of {dtype} {shape}, expected a single object")
    return plain(ArraysOnly(file).load())


class ArraysOnly(pickle.Unpickler):
    """An unpickler that knows the four names that a pickled array has, and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        known = KNOWN.get((module.replace("numpy._core", "numpy.core"), name))
        if known is None:
            raise pickle.UnpicklingError(f"it names {module}.{name}; only arrays of numbers and lists are read")
        return known

    def persistent_load(self, pid: Any) -> Any:
        raise pickle.UnpicklingError("it refers to an object outside itself")


class PickledType:
    """A dtype as a pickle describes it: a kind and, in its state, a byte order."""

    def __init__(self, kind: str, *_: Any) -> None:
        if kind not in ("f8", "i8", "O8"):
            raise ValueError(f"an array of {kind!r}; only float64, int64 and single objects are read")
        self.kind, self.order = kind, "<"

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.order = state[1] if state[1] in ("<", ">") else "<"


class PickledArray:
    """An array as a pickle describes it: shape, type and bytes, which `plain` makes an array of."""

    value: Any = None

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, kind, fortran, content = state
        if kind.kind == "O8":
            if shape != () or not isinstance(content, list) or len(content) != 1:
                raise ValueError("an array of several objects; only a single one is read")
            self.value = content[0]
        else:
            flat = np.frombuffer(content, np.dtype(kind.order + kind.kind))
            self.value = flat.reshape(shape, order="F" if fortran else "C")


def make_array(*_: Any) -> PickledArray:
    """numpy's `_reconstruct`: an empty array whose content comes with its state."""
    return PickledArray()


def to_bytes(text: str, encoding: str) -> bytes:
    """`_codecs.encode`, with which protocol 2 writes bytes."""
    if encoding != "latin1":
        raise ValueError(f"bytes in {encoding!r}, expected latin1")
    return text.encode("latin1")


KNOWN: Mapping[tuple[str, str], Callable[..., Any]] = {
    ("numpy.core.multiarray", "_reconstruct"): make_array,
    ("numpy", "ndarray"): PickledArray,
    ("numpy", "dtype"): PickledType,
    ("_codecs", "encode"): to_bytes,
}


def plain(value: Any) -> Any:
    """Replace what a pickle describes arrays by with the arrays."""
    if isinstance(value, PickledArray):
        return plain(value.value)
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list) else value


def recordings_of(data: Mapping[str, Any]) -> Recordings:
    """The dictionary of the file, checked.

    Raises:
        ValueError, KeyError, TypeError: something is missing, or of another kind or shape.
    """
    x, labels = data["X"], data["y_labels"]
    y, subject, side = (np.asarray(data[key]).astype(np.int64) for key in ("y", "subject", "side"))
    if tuple(data["X_labels"]) != CHANNELS or any(name not in EXERCISES for name in labels):
        raise ValueError(f"channels {data['X_labels']} and exercises {labels}; expected {CHANNELS}, {list(EXERCISES)}")
    if any(a.shape != (len(x),) for a in (y, subject, side)):
        raise ValueError(f"{len(x)} recordings, but labels of shapes {y.shape}, {subject.shape}, {side.shape}")
    if any(one.ndim != 2 or one.shape[1] != len(CHANNELS) or not np.isfinite(one).all() for one in x):
        raise ValueError("a recording is not of finite numbers (samples, 6)")
    if not (((y >= 0) & (y < len(labels))).all() and (subject > 0).all() and np.isin(side, (0, 1)).all()):
        raise ValueError("a label, a subject or a side is out of range")
    return Recordings(tuple(x), y, subject, side, tuple(EXERCISES[name] for name in labels))
