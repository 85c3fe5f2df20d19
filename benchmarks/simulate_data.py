"""The work of the race in simulate.py, the same for all who take part: data, sizes, and one local epoch.

An MLP of 561 inputs, 64 hidden units with ReLU and 6 classes; each client has 50 samples, and makes one epoch of SGD
with batches of 10 (step 0.05, no decay) from the model of the round. The new model is the mean over the cohort. It
needs numpy alone, so it is imported in every environment.
"""

from __future__ import annotations

import numpy as np

INPUTS, HIDDEN, CLASSES = 561, 64, 6
SAMPLES, BATCH, STEP = 50, 10, 0.05
SHAPE = (INPUTS,)
POOL = 7352
WORKS = {"mlp": "simulate_data", "wrist": "simulate_wrist"}
"""Name of a model -> module of its work."""


def pool():
    """x float32 (7352, 561), y int64 (7352,)."""
    random = np.random.default_rng(0)
    return random.standard_normal((POOL, INPUTS), np.float32), random.integers(0, CLASSES, POOL)


def rows_of(client: int):
    """The rows of the pool that a client has: found in no time, as it is not what the race is about."""
    return (client * SAMPLES + np.arange(SAMPLES)) * 7919 % POOL


def initial():
    """W1 (64, 561), b1, W2 (6, 64), b2."""
    random = np.random.default_rng(2)
    shapes = (HIDDEN, INPUTS), (HIDDEN,), (CLASSES, HIDDEN), (CLASSES,)
    return [(0.05 * random.standard_normal(shape)).astype(np.float32) for shape in shapes]


def train(parameters, x, y, seed: int):
    """One epoch in plain numpy; returns the new parameters."""
    w1, b1, w2, b2 = (p.copy() for p in parameters)
    order = np.random.default_rng(seed).permutation(len(x))
    for start in range(0, len(x), BATCH):
        rows = order[start : start + BATCH]
        a, t = x[rows], y[rows]
        h = np.maximum(a @ w1.T + b1, 0)
        z = h @ w2.T + b2
        z -= z.max(1, keepdims=True)
        p = np.exp(z)
        p /= p.sum(1, keepdims=True)
        p[np.arange(len(rows)), t] -= 1
        p /= len(rows)
        g = (p @ w2) * (h > 0)
        w2 -= STEP * (p.T @ h)
        b2 -= STEP * p.sum(0)
        w1 -= STEP * (g.T @ a)
        b1 -= STEP * g.sum(0)
    return [w1, b1, w2, b2]
