"""Which of a hospital's clients are there: by their behaviour, by a cohort that is drawn, and who judges models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from zlib import crc32

import numpy as np

from edge_sdk.contract.children.choice import Ordered, in_order, pick
from edge_sdk.simulation.clients.behaviour import ClientHabits, Ids, identify

COHORT, JUDGES = 32, 33
"""Purposes of random streams."""
Names = tuple[str, ...]


class Crowd:
    """All clients of a run, by hospital.

    Args:
        tree: hospital -> its clients, in the order of their names.
        habits: of the clients.
        seed: of the run.
        judges: most clients that judge models in an evaluation; 0: all.
        cohort: clients that take part in a round, where the method itself draws nobody; 0: all.
    """

    def __init__(
        self, tree: Mapping[str, Sequence[str]], habits: ClientHabits, seed: int, judges: int = 0, cohort: int = 0
    ) -> None:
        self.tree = {hospital: in_order(names) for hospital, names in tree.items()}
        self.habits, self.seed, self.cohort = habits, seed, cohort
        self.ids: dict[str, Ids] = {}
        self.sizes = {hospital: len(names) for hospital, names in self.tree.items()}
        self.judges = self.draw(judges, JUDGES) if judges else self.tree
        self.drawn: tuple[int, Mapping[str, Names]] = (-1, self.tree)

    def draw(self, count: int, *purpose: int) -> dict[str, Names]:
        """So many clients of all hospitals together, uniformly without replacement."""
        random, hospitals = np.random.default_rng([self.seed, *purpose]), sorted(self.tree)
        sizes = np.array([self.sizes[h] for h in hospitals], np.int64)
        counts = random.multivariate_hypergeometric(sizes, min(count, int(sizes.sum())), method="marginals")
        return {h: self.choose(h, int(k), *purpose) for h, k in zip(hospitals, counts, strict=True)}

    def choose(self, hospital: str, count: int, *purpose: int) -> Names:
        return pick(self.tree[hospital], count, self.seed, crc32(hospital.encode()), *purpose)

    def present(self, hospital: str, now: float, round: int) -> Names:
        """The clients of a hospital that may be asked at a time, in a round of the aggregator."""
        names: Names = self.tree[hospital]
        if self.cohort:
            if self.drawn[0] != round:
                self.drawn = (round, self.draw(self.cohort, COHORT, round))
            names = self.drawn[1][hospital]
        if self.habits.how.always_there:
            return names
        ids = self.identify_all(hospital, names)
        return Ordered(names[i] for i in np.flatnonzero(self.habits.here(ids, now)))

    def identify_all(self, hospital: str, names: Names) -> Ids:
        if names is not self.tree[hospital]:
            return np.array([identify(name) for name in names], np.uint64)
        if hospital not in self.ids:
            self.ids[hospital] = np.array([identify(name) for name in names], np.uint64)
        return self.ids[hospital]
