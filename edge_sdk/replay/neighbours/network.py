"""The run's network as a neighbour: trained by plain Adam, on one device's samples or on all in one place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from edge_sdk.algebra.optim import Adam
from edge_sdk.algebra.running_statistics import step_with_statistics
from edge_sdk.algebra.vectors import Vector
from edge_sdk.data.augment import Augment, augment
from edge_sdk.model.model import Model
from edge_sdk.model.split_model import SplitModel
from edge_sdk.replay.neighbours.features import Floats
from edge_sdk.replay.neighbours.holders import Array, Codes, Part

BATCH = 32


def is_classifier(model: Model, x: Array, classes: int) -> bool:
    """Can the model learn samples like these, with so many classes?"""
    if isinstance(model, SplitModel) or model.loss != "cross_entropy" or model.classes < classes:
        return False
    return x.dtype.names is None and x.shape[1:] == model.input_shape


def train_network(
    model: Model, train: Part, steps: Sequence[int], how: Augment, random: np.random.Generator
) -> Iterator[Vector]:
    """The model, a new vector each time, after each of so many steps, ascending."""
    theta, tool, drawn, done = model.theta0.copy(), Adam(), draw_batches(len(train[1]), random), 0
    x, y = model.samples(train[0]), train[1]
    slope = model.grad_fn(x, y)
    for wanted in steps:
        for _ in range(wanted - done):
            rows = next(drawn)
            if how.changes:
                found = model.grad_fn(augment(x[rows], how, random), y[rows])(theta, None, random)[1]
            else:
                found = slope(theta, rows, random)[1]
            step_with_statistics(model.layout, tool, theta, found)
        done = wanted
        yield theta.copy()


def draw_batches(count: int, random: np.random.Generator) -> Iterator[Codes]:
    """Batches without end, epoch after epoch; all of one size, so what remains of an epoch is left out."""
    size = min(BATCH, count)
    while True:
        order = random.permutation(count)
        for begin in range(0, count - size + 1, size):
            yield order[begin : begin + size]


def network_scores(model: Model, theta: Vector, x: Array, classes: int) -> Floats:
    """Scores (N, classes) of samples."""
    if not len(x):
        return np.zeros((0, classes))
    return np.asarray(model.predict(theta, x)[:, :classes], np.float64)
