"""Samples of a device as methods see them: behind functions of the model, so that none of them is in a message."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

from edge_sdk.algebra.arrays import ANY, Tensor
from edge_sdk.algebra.vectors import Vector

Outputs = npt.NDArray[np.floating]


@dataclass(frozen=True)
class OutputScores:
    """Judgement of outputs, on some samples, of a model that predicts no class.

    Attributes:
        credits: outputs (samples, ...) -> (samples,), from 0, as wrong as can be, to 1, right.
        sums: outputs (samples, ...) -> their sums of scores, named as those of `NodeEnv.score`.
    """

    credits: Callable[[Outputs], npt.NDArray[np.float64]]
    sums: Callable[[Outputs], Mapping[str, float]]


@dataclass(frozen=True)
class Labelled:
    """Samples of a device that it does not train on, behind a function of the model.

    Attributes:
        labels: int64 (samples,), codes of their classes; of a model that predicts no class its targets (samples, ...).
        logits: theta -> what the model says of them, (samples, classes); its outputs, if it predicts no class.
        features: () -> what a device's own forest sees of them, (samples, F); None: samples of this kind have none.
        scores: of a model that predicts no class.
    """

    labels: npt.NDArray[Any]
    logits: Callable[[Vector], Outputs]
    features: Callable[[], Outputs] | None = None
    scores: OutputScores | None = None


@dataclass(frozen=True)
class OwnWindows:
    """What a device learns from by itself: its labelled samples as features, and those that nobody has labelled.

    Where labels are sets, each set that the device's training samples have is a class here, and what a model says of it
    is the sum of its outputs for the labels in it: the logarithm of the set's probability, up to a constant.

    Attributes:
        labels: int64 (N,), codes of the classes of its training samples.
        features: copies, generator -> features (N + copies N, F) of these samples, and of so many copies of them that
            are changed at random as the run's augmentation says; labels of the copies repeat in the same order.
        count: M, how many samples have no label.
        recording: int64 (M,), the stretch of time that each of them lies in; within one they are in order of time.
        unlabelled: () -> their features (M, F).
        logits: theta -> what a model says of them, (M, classes).
        taught: (rows, labels) -> fields of an env whose gradient also has these unlabelled samples, with these labels.
        marks: () -> int64 (M,), checksums of these samples; None: they are the same for as long as the run lasts.
        release: gives up what the gradient of the last `taught` holds, which is made again when it is asked for.
        grown: what was grown on them last, by all that it depends on beside them: asked for again, it is there.
        sets: int64 (classes,), where labels are sets: bit k of one is set if label k is in it; empty: they are classes.
        judged: where labels are sets, the validation samples in these classes, -1 of a set that is none of them.
    """

    labels: npt.NDArray[np.int64]
    features: Callable[[int, np.random.Generator], npt.NDArray[np.floating]]
    count: int
    recording: npt.NDArray[np.int64]
    unlabelled: Callable[[], npt.NDArray[np.floating]]
    logits: Callable[[Vector], npt.NDArray[np.floating]]
    taught: Callable[[npt.NDArray[np.intp], npt.NDArray[np.int64]], Mapping[str, Any]]
    release: Callable[[], None] = lambda: None
    grown: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)
    sets: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    judged: Labelled | None = None
    marks: Callable[[], npt.NDArray[np.int64]] | None = None


@dataclass(frozen=True)
class SelfLabels:
    """Labels that a device gave to some of its unlabelled samples: `rows` int64 (k,) of them, `labels` int64 (k,).

    They are codes of classes or, as in `OwnWindows.sets`, sets. `marks` int64 (k,): the samples' checksums; empty: it
    is not known which samples they were, as of states that an earlier version has saved.
    """

    rows: Annotated[npt.NDArray[np.int64], Tensor((ANY,), "int64")]
    labels: Annotated[npt.NDArray[np.int64], Tensor((ANY,), "int64")]
    marks: Annotated[npt.NDArray[np.int64], Tensor((ANY,), "int64")] = field(
        default_factory=lambda: np.zeros(0, np.int64)
    )
