"""What a device keeps of a run that is over: its models and its own scores, in a file that outlives the process."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from edge_sdk.algebra.vectors import Vector
from edge_sdk.atomic import replace_file

SCORES = "scores.json"  # no model has this name: names of models are words


@dataclass(frozen=True)
class Keepsake:
    """Attributes:
    models: e.g. "global" and "personal", each (n,).
    scores: sums over the own held-out samples, at the end.
    finished: the run is over.
    """

    models: Mapping[str, Vector] = field(default_factory=dict)
    scores: Mapping[str, float] = field(default_factory=dict)
    finished: bool = False


def save(path: Path, kept: Keepsake) -> None:
    """In one piece: a reader finds the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    told = json.dumps({"scores": dict(kept.scores), "finished": kept.finished})
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
    return Keepsake(models, told["scores"], told["finished"])
