"""Pace of checkpoints: one after each round, where that takes a small share of the time; else more seldom."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf

SHARE = 0.05
"""Of a simulation's time, which its checkpoints may take."""


class SavingPace:
    """Says when a checkpoint is due.

    Args:
        most: seconds between two of them, at most; inf: there are none.
        clock: returns seconds.
    """

    def __init__(self, most: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.most, self.clock = most, clock
        self.ended, self.took, self.worked = clock(), 0.0, 0.0

    @contextmanager
    def working(self) -> Iterator[None]:
        """Around the work of clients that were asked together."""
        began = self.clock()
        yield
        self.worked = self.clock() - began

    @contextmanager
    def saving(self) -> Iterator[None]:
        """Around a checkpoint."""
        began = self.clock()
        yield
        self.ended = self.clock()
        self.took = self.ended - began

    def is_due(self) -> bool:
        """True if one is to follow the answers of the clients that are asked now, who take as long as those before."""
        since = self.clock() - self.ended + self.worked
        return self.most < inf and since >= min(self.most, self.took / SHARE)
