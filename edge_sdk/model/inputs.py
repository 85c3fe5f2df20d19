"""Arrays that go into a model: type, shape and range are checked, and errors name the argument. Losses per sample."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from edge_sdk.errors import UsageError
from edge_sdk.records import join_records

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float32]
Data = Array | Mapping[str, Array] | tuple[Array, ...]
"""Samples for a model: one array, or one for each of its inputs, by name or in order."""
Shape = tuple[int | str, ...]
FLOAT32 = np.dtype(np.float32)
SLACK = 1e-3
"""By how much probabilities of one position may be more than 1 together, as rounded ones are."""

UNKNOWN = 1e30
"""A target of which nobody knows what it is, for the losses "masked_squared_error" and "masked_huber", which leave it
out. It is no NaN, which operators of runtimes do not agree on."""
KNOWN_BELOW = UNKNOWN / 10
MASKED = "masked_"


def join_inputs(declared: Sequence[Mapping[str, Any]], x: Data) -> Array:
    """Checked samples as one array, of which rows can be chosen: with a field for each input if there are several.

    Args:
        declared: the inputs in a bundle's manifest.

    Raises:
        UsageError: an input is missing, or has another shape, type or number of samples.
    """
    if len(declared) == 1 and not isinstance(x, (Mapping, tuple)):
        return check_input(declared[0], x)
    names = [str(i["name"]) for i in declared]
    given = name_inputs(names, x)
    arrays = [check_input(i, given[n]) for i, n in zip(declared, names, strict=True)]
    return join_records(dict(zip(names, arrays, strict=True))) if len(names) > 1 else arrays[0]


def name_inputs(names: Sequence[str], x: Data) -> Mapping[str, Array]:
    """Input -> array, from a dictionary, a tuple in order, or what `join_inputs` returned."""
    if isinstance(x, Mapping):
        there = list(x)
    elif isinstance(x, tuple):
        there = list(names) if len(x) == len(names) else [f"{len(x)} arrays"]
    else:
        there = list(x.dtype.names or ["one array"])
    if set(there) != set(names):
        raise UsageError(
            f"x: expected {', '.join(names)}, in a dictionary or a tuple; got {', '.join(map(str, there))}"
        )
    return dict(zip(names, x, strict=True)) if isinstance(x, tuple) else {n: x[n] for n in names}


def refuse_unknown(x: Data) -> None:
    """Raises UsageError for samples (N, ...) with a number that nobody knows: outputs of it would be none, or wrong."""
    named = {str(n): each for n, each in enumerate(x)} if isinstance(x, tuple) else x if isinstance(x, Mapping) else {}
    if isinstance(x, np.ndarray):
        named = {"": x} if x.dtype.names is None else {name: x[name] for name in x.dtype.names}
    for name, values in named.items():
        values = np.asarray(values)
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            row, of = int(np.argwhere(~np.isfinite(values))[0][0]), f" of input {name}" if name else ""
            raise UsageError(f"predict: row {row}{of} has a value that is not finite; leave out what nobody knows")


def split_inputs(declared: Sequence[Mapping[str, Any]], x: Array) -> dict[str, Array]:
    """Input -> contiguous array, from what `join_inputs` returned or some of its rows."""
    if x.dtype.names is None:
        return {str(declared[0]["name"]): x}
    return {name: np.ascontiguousarray(x[name]) for name in x.dtype.names}


def check_input(declared: Mapping[str, Any], value: Array) -> Array:
    """Samples of one input, of the shape and type that the manifest declares."""
    name, shape = str(declared["name"]), ("B", *declared["shape"])
    if declared["dtype"] == "float32":
        return check_floats(name, value, shape)
    value = np.asarray(value)
    if value.dtype.kind == "f" and fits_shape(value.shape, shape) and (value == np.floor(value)).all():
        value = value.clip(-1, declared["below"]).astype(np.int64)  # whole numbers, as a table or float32 file has them
    return check_integers(name, value, shape, int(declared["below"]))


def check_floats(name: str, value: Array, shape: Shape) -> Floats:
    """`value` as contiguous float32 of this shape ("B": any length)."""
    if type(value) is np.ndarray and value.dtype == np.float32 and value.shape == shape and value.flags.c_contiguous:
        return value  # as in every step of a training
    value = np.asarray(value)
    if value.dtype is FLOAT32 and value.flags.c_contiguous and fits_shape(value.shape, shape):
        return value
    if not np.issubdtype(value.dtype, np.floating) or not fits_shape(value.shape, shape):
        raise UsageError(f"{name}: expected float {format_shape(shape)}, got {value.dtype} {value.shape}")
    return np.ascontiguousarray(value, np.float32)


def check_integers(name: str, value: Array, shape: Shape, below: int) -> Array:
    """`value` as int64 in [0, below). onnxruntime would take a label out of range for no class at all."""
    value = np.asarray(value)
    if not np.issubdtype(value.dtype, np.integer) or not fits_shape(value.shape, shape):
        raise UsageError(f"{name}: expected integers {format_shape(shape)}, got {value.dtype} {value.shape}")
    if value.size and (value.min() < 0 or value.max() >= below):
        worst = value.min() if value.min() < 0 else value.max()
        raise UsageError(f"{name}: {worst} is out of range, expected 0 to {below - 1}")
    return np.ascontiguousarray(value, np.int64)


def check_targets(kind: str, y: Array, count: int, output: tuple[int, ...], classes: int) -> Array:
    """Targets of `count` samples for a loss of this kind: labels (B,), or float32 of the output's shape.

    Raises:
        UsageError: another shape, a label that is no class, probabilities of a position that are more than 1 together.
    """
    if kind == "cross_entropy":
        return check_integers("y", y, (count,), classes)
    y = check_floats("y", y, (count, *output))
    if kind == "soft_cross_entropy" and y.size and not (y.min() >= 0 and y.sum(1).max() <= 1 + SLACK):
        raise UsageError(
            f"y: from {y.min():g}, with sums up to {y.sum(1).max():g} over its {output[0]} classes, expected "
            "probabilities: 0 or more, 1 together (or 0 at a position that does not count)"
        )
    return y


@lru_cache(64)
def even_weights(count: int) -> Floats:
    """Weights (count,) of a mean; the same array each time, which nobody may change."""
    weights = np.full(count, 1 / count, np.float32)
    weights.flags.writeable = False
    return weights


def check_weights(weights: Array | None, count: int) -> Floats:
    """Weights of samples as float32 (count,); None: those of the mean."""
    return even_weights(count) if weights is None else check_floats("weights", weights, (count,))


def fits_shape(have: tuple[int, ...], want: Shape) -> bool:
    if len(have) != len(want):
        return False
    for h, w in zip(have, want, strict=True):  # noqa: SIM110  # quicker than all(), and in each prediction
        if h != w and not isinstance(w, str):
            return False
    return True


def format_shape(shape: Shape) -> str:
    return "(" + ", ".join(map(str, shape)) + ("," if len(shape) == 1 else "") + ")"


def compute_losses(kind: str, z: Floats, y: Array) -> Floats:
    """Loss per sample, float32 (B,); formulas in models/ir/specification/losses.py."""
    if kind == "cross_entropy":
        shifted = z - z.max(1, keepdims=True)
        return np.asarray(np.log(np.exp(shifted).sum(1)) - shifted[np.arange(len(y)), y], np.float32)
    if kind == "soft_cross_entropy":
        shifted = z - z.max(1, keepdims=True)
        each = -y * (shifted - np.log(np.exp(shifted).sum(1, keepdims=True)))
        return np.asarray(each.reshape(len(z), -1).sum(1) * (z.shape[1] / z[0].size), np.float32)
    if kind == "binary_cross_entropy":
        each = np.maximum(z, 0) - z * y + np.log1p(np.exp(-np.abs(z)))
    else:
        d = np.where(y < KNOWN_BELOW, z - y, np.float32(0)) if kind.startswith(MASKED) else z - y
        each = (cut := np.clip(d, -1, 1)) * (d - cut / 2) if kind.endswith("huber") else np.square(d)
    return np.asarray(each.reshape(len(z), -1).mean(1), np.float32)
