"""What a bundle keeps of a sample: the values at which its front ends, as the manifest lists them.

A bundle has a front where its graph does work that no trainable parameter reaches (models/derive/front.py). The graph
`front` does it, and `loss_grad^front` and `predict^front` begin with what it gives; the manifest's `front` lists that.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from edge_sdk.errors import UsageError

FRONT = "front"
"""Name of the graph, and of the manifest's entry."""
FROM_FRONT = "^front"
"""Behind the name of a graph that begins with the values of the front."""
PREFIX = "front."
"""Before the number of a value. Inputs of modules have no dot in their names."""
SIZES = {"float32": 4, "int64": 8, "bool": 1}
Declared = tuple[Mapping[str, Any], ...]


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
        check_sides(entries, manifest["graphs"])
    return tuple(entries)


def check_sides(entries: list[Mapping[str, Any]], graphs: Mapping[str, Any]) -> None:
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
