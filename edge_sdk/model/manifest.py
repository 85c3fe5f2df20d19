"""Checks of the entries of a bundle's manifest, which may come from anybody; errors name the entry.

A bundle has a front where its graph does work that no trainable parameter reaches (models/derive/front.py). The graph
`front` does it, and `loss_grad^front` and `predict^front` begin with what it gives, the values at which it ends: what
is kept of a sample. The manifest's `front` lists them.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite, prod
from typing import Any

from edge_sdk.errors import UsageError

MAX_FILE = 512 << 20
MAX_RANK = 8
Json = dict[str, Any]
FRONT = "front"
"""Name of the graph, and of the manifest's entry."""
FROM_FRONT = "^front"
"""Behind the name of a graph that begins with the values of the front."""
PREFIX = "front."
"""Before the number of a value. Inputs of modules have no dot in their names."""
SIZES = {"float32": 4, "int64": 8, "bool": 1}
Declared = tuple[Mapping[str, Any], ...]


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


def read_front(manifest: Mapping[str, Any]) -> Declared:
    """The values that a manifest lists, each with name, shape of a sample and dtype; empty: the bundle has no front.

    Raises:
        UsageError: saying what is wrong with them.
    """
    entries = manifest.get(FRONT, [])
    if not isinstance(entries, list) or not all(isinstance(e, dict) for e in entries):
        raise UsageError(f"front = {str(entries)[:100]}, expected a list of values")
    for k, entry in enumerate(entries):
        name, dtype, shape = entry.get("name"), entry.get("dtype"), entry.get("shape")
        sizes = isinstance(shape, list) and all(type(d) is int and d > 0 for d in shape)
        if name != f"{PREFIX}{k}" or dtype not in SIZES or not sizes:
            got = str(entry)[:100]
            raise UsageError(f"front[{k}] = {got}, expected name {PREFIX}{k}, dtype {', '.join(SIZES)}, and a shape")
    if entries:
        check_front_sides(entries, manifest["graphs"])
    return tuple(entries)


def check_front_sides(entries: list[Mapping[str, Any]], graphs: Mapping[str, Any]) -> None:
    """Raises UsageError if the graph does not end with these values, or none begins with them."""
    wanted = [(e["name"], ["B", *e["shape"]]) for e in entries]
    made = [(o["name"], o["shape"]) for o in graphs.get(FRONT, {"outputs": []})["outputs"]]
    if made != wanted:
        raise UsageError(f"the graph front gives {str(made)[:100]}, the manifest's front is {str(wanted)[:100]}")
    if f"loss_grad{FROM_FRONT}" not in graphs:
        raise UsageError(f"a bundle with a front has a graph loss_grad{FROM_FRONT}")


def sample_bytes(declared: Declared) -> int:
    """The memory that a sample's values take."""
    return sum(SIZES[e["dtype"]] * prod(e["shape"]) for e in declared)
