"""The family of outputs: devices of any architecture compare their outputs on public inputs.

Settings of its methods have `public_batch`, inputs of one comparison, and `features`, the width of the features that
are exchanged in place of logits, or 0.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import numpy as np

from edge_sdk.algebra.vectors import Vector
from edge_sdk.contract.environment.gradients import GradientCounter
from edge_sdk.contract.environment.kernels import Inputs, Rows
from edge_sdk.contract.run import Run
from edge_sdk.errors import Cancelled, UsageError
from edge_sdk.model.bundle import Bundle
from edge_sdk.model.model import Model
from edge_sdk.nodes.kernels import plain
from edge_sdk.nodes.kernels.family import Array, Cancel, DeviceParts, Family, Fields


def check(run: Run, settings: Any, bundle: Bundle) -> None:
    """Raises UsageError if the run names no public inputs, or the bundle is a split model."""
    if not run.public:
        raise UsageError(f"method = {run.method!r}: devices compare outputs on public inputs; name their file, public")
    plain.check(run, settings, bundle)


def check_count(run: Run, settings: Any, count: int) -> None:
    """Raises UsageError if there are too few public inputs for one comparison."""
    if count < settings.public_batch:
        raise UsageError(f"{count} public inputs, a batch of {run.method} has public_batch = {settings.public_batch}")


def inputs(model: Model, x: Array, cancel: Cancel | None = None, features: bool = False) -> Inputs:
    """The inputs x (N, ...) behind a model. `cancel` is asked before every step. `features`: those in place of logits.

    Raises (the functions):
        Cancelled: `cancel()` was true.
    """
    x = model.samples(x)
    forward, vjp = (model.features, model.features_vjp) if features else (model.predict, model.vjp)

    def logits(theta: Vector, rows: Rows) -> Array:
        check_cancelled(cancel)
        return forward(theta, x[rows])

    def pull(theta: Vector, rows: Rows, cotangent: Array) -> Vector:
        total = np.zeros(model.layout.size, np.float32)
        for some in model.batches(np.arange(len(rows))):
            check_cancelled(cancel)
            total += vjp(theta, x[rows[some]], cotangent[some].astype(np.float32))[1]
        return total

    return Inputs(len(x), logits, pull)


def check_cancelled(cancel: Cancel | None) -> None:
    """Raises Cancelled if training is to give way."""
    if cancel is not None and cancel():
        raise Cancelled("training was given up before a step")


def device_kernels(
    model: Model, x: Array, y: Array, public: Array, cancel: Cancel | None = None, features: int = 0
) -> Fields:
    """A device's outputs on its own inputs and on the public ones.

    Args:
        x, y: its training samples. public: the public inputs, in the model's shape. features: the setting.

    Raises:
        UsageError: the model has no logits, or other outputs in training than in use.
    """
    check_model(model, features)
    return {
        "private": inputs(model, x, cancel),
        "labels": y,
        "public": inputs(model, public, cancel, features > 0),
        "architecture": architecture(model),
    }


def for_device(parts: DeviceParts) -> Fields:
    """What the plain family gives, and the device's outputs; gradients through these are counted, too."""
    public, width = public_inputs(parts), parts.settings.features
    own = device_kernels(parts.model, parts.x, parts.y, public, parts.cancel, width)
    counted = {name: with_count(own[name], parts.gradients) for name in ("private", "public")}
    return {**plain.for_device(parts), **own, **counted}


def with_count(some: Inputs, gradients: GradientCounter) -> Inputs:
    """Inputs of which what is pulled back is counted."""

    def pull(theta: Vector, rows: Rows, cotangent: Array) -> Vector:
        found = some.pull(theta, rows, cotangent)
        gradients.add(len(rows))
        return found

    return replace(some, pull=pull)


def public_inputs(parts: DeviceParts) -> Array:
    """The inputs that all devices of the run have, in the shape that the model wants.

    Raises:
        UsageError: this device has none, others than the run names, or too few.
    """
    run, public = parts.run, parts.public
    if public is None:
        raise UsageError(f"{parts.whose}: method {run.method} compares outputs on public inputs: name their file")
    if public.sha256 != run.public:
        known, own = run.public[:12] or "none", public.sha256[:12]
        raise UsageError(f"run {run.id} is for public inputs {known}, {parts.whose} has {own}")
    check_count(run, parts.settings, len(public.x))
    return public.shaped(parts.model.input_shape, parts.whose)


def check_model(model: Model, features: int) -> None:
    """Raises UsageError if the model's outputs cannot be compared with those of others."""
    if [i["dtype"] for i in model.bundle.manifest["inputs"]] != ["float32"]:
        names = ", ".join(i["name"] for i in model.bundle.manifest["inputs"])
        raise UsageError(f"{model.name}: inputs {names}; outputs are compared on public inputs, one array of floats")
    if not model.classes:
        raise UsageError(f"{model.name}: its loss is {model.loss}; outputs are compared between classifiers")
    if model.bundle.manifest["norm"] != "frozen":
        raise UsageError(f"{model.name}: it normalises with each batch; compile it with --norm frozen, or GroupNorm")
    if features and model.features_shape != (features,):
        raise UsageError(f"{model.name}: features of shape {model.features_shape}, the run exchanges {features}")


def architecture(model: Model) -> str:
    """Equal for bundles that differ in their initial parameters only: their graphs take theta as an input."""
    found = hashlib.sha256(bytes(model.bundle.parts["vjp.onnx"]))
    return f"{model.name}-{found.hexdigest()[:12]}"


EVERY_TIER = frozenset({"device", "hospital", "aggregator"})
OUTPUTS = Family(check=check, for_device=for_device, own_bundles=EVERY_TIER, public=True)
