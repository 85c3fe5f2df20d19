"""A device's samples as the inputs of its bundle take them."""

from __future__ import annotations

from dataclasses import replace

from edge_sdk.data.samples import Samples, Unlabelled
from edge_sdk.errors import UsageError
from edge_sdk.model.inputs import Array
from edge_sdk.model.model import Model
from edge_sdk.model.split_model import own_shape

AXES = 2
"""Of a window: channels and time."""


def fit_samples(model: Model, samples: Samples, whose: str) -> Samples:
    """The samples with each input of the type that the model has, in its order.

    Args:
        whose: name of the node, for the error.

    Raises:
        UsageError: an input is missing, or has another shape, type or range.
    """
    return replace(samples, x=fit_inputs(model, samples.x, whose))


def fit_unlabelled(model: Model, samples: Unlabelled, whose: str) -> Unlabelled:
    """Samples without labels in the same form."""
    return replace(samples, x=fit_inputs(model, samples.x, f"{whose}: unlabelled"))


def fit_inputs(model: Model, x: Array, whose: str) -> Array:
    """Inputs as `fit_samples` has them."""
    divided = model.bundle.is_split
    one = len(model.bundle.manifest["inputs"]) == 1 and x.dtype.names is None
    shape, wanted = x.shape[1:], own_shape(model, "device")
    if (divided or one) and shape != wanted:
        alike = len(shape) == len(wanted) == AXES and shape[0] == wanted[0]
        more = f" (of a trace: window = {wanted[1]} in [data], --window {wanted[1]})" if alike else ""
        raise UsageError(f"{whose}: samples of shape {shape}, the bundle's input is {wanted}{more}")
    if divided:
        return x
    try:
        return model.samples(x)
    except UsageError as error:
        raise UsageError(f"{whose}: {error}") from error
