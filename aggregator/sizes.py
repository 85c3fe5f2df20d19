"""Size of what the aggregator sends down: counted in the message itself, whatever the method and what is around it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from edge_sdk.algebra.lowrank import Packed


def walk(message: Any) -> Iterator[Any]:
    """A message and all that is in it, outer parts first."""
    yield message
    if is_dataclass(message):
        for field in fields(message):
            yield from walk(getattr(message, field.name))
    elif isinstance(message, Mapping):
        for value in message.values():
            yield from walk(value)
    elif isinstance(message, (tuple, list)):
        for value in message:
            yield from walk(value)


def count_numbers(message: Any) -> int:
    """Number of floats in the arrays of a message."""
    arrays = (part for part in walk(message) if isinstance(part, np.ndarray))
    return sum(array.size for array in arrays if array.dtype.kind == "f")


def find_packed(message: Any) -> Packed | None:
    """The model in a message that carries one in factors; None: it carries none."""
    return next((found for part in walk(message) if (found := as_packed(part)) is not None), None)


def as_packed(part: Any) -> Packed | None:
    """A part of a message as a packed model, if it is one or has its two fields."""
    if isinstance(part, Packed):
        return part
    names = {field.name for field in fields(part)} if is_dataclass(part) else set()
    return Packed(part.ranks, part.values) if {"ranks", "values"} <= names else None
