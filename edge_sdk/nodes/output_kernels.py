"""FedAL's kernels from a bundle: a device's outputs, and what pulls on them, as functions of theta."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np
import numpy.typing as npt

from edge_sdk.algebra.vectors import Vector
from edge_sdk.contract.run import Run
from edge_sdk.errors import Cancelled, UsageError
from edge_sdk.methods.fedal.settings import Inputs, Rows
from edge_sdk.model.model import Model
from edge_sdk.nodes.assembly import method_of, settings_of

Array = npt.NDArray[Any]
Cancel = Callable[[], bool]


def exchanged(run: Run) -> bool:
    """Whether the devices of a run compare their outputs on public inputs."""
    return "public" in {f.name for f in fields(method_of(run).env)}


def is_companion(run: Run, sha256: str) -> bool:
    """Whether a device with this bundle takes part with its outputs only, beside those that train the run's model."""
    return method_of(run).companions and sha256 != run.bundle


def check_public(run: Run) -> None:
    """Raises UsageError if the run names no public inputs, and its method needs them."""
    if exchanged(run) and not run.public:
        raise UsageError(f"method = {run.method!r}: devices compare outputs on public inputs; name their file, public")


def check_enough(run: Run, count: int) -> None:
    """Raises UsageError if there are too few public inputs for what the run does with them."""
    if exchanged(run) and count < (batch := settings_of(run).public_batch):
        raise UsageError(f"{count} public inputs, a batch of {run.method} has public_batch = {batch}")


def inputs(model: Model, x: Array, cancel: Cancel | None = None, features: bool = False) -> Inputs:
    """x (N, ...) behind a model. `cancel` is asked before every step. `features`: those in place of logits.

    Raises (the functions):
        Cancelled: `cancel()` was true.
    """
    x = model.samples(x)
    forward, vjp = (model.features, model.features_vjp) if features else (model.predict, model.vjp)

    def logits(theta: Vector, rows: Rows) -> Array:
        asked(cancel)
        return forward(theta, x[rows])

    def pull(theta: Vector, rows: Rows, cotangent: Array) -> Vector:
        total = np.zeros(model.layout.size, np.float32)
        for some in model.batches(np.arange(len(rows))):
            asked(cancel)
            total += vjp(theta, x[rows[some]], cotangent[some].astype(np.float32))[1]
        return total

    return Inputs(len(x), logits, pull)


def asked(cancel: Cancel | None) -> None:
    if cancel is not None and cancel():
        raise Cancelled("training was given up before a step")


def device_kernels(
    model: Model, x: Array, y: Array, public: Array, cancel: Cancel | None = None, features: int = 0
) -> dict[str, Any]:
    """Fields of fedal.Env for a device.

    Args:
        x, y: its training samples. public: the public inputs, in the model's shape. features: the setting.

    Raises:
        UsageError: the model has no logits, or other outputs in training than in use.
    """
    if not model.classes:
        raise UsageError(f"{model.name}: its loss is {model.loss}; outputs are compared between classifiers")
    if model.bundle.manifest["norm"] == "batch":
        raise UsageError(f"{model.name}: it normalises with each batch; compile it with --norm frozen, or GroupNorm")
    if features and model.features_shape != (features,):
        raise UsageError(f"{model.name}: features of shape {model.features_shape}, the run exchanges {features}")
    return {
        "private": inputs(model, x, cancel),
        "labels": y,
        "public": inputs(model, public, cancel, features > 0),
        "architecture": architecture(model),
    }


def architecture(model: Model) -> str:
    """Equal for bundles that differ in their initial parameters only: their graphs take theta as an input."""
    found = hashlib.sha256(bytes(model.bundle.parts["vjp.onnx"]))
    return f"{model.name}-{found.hexdigest()[:12]}"
