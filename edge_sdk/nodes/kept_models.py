"""What a device keeps of a run that is over: its models and its own scores, in a file that outlives the process."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from edge_sdk.algebra.ensemble import Ensemble
from edge_sdk.algebra.vectors import Vector
from edge_sdk.atomic import replace_file

SCORES = "scores.json"  # no model has this name: names of models are words


@dataclass(frozen=True)
class Keepsake:
    """Attributes:
    models: e.g. "global" and "personal", each (n,).
    scores: sums over the own held-out samples, at the end.
    finished: the run is over.
    ensemble: how the personal model predicts; None: alone, and any class.
    """

    models: Mapping[str, Vector] = field(default_factory=dict)
    scores: Mapping[str, float] = field(default_factory=dict)
    finished: bool = False
    ensemble: Ensemble | None = None


def save(path: Path, kept: Keepsake) -> None:
    """In one piece: a reader finds the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    told = json.dumps({"scores": dict(kept.scores), "finished": kept.finished, **ensemble_note(kept.ensemble)})
    with replace_file(path) as file:
        arrays: dict[str, Any] = {**kept.models, SCORES: np.frombuffer(told.encode(), np.uint8)}
        np.savez(file, **arrays)


def load(path: Path) -> Keepsake:
    """An empty one if there is no file."""
    if not path.exists():
        return Keepsake()
    with np.load(path, allow_pickle=False) as arrays:
        told = json.loads(arrays[SCORES].tobytes())
        models = {name: arrays[name] for name in arrays.files if name != SCORES}
    note = told.get("ensemble")
    ensemble = None if note is None else Ensemble(note["weight"], tuple(note["classes"]))
    return Keepsake(models, told["scores"], told["finished"], ensemble)


def ensemble_note(ensemble: Ensemble | None) -> dict[str, Any]:
    return {} if ensemble is None else {"ensemble": asdict(ensemble)}
