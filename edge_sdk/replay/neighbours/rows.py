"""FoundNeighbours as rows of a result: metrics on each device's test part, and what was chosen, in JSON's types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from edge_sdk.algebra.metrics.classification import confusion
from edge_sdk.replay.metrics.scores import (
    ALONE,
    ALONE_LINEAR,
    ALONE_NETWORK,
    ALONE_TREES,
    FLEET,
    MIXED,
    POOLED,
    choose_for_fleet,
    find_trial,
    with_models,
)
from edge_sdk.replay.neighbours.candidates import KINDS, LINEAR, NETWORK, TREES
from edge_sdk.replay.neighbours.find import BestOfKind, FoundNeighbours
from edge_sdk.replay.neighbours.holders import Holder

Device = Mapping[str, Any]
ROWS = {TREES: ALONE_TREES, LINEAR: ALONE_LINEAR, NETWORK: ALONE_NETWORK}
"""Kind -> name of its row among a device's models, where it was trained here."""


def find_own_network(written: Sequence[Device]) -> tuple[str, int] | None:
    """The network that these devices of a fleet have trained alone already, and validation samples that it gets right.

    Returns:
        The name of its row: `FLEET` where they have trained in all ways, one of which counts for all; `MIXED` where
        they have settled, which trains a local model. None: neither.
    """
    if not written:
        return None
    if all(d["alone"] for d in written) and (choice := choose_for_fleet([d["alone"] for d in written])):
        return FLEET, sum(find_trial(d["alone"], *choice)["validation_correct"] for d in written)
    judged = [d["confusion"] for d in written]
    if all("local" in found.get("test", {}) for found in judged):
        matrices = [np.array(found.get("validation", {}).get("local", [[0]])) for found in judged]
        return MIXED, sum(int(np.trace(m)) for m in matrices)
    return None


def choose_alone(found: FoundNeighbours, network: tuple[str, int] | None) -> tuple[str, dict[str, int]]:
    """The kind of model by which a device does best alone, of equals the first; and what each kind gets right."""
    right = {kind: one.right for kind, one in found.alone.items()}
    if network is not None:
        right[NETWORK] = network[1]
    return max((k for k in KINDS if k in right), key=right.__getitem__), right


def rows_of(
    found: FoundNeighbours, network: tuple[str, int] | None, written: Sequence[Device], classes: int
) -> dict[str, dict[str, Any]]:
    """Device -> row -> confusion matrix on its test samples. `network`: as `find_own_network` returns it."""
    if not found.alone and network is None:
        return {}
    kind, _ = choose_alone(found, network)
    named = network[0] if network is not None and kind == NETWORK else ROWS[kind]
    own = {str(d["device"]): d for d in written}
    rows = {h.name: matrices_of(found, h, classes) for h in found.holders if len(h.test[1])}
    for name, matrices in rows.items():
        if (best := matrices.get(named, own_matrix(own[name], named, written))) is not None:
            matrices[ALONE] = best
    return rows


def matrices_of(found: FoundNeighbours, holder: Holder, classes: int) -> dict[str, Any]:
    """The rows of one device."""
    guesses = {ROWS[k]: one.test[holder.name] for k, one in found.alone.items()}
    if (together := best_of(found.pooled)) is not None:
        guesses[POOLED] = found.pooled[together].test[holder.name]
    return {name: confusion(holder.test[1], codes, classes).tolist() for name, codes in guesses.items()}


def own_matrix(d: Device, row: str, written: Sequence[Device]) -> Any:
    """The matrix of a network that the device itself has trained alone; None: it has none."""
    if row == MIXED:
        return d["confusion"].get("test", {}).get("local")
    choice = choose_for_fleet([one["alone"] for one in written if one["alone"]])
    return find_trial(d["alone"], *choice)["test"] if choice is not None and d["alone"] else None


def add_rows(devices: Sequence[Device], rows: Mapping[str, Mapping[str, Any]], classes: Sequence[str]) -> list[Device]:
    """The devices' results with the rows of neighbours."""
    found = [{name: np.array(m) for name, m in rows.get(d["device"], {}).items()} for d in devices]
    return [with_models(d, more, classes) if more else d for d, more in zip(devices, found, strict=True)]


def best_of(chosen: Mapping[str, BestOfKind]) -> str | None:
    """The kind that gets most validation samples right, of equals the first; None: there is none."""
    return max((k for k in KINDS if k in chosen), key=lambda k: chosen[k].right, default=None)


def describe_neighbours(
    found: FoundNeighbours, network: tuple[str, int] | None, of: int, seconds: float
) -> dict[str, Any]:
    """What was found, for the result. `of`: devices that there are."""
    kind, right = choose_alone(found, network)
    rows = {k: ROWS[k] for k in found.alone} | ({} if network is None else {NETWORK: network[0]})
    words = {k: one.candidate.words for k, one in found.alone.items()}
    together = best_of(found.pooled)
    return {
        "on": found.on,
        "chosen": kind,
        "samples": found.samples,
        "kinds": {k: {"row": rows[k], "right": right[k], "setting": words.get(k, "")} for k in rows},
        "devices": len(found.holders),
        "of": of,
        "pooled": {
            "chosen": together,
            "samples": found.pool,
            "kinds": {k: {"right": one.right, "setting": one.candidate.words} for k, one in found.pooled.items()},
        },
        "seconds": round(seconds, 1),
    }
