"""The rollout family: nothing is trained; bundle and model are read at the aggregator, and checked wherever they come.

What a run has signed are the bundle's identity and the hash of the model as float32 bytes, so whoever holds a signed
run can tell whether what comes beside it is what was meant.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from edge_sdk.algebra.vectors import Layout, Vector
from edge_sdk.contract.run import Run
from edge_sdk.data.npz import read_npz
from edge_sdk.errors import UsageError
from edge_sdk.model.bundle import Bundle, BundleError, parse
from edge_sdk.model.tasks.task import OneClass
from edge_sdk.nodes.kernels.family import AggregatorParts, Family, Fields, give_nothing

NUMBERS = "fiu"
"""Kinds of numpy's types that parameters may have in a file."""


def check(run: Run, settings: Any, bundle: Bundle) -> None:
    """Raises UsageError for a bundle whose model no device runs alone, or whose outputs are never right or wrong."""
    if bundle.is_split:
        raise UsageError(f"bundle {bundle.manifest['name']} is a split model, which no device runs alone")
    if not isinstance(bundle.task, OneClass) and not bundle.task.settles:
        what = f"bundle {bundle.manifest['name']} predicts {bundle.task.in_words()}"
        why = "a rollout compares versions by what is right, of values as shares of a range"
        raise UsageError(f"task {bundle.task.kind}: {why}; {what}")


def for_aggregator(parts: AggregatorParts) -> Fields:
    """The version to be rolled out.

    Raises:
        UsageError: the model's file does not fit the bundle, or is another one than the run names.
    """
    settings = parts.run.settings
    if settings.get("undo"):
        return {}
    assert parts.bundle.path is not None
    theta = parts.bundle.theta0 if parts.model is None else read_model(parts.model, parts.bundle.layout)
    if (found := hash_model(theta)) != settings.get("theta"):
        raise UsageError(f"model {parts.model}: its hash is {found[:12]}, the run is for {settings.get('theta')!r:.14}")
    return {"bundle": np.frombuffer(parts.bundle.path.read_bytes(), np.uint8), "theta": theta}


def read_model(path: Path, layout: Layout) -> Vector:
    """A global model, float32 (n,), from a file with an array for each parameter.

    Raises:
        UsageError: it cannot be read, or is not of this layout.
    """
    try:
        found = read_npz(path)
    except UsageError as error:
        raise UsageError(f"model {error}") from error
    wanted = {slot.name: slot.shape for slot in layout.slots}
    are_numbers = all(array.dtype.kind in NUMBERS for array in found.values())
    if {name: array.shape for name, array in found.items()} != wanted or not are_numbers:
        raise UsageError(f"model {path}: has not the parameters of its bundle")
    theta = np.zeros(layout.size, np.float32)
    for slot in layout.slots:
        layout.view(theta, slot)[...] = found[slot.name]
    if not np.isfinite(theta).all():
        raise UsageError(f"model {path}: has numbers that are not finite")
    return theta


def hash_model(theta: Vector) -> str:
    """The sha256 (hex) of a model as little-endian float32."""
    return hashlib.sha256(np.asarray(theta, "<f4").tobytes()).hexdigest()


def open_version(run: Run, bundle: Any, theta: Any) -> Bundle:
    """The bundle of a version that has come, checked.

    Args:
        bundle: bytes of its file, uint8 (k,).
        theta: the model, float32 (n,).

    Raises:
        UsageError: they are not what the run says.
    """
    try:
        found = parse(np.asarray(bundle, np.uint8).tobytes())
    except BundleError as error:
        raise UsageError(f"what came as the bundle of the run is none: {error}") from None
    if found.sha256 != run.bundle:
        raise UsageError(f"another bundle came than the run says: {found.sha256[:12]}, it is for {run.bundle[:12]}")
    if (got := hash_model(theta)) != run.settings.get("theta"):
        raise UsageError(f"another model came than the run says: its hash is {got[:12]}")
    check(run, None, found)
    return found


VERSIONS = Family(check=check, for_device=give_nothing, for_aggregator=for_aggregator, augments=True)
