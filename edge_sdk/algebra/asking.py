"""Stretches of time whose label would help most: pure functions of arrays.

stretches   neighbouring windows of a recording that the model calls the same, at most so long             stretches
unsure      1 - (P(likeliest) - P(second)), of the mean probabilities of a stretch                         margins
far         distance of its mean features to the nearest labelled window or stretch that was chosen
apart       time to the nearest stretch that was chosen, over itself plus an hour
chosen      one after the other, the stretch with the largest unsure x far x apart                          choose

Sources: T. Scheffer, C. Decomain, S. Wrobel, "Active hidden Markov models for information extraction", IDA 2001
(margins); O. Sener, S. Savarese, "Active learning for convolutional neural networks: a core-set approach", ICLR 2018
(far from what is labelled, one after the other).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating]
Integers = npt.NDArray[np.integer]

HOUR = 3600.0
LEAST = 1e-3
"""Share of a factor that stays where it is nothing: else a model that is sure of everything could ask no question."""
SURE = 1e-9


def stretches(
    recording: Integers, codes: Integers, began: Floats, ended: Floats, longest: float
) -> list[tuple[int, int]]:
    """First window and end (exclusive) of each stretch.

    Args:
        recording, codes, began, ended: (N,) of windows in order of time: where each lies, what the model calls it, and
            its times in seconds. A stretch has no hole: each window of it begins before the one before has ended.
        longest: seconds of a stretch, at most, unless one window is longer.
    """
    found, start = list[tuple[int, int]](), 0
    for at in range(1, len(codes) + 1):
        goes_on = (
            at < len(codes)
            and recording[at] == recording[start]
            and codes[at] == codes[start]
            and began[at] <= ended[at - 1]
            and ended[at] - began[start] <= longest
        )
        if not goes_on:
            found.append((start, at))
            start = at
    return found if len(codes) else []


def means_of(values: Floats, parts: Sequence[tuple[int, int]]) -> Floats:
    """Means over the rows of each stretch, (stretches, ...)."""
    return np.array([values[begin:end].mean(0) for begin, end in parts]).reshape(len(parts), values.shape[1])


def margins(p: Floats) -> Floats:
    """Uncertainty (N,), from 0 to 1, of probabilities (N, classes)."""
    if p.shape[1] < 2:
        return np.zeros(len(p))
    top = np.sort(p, 1)
    return np.asarray(1 - (top[:, -1] - top[:, -2]))


def choose(unsure: Floats, features: Floats, labelled: Floats, middle: Floats, most: int) -> list[int]:
    """Numbers of the stretches to ask for, the most useful first.

    Args:
        unsure: (N,). features: (N, F), of stretches. labelled: (M, F), of windows that have a label.
        middle: (N,), their times in seconds.
        most: how many, at most.
    """
    x, known = standardised(features, labelled)
    near = nearest(x, known)
    apart, chosen = np.ones(len(x)), list[int]()
    while len(chosen) < min(most, len(x)):
        far = near / near.max() if np.isfinite(near).all() and near.max() > 0 else np.ones(len(x))
        worth = np.maximum(unsure, LEAST) * np.maximum(far, LEAST) * apart
        worth[chosen] = -1.0
        best = int(worth.argmax())
        chosen.append(best)
        near = np.minimum(near, nearest(x, x[best : best + 1]))
        since = np.abs(middle - middle[best])
        apart = np.minimum(apart, since / (since + HOUR))
    return chosen


def standardised(features: Floats, labelled: Floats) -> tuple[Floats, Floats]:
    """Both, by the means and deviations over all of them."""
    both = np.concatenate([features, labelled]).astype(np.float64)
    mean, scale = both.mean(0), both.std(0)
    scale = np.where(scale > SURE, scale, 1.0)
    return (features - mean) / scale, (labelled - mean) / scale


def nearest(x: Floats, others: Floats) -> Floats:
    """Distance (N,) of each row to the nearest of others; where there are none, infinite."""
    if not len(others):
        return np.full(len(x), np.inf)
    squares = (x**2).sum(1)[:, None] + (others**2).sum(1) - 2 * x @ others.T
    return np.asarray(np.sqrt(np.maximum(squares.min(1), 0)))
