"""What a device keeps of a run: its models and its own scores, in a file that outlives the process."""

from __future__ import annotations

import json
import logging
import struct
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edge_sdk.algebra.vectors import Vector
from edge_sdk.atomic import replace_file

if TYPE_CHECKING:
    from edge_sdk.algebra.ensemble import Ensemble

log = logging.getLogger("auscult.kept_models")
SCORES, TREES = "scores.json", "forest.trees"  # arrays beside those of the models; no model's name has a dot


@dataclass(frozen=True)
class KeptModels:
    """The models of one run on one device.

    Attributes:
        models: e.g. "global" and "personal", each (n,); empty until the run has ended here.
        scores: sums over the own held-out samples, as `reports.judge` names them.
        finished: the run is over.
        ensemble: how the personal model predicts; None: alone, and any class.
        classes: names of the run's classes; empty in files of before they were kept.
        bundle: sha256 of the bundle that the models are for.
    """

    models: Mapping[str, Vector] = field(default_factory=dict)
    scores: Mapping[str, float] = field(default_factory=dict)
    finished: bool = False
    ensemble: Ensemble | None = None
    classes: tuple[str, ...] = ()
    bundle: str = ""


def save(path: Path, kept: KeptModels) -> None:
    """Replace the file in one piece: a reader finds the old content or the new one, also after a power cut."""
    path.parent.mkdir(parents=True, exist_ok=True)
    told = json.dumps(
        {
            "scores": dict(kept.scores),
            "finished": kept.finished,
            **ensemble_note(kept.ensemble),
            "classes": kept.classes,
            "bundle": kept.bundle,
        }
    )
    with replace_file(path, lasting=True) as file:
        arrays: dict[str, Any] = {**kept.models, SCORES: np.frombuffer(told.encode(), np.uint8)}
        if kept.ensemble is not None and len(kept.ensemble.forest):
            arrays[TREES] = kept.ensemble.forest
        np.savez(file, **arrays)


def load(path: Path) -> KeptModels:
    """The content of the file; without a file, no models and no scores.

    A damaged file (each array in it has a checksum) is moved aside for a person to look at, and counts as none.
    """
    if not path.exists():
        return KeptModels()
    try:
        return read(path)
    except (ValueError, KeyError, TypeError, EOFError, struct.error, zipfile.BadZipFile, zlib.error) as error:
        aside = path.with_name(f"{path.name}.damaged")
        path.replace(aside)
        log.error("%s is damaged (%s) and now %s; the models in it are lost", path, error, aside)
        return KeptModels()


def read(path: Path) -> KeptModels:
    from edge_sdk.algebra.ensemble import NO_FOREST, Ensemble  # where a run has made models

    with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        told = json.loads(arrays[SCORES].tobytes())
        models = {name: arrays[name] for name in arrays.files if name not in (SCORES, TREES)}
        forest = arrays[TREES] if TREES in arrays.files else NO_FOREST
    note = told.get("ensemble")
    ensemble = None if note is None else Ensemble(note["weight"], tuple(note["classes"]), forest)
    classes, bundle = tuple(told.get("classes", ())), told.get("bundle", "")
    return KeptModels(models, told["scores"], told["finished"], ensemble, classes, bundle)


def ensemble_note(ensemble: Ensemble | None) -> dict[str, Any]:
    """The entry of a kept file for an ensemble; none where there is no ensemble."""
    return {} if ensemble is None else {"ensemble": {"weight": ensemble.weight, "classes": ensemble.classes}}
