"""What a device learns from by itself: features of its own windows, and windows that nobody has labelled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from edge_sdk.algebra.window_features import window_features
from edge_sdk.contract.environment.samples import OwnWindows
from edge_sdk.data.augment import augment
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
    x, y = parts.model.samples(parts.x), np.asarray(parts.y, np.int64)
    if not has_features(x):
        return None
    loose, recording = (x[:0], np.zeros(0, np.int64)) if parts.unlabelled is None else parts.unlabelled
    loose = parts.model.samples(loose)

    def features(copies: int, random: np.random.Generator) -> npt.NDArray[np.float32]:
        changed = (augment(x, parts.augment, random) for _ in range(copies if parts.augment.changes else 0))
        return np.concatenate([plain(), *map(features_of, changed)])

    plain, unlabelled = cache(lambda: features_of(x)), cache(lambda: features_of(loose))
    bound = cache(lambda: parts.model.predict_fn(parts.model.bind(loose)))
    taught = Taught(parts, loose, trains)
    return OwnWindows(
        labels=y,
        features=features,
        count=len(loose),
        recording=np.asarray(recording, np.int64),
        unlabelled=unlabelled,
        logits=lambda theta: bound()(theta),
        taught=taught,
        release=taught.release,
    )


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
            y = np.concatenate([self.parts.y, labels.astype(self.parts.y.dtype)])
            self.fields[name] = self.trains(replace(self.parts, x=x, y=y))[name]
        found: Callable[..., Any] = self.fields[name]
        return found

    def release(self) -> None:
        """Gives up what was made: it is made again, to the bit, when a gradient is asked for again."""
        self.key, self.fields = b"", Fields()
