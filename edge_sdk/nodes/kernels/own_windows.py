"""What a device learns from by itself: features of its own windows, and windows that nobody has labelled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt

from edge_sdk.algebra.window_features import window_features
from edge_sdk.contract.environment.samples import Labelled, OwnWindows
from edge_sdk.data.augment import augment
from edge_sdk.data.ordered import list_distinct
from edge_sdk.nodes.kernels.family import Array, DeviceParts, Fields

WINDOW, TABLE = 3, 2
"""Axes of an array of windows (samples, channels, time), and of one of rows of numbers."""
SHORTEST = 4
STEP = 32
"""Windows whose features are computed at once: more are hardly faster and take some MB; the features are the same."""


def has_features(x: Array) -> bool:
    """Says whether samples are windows or rows of numbers; images, texts and several inputs have no features here."""
    if x.dtype.names or not np.issubdtype(x.dtype, np.floating):
        return False
    return x.ndim == TABLE or (x.ndim == WINDOW and x.shape[2] >= SHORTEST)


def features_of(x: Array) -> npt.NDArray[np.float32]:
    """Features (N, F) of windows (N, channels, samples); rows of numbers (N, F) are features already."""
    if x.ndim == TABLE:
        return np.asarray(x, np.float32)
    return np.concatenate([window_features(x[i : i + STEP]) for i in range(0, max(1, len(x)), STEP)])


def feature_means(parts: Sequence[Array]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Means and means of squares (F,) of the features of all samples in some arrays, as far as these are finite.

    Empty where there is no such sample.
    """
    count, total, squares = 0, np.zeros(0), np.zeros(0)
    for x in parts:
        for i in range(0, len(x), STEP):
            f = features_of(x[i : i + STEP]).astype(np.float64)
            f = f[np.isfinite(f).all(1)]
            if len(f):
                more = count > 0
                total, squares = f.sum(0) + total if more else f.sum(0), (f**2).sum(0) + (squares if more else 0)
                count += len(f)
    return (total / count, squares / count) if count else (total, squares)


def own_windows(parts: DeviceParts, trains: Callable[[DeviceParts], Fields]) -> OwnWindows | None:
    """A device's own samples as features, and those without a label; None: samples of this kind have no features."""
    x = parts.model.samples(parts.x)
    if not has_features(x):
        return None
    known = None if parts.model.classes else KnownSets(parts)
    y = np.asarray(parts.y, np.int64) if known is None else known.codes(parts.y)
    loose, recording = (x[:0], np.zeros(0, np.int64)) if parts.unlabelled is None else parts.unlabelled
    loose = parts.model.samples(loose)

    def features(copies: int, random: np.random.Generator) -> npt.NDArray[np.float32]:
        changed = (augment(x, parts.augment, random) for _ in range(copies if parts.augment.changes else 0))
        return np.concatenate([plain(), *map(features_of, changed)])

    plain, unlabelled = cache(lambda: features_of(x)), cache(lambda: features_of(loose))
    bound = cache(lambda: parts.model.predict_fn(parts.model.bind(loose)))
    taught = Taught(parts, loose, trains)
    found = OwnWindows(
        labels=y,
        features=features,
        count=len(loose),
        recording=np.asarray(recording, np.int64),
        unlabelled=unlabelled,
        logits=(lambda theta: bound()(theta)) if known is None else (lambda theta: known.scores(bound()(theta))),
        taught=taught,
        release=taught.release,
        marks=cache(lambda: np.array([crc32(np.ascontiguousarray(row).data) for row in loose], np.int64)),
    )
    return found if known is None else replace(found, sets=known.sets, judged=known.judged())


class KnownSets:
    """The sets of labels that a device's training samples have, as classes: ascending by their bits.

    Attributes:
        sets: int64 (classes,), as of `OwnWindows`. table: float32 (classes, labels), 1 where a label is in a set.
    """

    def __init__(self, parts: DeviceParts) -> None:
        self.parts, self.labels = parts, parts.y.shape[1]
        self.sets = list_distinct(to_bits(parts.y))
        self.table = from_bits(self.sets, self.labels)

    def codes(self, y: Array) -> npt.NDArray[np.int64]:
        """Classes (N,) of targets (N, labels); -1: a set that the training samples have not."""
        bits = to_bits(y)
        at = np.minimum(np.searchsorted(self.sets, bits), max(0, len(self.sets) - 1))
        return np.where(self.sets[at] == bits, at, -1) if len(self.sets) else np.full(len(bits), -1)

    def scores(self, outputs: Array) -> npt.NDArray[np.float32]:
        """What outputs (N, labels), logits, say of each set: (N, classes)."""
        return np.asarray(outputs @ self.table.T)

    def judged(self) -> Labelled | None:
        """Validation samples in these classes; None: there are none."""
        if self.parts.validation is None:
            return None
        x, y = self.parts.validation
        outputs = self.parts.model.predict_fn(x)
        return Labelled(self.codes(y), lambda theta: self.scores(outputs(theta)))


def to_bits(y: Array) -> npt.NDArray[np.int64]:
    """Sets of labels (N, labels) of 0 and 1 as whole numbers (N,): bit k is label k."""
    return (np.asarray(y) > 0).astype(np.int64) @ (1 << np.arange(y.shape[1], dtype=np.int64))


def from_bits(sets: npt.NDArray[np.int64], labels: int) -> npt.NDArray[np.float32]:
    """Sets (N,) as `to_bits` makes them, as 0 and 1 (N, labels)."""
    return ((sets[:, None] >> np.arange(labels)) & 1).astype(np.float32)


class Taught:
    """The training fields of a device with some of its unlabelled samples.

    What a gradient needs (the samples side by side, the front of their changed copies) is made at its first call, and
    kept for later rounds until one with other labels is called, or `release` is: it is the most that a device holds.

    Args:
        loose: the unlabelled samples. trains: parts -> the fields.
    """

    def __init__(self, parts: DeviceParts, loose: Array, trains: Callable[[DeviceParts], Fields]) -> None:
        self.parts, self.loose, self.trains = parts, loose, trains
        self.key, self.fields = b"", Fields()

    def __call__(self, rows: npt.NDArray[np.intp], labels: npt.NDArray[np.int64]) -> Fields:
        def late(name: str) -> Callable[..., Any]:
            return lambda *given: self.make(name, rows, labels)(*given)

        plain = self.trains(self.parts)
        fields = {name: late(name) if callable(value) else value for name, value in plain.items()}
        return {**fields, "samples": len(self.parts.x) + len(rows)}

    def make(self, name: str, rows: npt.NDArray[np.intp], labels: npt.NDArray[np.int64]) -> Callable[..., Any]:
        """A field with all that it needs, and nothing that another one does: as it was made last, or anew."""
        key = np.asarray(rows, np.int64).tobytes() + np.asarray(labels, np.int64).tobytes()
        if key != self.key:
            self.release()
            self.key = key
        if name not in self.fields:
            x = np.concatenate([self.parts.model.samples(self.parts.x), self.loose[rows]])
            own = self.parts.y
            y = np.concatenate([own, labels.astype(own.dtype) if own.ndim == 1 else from_bits(labels, own.shape[1])])
            self.fields[name] = self.trains(replace(self.parts, x=x, y=y))[name]
        found: Callable[..., Any] = self.fields[name]
        return found

    def release(self) -> None:
        """Gives up what was made: it is made again, to the bit, when a gradient is asked for again."""
        self.key, self.fields = b"", Fields()
