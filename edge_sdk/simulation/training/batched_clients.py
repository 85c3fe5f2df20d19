"""Clients that train together: the steps of many in one call, on a GPU where there is one.

Roles know nothing of it. Each client's call goes its way in a thread of its own until it wants to train; one thread
goes on at a time, in the order of the clients, so nothing depends on chance. When all have come so far, or are done,
their steps are made together, and each goes on with its own. What they come to differs from what each would come to by
itself by rounding alone; the first steps of the first client of each kind are made both ways and compared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from edge_sdk.algebra.vectors import Vector
from edge_sdk.contract.environment.gradients import NOTHING, GradientCounter
from edge_sdk.methods.shared.training.local import Gradient
from edge_sdk.model.inputs import even_weights
from edge_sdk.model.model import Model
from edge_sdk.simulation.training.epochs import TrainingCalls, descend_singly
from edge_sdk.simulation.training.lockstep import Lockstep

MOST = 64
"""Clients that train in one call, at most: their samples and activations are in memory together."""
CLOSE = 1e-3
"""Of the length of a step: how far both ways of making it may be apart. Rounding makes some 1e-6."""
COMPARED = 4
"""Steps that are compared."""
Array = npt.NDArray[Any]
Train = Callable[..., tuple[Array, Array]]
"""As `aggregator.cohort.CohortSteps`."""


@dataclass(frozen=True)
class WantedSteps:
    """Steps that a client wants to make, as `methods.shared.training.local.descend` has them.

    Attributes:
        gradient: of the client.
        v: (n,) where it is; changed in place.
        rows: samples of each step.
    """

    gradient: CohortGradient
    v: Vector
    rows: Sequence[Array]
    eta: float
    damp: float
    pull: Vector | None
    base: Vector | None

    @property
    def kind(self) -> tuple[Any, ...]:
        """What those that train in one call have in common."""
        return (id(self.gradient.training), self.pull is None, self.base is None)

    def singly(self, v: Vector) -> list[float]:
        """Makes them one by one on v."""
        return descend_singly(self.gradient.step, v, self.rows, self.eta, self.damp, self.pull, self.base)


class CohortTraining:
    """What makes the steps of clients of one model.

    Args:
        model: of all of them.
        train: makes them.
        name: of the processor that does, for people.

    Attributes:
        gradient_type: of the clients' gradients.
    """

    gradient_type: type[CohortGradient]

    def __init__(self, model: Model, train: Train, name: str, trained: TrainingCalls) -> None:
        self.model, self.train, self.name, self.trained = model, train, name, trained
        self.trusted: dict[tuple[Any, ...], bool] = {}

    def __call__(self, some: Sequence[WantedSteps]) -> list[list[float]]:
        """The losses of each client's steps, which are made: together, or one by one where that is not as good."""
        first = some[0]
        if first.kind not in self.trusted:
            self.trusted[first.kind] = self.compare(first)
        if not self.trusted[first.kind]:
            return [self.make_singly(each) for each in some]
        self.trained.together += sum(len(each.rows) for each in some)
        for each in some:
            each.gradient.gradients.add(sum(map(len, each.rows)))
        return self.make(some)

    def make(self, some: Sequence[WantedSteps]) -> list[list[float]]:
        """Makes steps together, on each v in place; returns their losses."""
        ends, losses = self.train(*stacked(some))
        for each, end in zip(some, ends, strict=True):
            each.v[...] = end
        return [line[: len(each.rows)].tolist() for each, line in zip(some, losses, strict=True)]

    def make_singly(self, wanted: WantedSteps) -> list[float]:
        self.trained.step += len(wanted.rows)
        return wanted.singly(wanted.v)

    def compare(self, wanted: WantedSteps) -> bool:
        """True if each of a client's first steps is the same both ways, but for rounding.

        Each begins where those made together have come so far: two ways of their own soon differ by percents where a
        network has kinks, although all of their steps are right.
        """
        off, at = 0.0, wanted.v
        for k in range(min(len(wanted.rows), COMPARED)):
            end, expected = wanted.v.copy(), at.copy()
            self.make([replace(wanted, v=end, rows=wanted.rows[: k + 1])])
            with wanted.gradient.gradients.counting(NOTHING):
                replace(wanted, rows=wanted.rows[k : k + 1]).singly(expected)
            step = max(float(np.linalg.norm(expected - at)), 1e-30)
            off, at = max(off, float(np.linalg.norm(end - expected)) / step), end
        if off > CLOSE:
            self.trained.note(f"{self.model.name}: steps of clients together are off by {off:.1e}")
        return off <= CLOSE


