"""Checks of the entries of a bundle's manifest, which may come from anybody; errors name the entry."""

from __future__ import annotations

from math import isfinite
from typing import Any

from edge_sdk.errors import UsageError

MAX_FILE = 512 << 20
MAX_RANK = 8
Json = dict[str, Any]


class BundleError(UsageError):
    """A bundle that cannot be used, and why."""


def is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_FILE


def check_object(value: Any, what: str) -> Json:
    if not isinstance(value, dict):
        raise BundleError(f"{what} must be a JSON object, got {type(value).__name__}")
    return value


def check_augment(table: Any) -> None:
    for name, amount in check_object(table, "augment").items():
        if isinstance(amount, bool) or not isinstance(amount, (int, float)) or not isfinite(amount) or amount < 0:
            raise BundleError(f"augment.{name[:50]} = {str(amount)[:50]!r}: a finite number, 0 or more")


def check_inputs(inputs: Any) -> None:
    if not isinstance(inputs, list) or not inputs:
        raise BundleError("inputs must be a list of at least one")
    for i, entry in enumerate(inputs):
        fields = check_object(entry, f"inputs[{i}]")
        check_dims(f"inputs[{i}]", fields.get("shape"))
        integers = fields.get("dtype") == "int64" and is_count(fields.get("below"))
        if not isinstance(fields.get("name"), str) or not (integers or fields.get("dtype") == "float32"):
            raise BundleError(f"inputs[{i}]: {str(fields)[:100]}, expected a name and float32, or int64 with `below`")


def check_graph_entry(name: str, entry: Json) -> None:
    for side in ("inputs", "outputs"):
        if not isinstance(entry[side], list) or not all(isinstance(value["name"], str) for value in entry[side]):
            raise BundleError(f"graphs.{name}.{side}: {str(entry[side])[:100]}, expected a list of named values")
        for value in entry[side]:
            check_dims(f"graphs.{name}.{side}.{value['name']}", value["shape"])


def check_dims(what: str, shape: Any) -> None:
    if not isinstance(shape, list) or len(shape) > MAX_RANK or not all(d == "B" or is_count(d) for d in shape):
        raise BundleError(f"{what}: {str(shape)[:100]} is no shape")
