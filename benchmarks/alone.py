"""What the holders of benchmarks/settling.py reach alone with other models than the network, and with all data pooled.

The functions are those of the product (edge_sdk/replay/neighbours): the same grids, chosen on validation by the fleet.
The network trained alone is the local model of settling, whose steps the fleet has chosen on validation, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from benchmarks.holders import Holder, Part
from edge_sdk.contract.run import Run
from edge_sdk.model.model import Model
from edge_sdk.nodes.configuration.assembly import augmentation_of
from edge_sdk.replay.neighbours import holders
from edge_sdk.replay.neighbours.candidates import LINEAR, NETWORK, TREES
from edge_sdk.replay.neighbours.find import FoundNeighbours, Question, find_neighbours
from edge_sdk.replay.neighbours.rows import best_of, choose_alone

Accuracies = dict[str, dict[str, float]]
"""Device -> row -> share of test windows; newcomers' names end in "*"."""
KEYS = {TREES: "alone, trees", LINEAR: "alone, linear"}
BEST, POOLED = "best alone", "all data in one place"


def reach_alone(
    fleet: Sequence[Holder],
    newcomers: Sequence[Holder],
    run: Run,
    model: Model,
    network: Accuracies,
    network_right: int,
) -> tuple[Accuracies, dict[str, Any]]:
    """The rows of neighbours, and what was chosen.

    Args:
        network: device -> {"alone": share of test windows that the network trained alone gets right}.
        network_right: validation windows of the fleet that it gets right.
    """
    every = [arrays_of(h) for h in fleet] + [replace(arrays_of(h), name=f"{h.name}*", newcomer=True) for h in newcomers]
    pool = holders.pool_samples([h.train for h in every if not h.newcomer], run.seed)
    asked = Question(every, pool, len(run.classes), augmentation_of(run), run.seed, model)
    found = find_neighbours(asked)
    kind, right = choose_alone(found, ("alone", network_right))
    chosen = {"alone": kind, "pooled": best_of(found.pooled), "right": right, "samples": found.samples}
    return {h.name: rows_of(found, h, kind, network[h.name]["alone"]) for h in every}, chosen


def arrays_of(holder: Holder) -> holders.Holder:
    """A holder as the product's functions take it."""
    return holders.Holder(holder.name, *(part(p) for p in (holder.train, holder.validation, holder.test)))


def part(p: Part) -> holders.Part:
    return p.x, p.y


def rows_of(found: FoundNeighbours, h: holders.Holder, kind: str, network: float) -> dict[str, float]:
    """The rows of one device."""

    def accuracy(guessed: Any) -> float:
        return float((guessed == h.test[1]).mean())

    rows = {KEYS[k]: accuracy(one.test[h.name]) for k, one in found.alone.items()}
    rows[BEST] = network if kind == NETWORK else rows[KEYS[kind]]
    together = best_of(found.pooled)
    return rows if together is None else {**rows, POOLED: accuracy(found.pooled[together].test[h.name])}


def right_of(validation: Mapping[str, Mapping[str, float]], windows: Mapping[str, int]) -> int:
    """Validation windows that the network trained alone gets right."""
    return sum(round(found["alone"] * windows[name]) for name, found in validation.items() if windows[name])