def stacked(some: Sequence[WantedSteps]) -> tuple[Any, ...]:
    """Arguments of `Train`. Who makes fewer steps, or of fewer samples, is filled up with samples of weight 0."""
    steps, size = max(len(each.rows) for each in some), max(len(row) for each in some for row in each.rows)
    order = np.zeros((len(some), steps, size), np.int64)
    weights = np.zeros((len(some), steps, size), np.float32)
    for c, each in enumerate(some):
        for k, row in enumerate(each.rows):
            order[c, k, : len(row)] = row
            weights[c, k, : len(row)] = even_weights(len(row))
    x = np.stack([each.gradient.x[rows] for each, rows in zip(some, order, strict=True)])
    y = np.stack([each.gradient.y[rows] for each, rows in zip(some, order, strict=True)])
    eta = np.array([each.eta for each in some], np.float32)
    keep = np.array([1 - each.eta * each.damp for each in some], np.float32)
    base = None if some[0].base is None else np.stack([each.base for each in some if each.base is not None])
    push = None if some[0].pull is None else np.stack([each.eta * each.pull for each in some if each.pull is not None])
    return np.stack([each.v for each in some]), x, y, weights, eta, keep, base, push


class CohortGradient:
    """A client's gradient, whose steps are made with those of others: see `methods.shared.training.local.descend`.

    Args:
        step: its gradient for one step.
        training: of its model.
        lockstep: in which its call goes on.
        x, y: its samples (N, ...) and labels.
        gradients: counts those of steps with others; `step` counts its own.
    """

    def __init__(
        self,
        step: Gradient,
        training: CohortTraining,
        lockstep: Steps,
        x: Array,
        y: Array,
        gradients: GradientCounter | None = None,
    ) -> None:
        rows = training.model.samples(x)
        self.step, self.training, self.lockstep = step, training, lockstep
        self.gradients = gradients or GradientCounter()
        self.x, self.y = rows, training.model.targets(y, len(rows))

    def __call__(self, theta: Vector, indices: Any = None) -> tuple[float, Vector]:
        return self.step(theta, indices)

    def descend(
        self, v: Vector, steps: Sequence[Any], eta: float, damp: float, pull: Vector | None, base: Vector | None
    ) -> list[float]:
        """Makes steps of SGD on v (n,) in place; returns their losses."""
        if not steps:
            return []
        rows = [np.arange(len(self.x)) if indices is None else np.asarray(indices) for indices in steps]
        return self.lockstep.ask(WantedSteps(self, v, rows, eta, damp, pull, base))


CohortTraining.gradient_type = CohortGradient


def train_all(wanted: Sequence[WantedSteps]) -> list[list[float]]:
    """The losses of all that is wanted, in its order; what has one kind is made in one call."""
    found: dict[int, list[float]] = {}
    for kind in dict.fromkeys(each.kind for each in wanted):
        at = [i for i, each in enumerate(wanted) if each.kind == kind]
        found |= zip(at, wanted[at[0]].gradient.training([wanted[i] for i in at]), strict=True)
    return [found[i] for i in range(len(wanted))]


Steps = Lockstep[WantedSteps, list[float]]
"""In which clients make their steps."""


def make_lockstep() -> Steps:
    return Lockstep(train_all, MOST)
