"""The work of the race in simulate.py with the convolutional network for wrists: as simulate_data.py has it for an MLP.

The network is that of models/zoo/wearable.py, 77,518 parameters; samples are windows of 3 axes and 64 points, of 14
classes. It needs numpy and torch alone, so it is imported in every environment. Clients of other simulators train with
torch: convolutions in plain numpy would be slower.
"""

from __future__ import annotations

import numpy as np
import torch
from simulate_data import BATCH, POOL, SAMPLES, STEP, rows_of
from torch import nn

__all__ = ["BATCH", "CLASSES", "POOL", "SAMPLES", "SHAPE", "STEP", "initial", "network", "pool", "rows_of", "train"]

SHAPE, CLASSES = (3, 64), 14


def pool():
    """x float32 (7352, 3, 64), y int64 (7352,)."""
    random = np.random.default_rng(0)
    return random.standard_normal((POOL, *SHAPE), np.float32), random.integers(0, CLASSES, POOL)


def network():
    """The network, with the same first parameters each time."""
    torch.manual_seed(2)
    stages = [(3, 32), (32, 64)]
    layers = [
        layer
        for a, b in stages
        for layer in (nn.Conv1d(a, b, 5, padding=2), nn.GroupNorm(4, b), nn.ReLU(), nn.MaxPool1d(2))
    ]
    head = nn.Linear(64 * 16, 64), nn.ReLU(), nn.Linear(64, CLASSES)
    return nn.Sequential(*layers, nn.Flatten(), *head)


def initial():
    """Arrays of all parameters, in torch's order."""
    return [p.detach().numpy().copy() for p in network().parameters()]


MADE: list = []  # a network for each process


def train(parameters, x, y, seed: int):
    """One epoch of SGD with torch; returns the new parameters."""
    if not MADE:
        torch.set_num_threads(1)
        MADE.append(network())
    (net,) = MADE
    with torch.no_grad():
        for parameter, value in zip(net.parameters(), parameters, strict=True):
            parameter.copy_(torch.from_numpy(value))
    order = np.random.default_rng(seed).permutation(len(x))
    for start in range(0, len(x), BATCH):
        rows = order[start : start + BATCH]
        net.zero_grad()
        nn.functional.cross_entropy(net(torch.from_numpy(x[rows])), torch.from_numpy(y[rows])).backward()
        with torch.no_grad():
            for parameter in net.parameters():
                parameter -= STEP * parameter.grad
    return [p.detach().numpy().copy() for p in net.parameters()]
