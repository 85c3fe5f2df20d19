"""Dataclasses that are made and changed a dozen times for every message, so that `frozen=True` would cost too much."""

from __future__ import annotations

from dataclasses import Field, dataclass, field
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field, Field))
def record(cls: type[T]) -> type[T]:
    """A dataclass that nobody may write to. The type checker sees to that; at run time it would make making five times
    as slow."""
    made = dataclass(unsafe_hash=True)(cls)
    made.made_by_record = True  # type: ignore[attr-defined]
    return made


def is_record(cls: type) -> bool:
    """`record` made this very class, so that it counts as frozen although Python would let its fields be set."""
    return bool(cls.__dict__.get("made_by_record"))


def changed(record: T, /, **changes: Any) -> T:
    """A copy with some fields changed, in a tenth of the time of `dataclasses.replace`.

    Not for classes with slots or `__post_init__`.
    """
    new: T = object.__new__(type(record))
    new.__dict__.update(record.__dict__)
    new.__dict__.update(changes)
    return new
