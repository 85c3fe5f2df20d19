"""The plain family: every device trains one whole model on its own samples."""

from __future__ import annotations

from typing import Any

from edge_sdk.algebra import classification
from edge_sdk.contract.run import Run
from edge_sdk.errors import UsageError
from edge_sdk.model.bundle import Bundle
from edge_sdk.nodes.kernels.family import DeviceParts, Family, Fields
from edge_sdk.nodes.kernels.split import is_split


def check(run: Run, settings: Any, bundle: Bundle) -> None:
    """Raises UsageError if the bundle is a split model, which methods of this family cannot train."""
    if is_split(bundle):
        name = bundle.manifest["name"]
        raise UsageError(f"bundle {name} is a split model, and method = {run.method!r} trains a whole one")


def for_device(parts: DeviceParts) -> Fields:
    """grad_fn and samples and, where samples are held out, score; classifiers also judge."""
    grad_fn = parts.model.grad_fn(parts.x, parts.y, cancel=parts.cancel)
    return {"grad_fn": grad_fn, "samples": len(parts.x), **judges(parts)}


def judges(parts: DeviceParts) -> Fields:
    """What judges a model by the held-out samples; evaluations also tell how its scores are distributed."""
    if parts.held_out is None or not len(parts.held_out[0]):
        return {}
    model, (x, y) = parts.model, parts.held_out
    found: Fields = {"score": model.score(x, y)}
    if model.loss == "cross_entropy":
        found["judge"] = lambda theta: classification.sums(y, model.predict(theta, x))
    return found


PLAIN = Family(check=check, for_device=for_device)
