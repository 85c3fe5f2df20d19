"""Data sets in NPZ files that the user brings: EEG of the University of Bonn in the layout of ESR, MNIST, CIFAR-10.

R. G. Andrzejak et al.: "Indications of nonlinear deterministic and finite-dimensional structures in time series of
brain electrical activity", Physical Review E, 2001. ESR (UCI Epileptic Seizure Recognition) is the same recordings, cut
into 23 pieces of 178 samples each.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from edge_sdk.errors import UsageError
from edge_sdk.replay.datasets.table import Floats, Table

PIECES, LENGTH = 23, 178
SETS = "ZONFS"
SET_NAMES = ("eyes open", "eyes closed", "healthy area", "tumour area", "seizure")


def read_arrays(path: Path, *keys: str) -> Mapping[str, npt.NDArray[Any]]:
    """Reads some arrays of an NPZ file, never pickled ones."""
    try:
        with np.load(path, allow_pickle=False) as file:
            if missing := [k for k in keys if k not in file]:
                raise UsageError(f"{path}: has no array {missing[0]}; it has {', '.join(file)}")
            return {k: file[k] for k in keys}
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: no NPZ file that can be read: {error}") from error


def read_esr(path: Path) -> Table:
    """Cuts 23 samples from each recording of `signal` (recordings, >= 23 * 178); `set` (recordings,) has their classes,
    letters of SETS."""
    file = read_arrays(path, "signal", "set")
    signal, letters = file["signal"], [str(s) for s in file["set"]]
    if signal.ndim != 2 or signal.shape[1] < PIECES * LENGTH or len(signal) != len(letters):
        raise UsageError(
            f"{path}: signal of shape {signal.shape}, expected ({len(letters)}, {PIECES * LENGTH} or more)"
        )
    if unknown := sorted({*letters} - {*SETS}):
        raise UsageError(f"{path}: set {unknown[0]!r} is none of {SETS}")
    x = signal[:, : PIECES * LENGTH].reshape(-1, LENGTH).astype(np.float32)
    y = np.repeat([SETS.index(s) for s in letters], PIECES)
    return Table("esr", x, y.astype(np.int64), SET_NAMES, np.repeat(np.arange(len(signal)), PIECES))


def read_mnist(path: Path) -> Table:
    """Reads images of (28, 28), values from 0 to 1; MedMNIST's grey images too, whose arrays have other names."""
    return read_images("mnist", path, 28)


def read_cifar10(path: Path) -> Table:
    """Reads images of (3, 32, 32), values from 0 to 1."""
    table = read_images("cifar10", path, 32)
    if table.x.ndim != 4 or table.x.shape[3] != 3:
        raise UsageError(f"{path}: images of shape {table.x.shape[1:]}, expected (32, 32, 3)")
    return Table("cifar10", table.x.transpose(0, 3, 1, 2).copy(), table.y, table.classes, table.source, table.test)


MEDMNIST_KEYS = {"x_train": "train_images", "y_train": "train_labels", "x_test": "test_images", "y_test": "test_labels"}


def read_images(name: str, path: Path, side: int) -> Table:
    """Reads uint8 images of side x side from a file that says itself which of them are for testing."""
    file = read_arrays(path, *(MEDMNIST_KEYS.values() if is_medmnist(path) else MEDMNIST_KEYS))
    x_train, y_train, x_test, y_test = file.values()
    x, y = np.concatenate([x_train, x_test]), np.concatenate([y_train.ravel(), y_test.ravel()]).astype(np.int64)
    if x.shape[1:3] != (side, side) or x.dtype != np.uint8 or len(x) != len(y):
        raise UsageError(
            f"{path}: {x.dtype} images of shape {x.shape} with {len(y)} labels, expected uint8 ({side}, {side})"
        )
    classes = tuple(str(c) for c in range(int(y.max()) + 1))
    scaled = x.astype(np.float32) / np.float32(255)
    return Table(name, scaled, y, classes, np.arange(len(y)), np.arange(len(y)) >= len(y_train))


def is_medmnist(path: Path) -> bool:
    """Does the file have the names of MedMNIST's arrays?"""
    try:
        with np.load(path, allow_pickle=False) as file:
            return "train_images" in file
    except (OSError, ValueError):
        return False


# Vertical splits ------------------------------------------------------------------------------------------------
FRAME = 3
"""Width of an image's frame, pixels: 28^2 - 22^2 = 300 of them are in the frame, 484 in the middle."""
FRAME_SHAPE = 15, 20


def halve_signals(x: Floats) -> tuple[Floats, Floats]:
    """Gives the hospital the first 89 values of ESR's samples, the device the last 89; as 89 steps of one channel."""
    return x[:, : LENGTH // 2, None], x[:, LENGTH // 2 :, None]


def split_frame(x: Floats) -> tuple[Floats, Floats]:
    """Gives the hospital the middle 22 x 22 of grey images of 28 x 28, the device the 300 pixels around it, row by row,
    as an image of 15 x 20."""
    side = x.shape[1]
    inside = np.zeros((side, side), bool)
    inside[FRAME : side - FRAME, FRAME : side - FRAME] = True
    return x[:, None, FRAME : side - FRAME, FRAME : side - FRAME], x[:, ~inside].reshape(-1, 1, *FRAME_SHAPE)
