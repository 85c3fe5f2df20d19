"""Linear models and trees that tell the class or values of each step of a window, by features of what is around."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from edge_sdk.data.steps import step_edges
from edge_sdk.replay.neighbours.features import Floats, features_of
from edge_sdk.replay.neighbours.fitted import fit_linear, fit_ridge, fit_trees, fit_value_trees

Array = npt.NDArray[Any]
REACH = 4
"""Steps to both sides over which features are averaged, too."""
RAREST = 1e-9
FEW_TREES = 50
"""Trees for values at steps: each looks at all of five times as many features, for each step, which takes minutes
with as many as windows have."""


def step_features(x: Array, steps: int) -> Floats:
    """Features of each step of windows (N, channels, samples), float64 (N, steps, F).

    They are those of the step itself, of the one before and the one after (at an end the step again), their means over
    REACH steps to both sides, and those of the whole window.
    """
    edges = step_edges(x.shape[-1], steps)
    length = int(np.diff(edges).min())
    own = np.stack([features_of(np.ascontiguousarray(x[..., a : a + length])) for a in edges[:-1].tolist()], 1)
    place = np.arange(steps)
    before, after = (own[:, np.clip(place + by, 0, steps - 1)] for by in (-1, 1))
    ends = np.clip(place - REACH, 0, None), np.clip(place + REACH + 1, None, steps)
    sums = np.concatenate([np.zeros_like(own[:, :1]), np.cumsum(own, 1)], 1)
    around = (sums[:, ends[1]] - sums[:, ends[0]]) / (ends[1] - ends[0])[:, None]
    whole = np.repeat(features_of(x)[:, None], steps, 1)
    return np.concatenate([own, before, after, around, whole], 2)


def fit_steps(trees: bool, value: float, x: Floats, y: Array, seed: int) -> Callable[[Floats], Floats]:
    """A model of features (N, S, F) and classes (N, K, S), as 0 and 1: features -> log-probabilities (N, K, S).

    Args:
        trees: or a multinomial logistic regression. value: samples in a leaf, or the penalty.
    """
    flat, known = np.moveaxis(y, 1, 2).reshape(-1, y.shape[1]), y.any(1).ravel()
    rows, codes = x.reshape(-1, x.shape[2])[known], flat[known].argmax(1)
    classes = y.shape[1]
    scores = (
        fit_trees(rows, codes, classes, int(value), seed)
        if trees
        else fit_linear(rows, codes, rows, classes, 1 / value)
    )

    def predict(new: Floats) -> Floats:
        found = np.log(np.clip(scores(new.reshape(-1, new.shape[2])), RAREST, 1.0))
        return np.moveaxis(found.reshape(len(new), -1, classes), 1, 2)

    return predict


def fit_step_values(
    trees: bool, value: float, x: Floats, targets: tuple[Array, npt.NDArray[np.bool_]], seed: int
) -> Callable[[Floats], Floats]:
    """A model of features (N, S, F) and targets: features -> values (N, K, S).

    Args:
        trees: or ridge regression. value: samples in a leaf, or the penalty.
        targets: (N * S, K), and which of these are known, (N * S,).
    """
    (y, known), rows = targets, x.reshape(-1, x.shape[2])
    x, y = rows[known], y[known]
    fitted = fit_value_trees(x, y, int(value), seed, FEW_TREES) if trees else fit_ridge(x, y, value)

    def predict(new: Floats) -> Floats:
        found = fitted(new.reshape(-1, new.shape[2]))
        return np.moveaxis(found.reshape(len(new), -1, y.shape[1]), 1, 2)

    return predict
