"""Count of the gradients that a device computes: what a method costs it, whatever its settings are called."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

ROUNDS, PHASES, NOTHING = "rounds", "phases", ""
PURPOSES = (ROUNDS, PHASES)


class GradientCounter:
    """Counter of gradients of single samples: a step on 20 of them counts as 20. Not for several threads.

    Args:
        counts: purpose -> gradients so far, where several devices are added up; None: of its own.

    Attributes:
        purpose: what they are computed for now: ROUNDS; PHASES, those after the rounds; or NOTHING that training needs,
            such as models that are made for an evaluation only, which is not counted.
    """

    def __init__(self, counts: Counter[str] | None = None) -> None:
        self.counts = Counter[str]() if counts is None else counts
        self.purpose = ROUNDS

    def add(self, samples: int) -> None:
        """So many were computed."""
        if self.purpose:
            self.counts[self.purpose] += samples

    @contextmanager
    def counting(self, purpose: str) -> Iterator[None]:
        """While this lasts, they are computed for something else."""
        before, self.purpose = self.purpose, purpose
        try:
            yield
        finally:
            self.purpose = before

    def counted(self, gradient: Callable[..., Any], samples: int) -> Callable[..., Any]:
        """A gradient (theta, indices or None for all, ...), as of `NodeEnv.grad_fn`, that is counted here.

        Args:
            samples: that there are.
        """

        def at(theta: Any, indices: Any = None, *rest: Any) -> Any:
            found = gradient(theta, indices, *rest)
            self.add(samples if indices is None else len(indices))
            return found

        return at
