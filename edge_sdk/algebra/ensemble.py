"""Predictions of two models together, of classes that a device knows, and over several windows in a row.

All of it works on log-probabilities, float64 (samples, classes); a class that is ruled out has -inf there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import exp
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from edge_sdk.algebra.arrays import Values
from edge_sdk.errors import UsageError

if TYPE_CHECKING:
    from edge_sdk.algebra.forest import Forest

Floats = npt.NDArray[np.floating]
NO_FOREST = np.zeros(0, np.float32)
COMPANION = "companion"
"""Name of the model of a device of another architecture; no device has another one beside it."""


@dataclass(frozen=True)
class Ensemble:
    """The way in which a device's personal model predicts.

    Attributes:
        weight: of the device's own model, from 0 (the personalised model only) to 1 (its own only).
        classes: codes of the classes that may be predicted; empty: all.
        forest: its own model, where that is a forest (`forest.pack`); empty: it is the model "local".
    """

    weight: float = 0.0
    classes: tuple[int, ...] = ()
    forest: Values = field(default_factory=lambda: NO_FOREST, compare=False)

    @cached_property
    def trees(self) -> Forest | None:
        """The forest, checked at its first use. Raises UsageError if it is damaged."""
        from edge_sdk.algebra.forest import unpack

        return unpack(self.forest)

    def __post_init__(self) -> None:
        if not 0 <= self.weight <= 1:
            raise UsageError(f"ensemble: weight = {self.weight}, it lies between 0 and 1")
        if any(c < 0 for c in self.classes):
            raise UsageError(f"ensemble: classes = {self.classes}, codes are 0 or more")


def combined(
    ensemble: Ensemble, personal: Floats, local: Callable[[], Floats], features: Callable[[], Floats]
) -> Floats:
    """Log-probabilities, up to a constant for each sample, as an ensemble has them.

    Args:
        personal: outputs of the personalised model, (samples, classes); local: gives those of the local model.
        features: gives what a forest sees of the samples, (samples, F).
    """
    from edge_sdk.algebra.forest import log_votes

    own = log_probabilities(personal, ensemble.classes)
    if ensemble.weight == 0:
        return own
    forest = ensemble.trees
    if forest is None:
        return pooled(own, log_probabilities(local(), ensemble.classes), ensemble.weight)
    votes = voted(log_votes(forest, features()), personal.shape[1], ensemble.classes)
    return pooled(own, votes, ensemble.weight)


def voted(votes: Floats, classes: int, known: Sequence[int] = ()) -> Floats:
    """Logarithms of votes for some classes as log-probabilities (samples, classes), of the known ones only."""
    from edge_sdk.algebra.forest import FLOOR

    padded = np.full((len(votes), classes), np.log(FLOOR))
    padded[:, : votes.shape[1]] = votes[:, :classes]
    return log_probabilities(padded, known)


def log_probabilities(logits: Floats, classes: Sequence[int] = ()) -> Floats:
    """log softmax of (samples, classes) logits over the classes that are named (none: all); the others get -inf."""
    z = logits.astype(np.float64)
    if len(classes):
        ruled_out = np.ones(z.shape[1], np.bool_)
        ruled_out[list(classes)] = False
        z[:, ruled_out] = -np.inf
    z -= z.max(1, keepdims=True)
    return np.asarray(z - np.log(np.exp(z).sum(1, keepdims=True)))


def probabilities(logits: Floats, classes: Sequence[int] = ()) -> Floats:
    """softmax of (samples, classes) logits over the classes that are named (none: all); the others get 0."""
    if len(classes):
        return np.asarray(np.exp(log_probabilities(logits, classes)))
    if len(logits) == 1:  # one window, many times a second: numpy's calls would cost more than the arithmetic
        row = logits[0].tolist()
        top = max(row)
        weights = [exp(z - top) for z in row]
        total = sum(weights)
        return np.array([[weight / total for weight in weights]])
    return np.asarray(np.exp(log_probabilities(logits)))


def pooled(personal: Floats, local: Floats, weight: float) -> Floats:
    """(1 - weight) * personal + weight * local: the logarithmic opinion pool, up to a constant for each sample.

    Args:
        personal, local: log-probabilities with the same classes ruled out.
    """
    if weight in (0, 1):  # 0 * -inf is not a number
        return local if weight else personal
    return (1 - weight) * personal + weight * local


def mixed(ensemble: Ensemble | None, personal: Floats, local: Callable[[], Floats]) -> Floats:
    """Outputs of two models that predict no class, together: (1 - weight) personal + weight local.

    Of numbers that is their mean, of logits the logarithmic opinion pool. `local`: gives those of the local model.
    """
    weight = 0.0 if ensemble is None else ensemble.weight
    return personal if weight == 0 else pooled(personal, local(), weight)


def smoothed(scores: Floats, last: int, recording: npt.NDArray[np.integer] | None = None) -> Floats:
    """Mean probabilities over up to `last` windows, each window with those before it in its recording.

    Args:
        scores: log-probabilities, or any logits, of windows in time order.
        last: windows, this one included; 1 changes nothing but the scale.
        recording: which recording each window lies in; None: all in one.
    """
    if last < 1:
        raise UsageError(f"smoothing over {last} windows: at least 1")
    p = np.exp(log_probabilities(scores))
    which = np.zeros(len(p), np.int64) if recording is None else np.asarray(recording)
    total, count = p.copy(), np.ones((len(p), 1))
    for back in range(1, min(last, len(p))):
        same = (which[back:] == which[:-back])[:, None]
        total[back:] += np.where(same, p[:-back], 0)
        count[back:] += same
    return np.asarray(total / count)
