"""Search spaces: between which values settings may be tuned. Each method declares its own next to its Settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

from edge_sdk.errors import UsageError

Value = float | int | str | bool


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`, both included.

    Attributes:
        log: drawn uniformly in their logarithm: for step sizes and weights, whose scale is not known.
        whole: whole numbers.
    """

    low: float
    high: float
    log: bool = True
    whole: bool = False

    def __post_init__(self) -> None:
        if not (isfinite(self.low) and isfinite(self.high) and self.low < self.high):
            raise UsageError(f"range from {self.low} to {self.high}: two numbers, the smaller one first")
        if self.log and not self.low > 0:
            raise UsageError(f"range from {self.low}: a logarithm needs a low end above 0")

    def __contains__(self, value: object) -> bool:
        return isinstance(value, (int, float)) and self.low <= value <= self.high


@dataclass(frozen=True)
class OneOf:
    """One of a few values."""

    values: tuple[Value, ...]

    def __post_init__(self) -> None:
        if len(set(self.values)) < 2 or len(set(self.values)) < len(self.values):
            raise UsageError(f"one of {self.values}: two or more values, each once")

    def __contains__(self, value: object) -> bool:
        return value in self.values


SearchSpace = Mapping[str, Range | OneOf]
"""Setting -> its values; `a.b` is setting b of the table a."""


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Tables from settings with dotted names: {"a.b": 1} is {"a": {"b": 1}}."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        *tables, last = key.split(".")
        at = found
        for table in tables:
            at = at.setdefault(table, {})
        at[last] = value
    return found


def flattened(tables: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Settings with dotted names from tables: the inverse of `nested`."""
    found: dict[str, Any] = {}
    for key, value in tables.items():
        if isinstance(value, Mapping):
            found |= flattened(value, f"{prefix}{key}.")
        else:
            found[prefix + key] = value
    return found


def overlaid(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Two settings as one, tables merged key by key; where both have a value, that of `above` counts."""
    found = dict(below)
    for key, value in above.items():
        old = found.get(key)
        both = isinstance(value, Mapping) and isinstance(old, Mapping)
        found[key] = overlaid(old, value) if both else value  # type: ignore[arg-type]
    return found
