"""Arrays that go into a model: type, shape and range are checked, and errors name the argument. Losses per sample."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from edge_sdk.errors import UsageError

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float32]
Shape = tuple[int | str, ...]
FLOAT32 = np.dtype(np.float32)


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


@lru_cache(64)
def even_weights(count: int) -> Floats:
    """Weights (count,) of a mean; the same array each time, which nobody may change."""
    weights = np.full(count, 1 / count, np.float32)
    weights.flags.writeable = False
    return weights


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
    """Loss per sample, float32 (B,); formulas in models/ir/losses.py."""
    if kind == "cross_entropy":
        shifted = z - z.max(1, keepdims=True)
        return np.asarray(np.log(np.exp(shifted).sum(1)) - shifted[np.arange(len(y)), y], np.float32)
    if kind == "binary_cross_entropy":
        each = np.maximum(z, 0) - z * y + np.log1p(np.exp(-np.abs(z)))
    else:
        each = np.square(z - y)
    return np.asarray(each.reshape(len(z), -1).mean(1), np.float32)
