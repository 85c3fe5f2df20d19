"""The forms in which a bundle has a graph. All compute the same; a device takes the last of these that it can run.

    GRAPH.onnx           theta as a whole, standard operators (in blocked graphs onnxruntime's, too); always there
    GRAPH.tensors.onnx   the tensors of theta one by one, if the manifest's entry of the graph has `tensors`
    GRAPH.native.onnx    operators of the library auscult-native, too, if the entry has `native`: true

The native form takes theta as the second form does where there is one, else as the first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edge_sdk.algebra.vectors import Layout
from edge_sdk.errors import UsageError
from edge_sdk.model.theta_tensors import TENSORS, read_tensors, tensor_part

NATIVE = "native"
NATIVE_DOMAIN = "auscult"
"""Domain of the library's own operators, which no other form may have."""


def native_part(graph: str) -> str:
    """Name of the part that has a graph's native form."""
    return f"{graph}.{NATIVE}.onnx"


def has_native(entry: Mapping[str, Any] | None) -> bool:
    """True if the manifest's entry of a graph says that there is a native form."""
    return entry is not None and entry.get(NATIVE) is True


def has_native_graphs(manifest: Mapping[str, Any]) -> bool:
    """True if a bundle has the native form of any graph."""
    return any(has_native(entry) for entry in manifest["graphs"].values())


def list_forms(
    graph: str, entry: Mapping[str, Any], layout: Layout, parts: Mapping[str, memoryview]
) -> list[tuple[memoryview, bool]]:
    """The forms of a graph that a bundle has, each with True if it is the native one.

    Raises:
        UsageError: one that the entry promises is missing, or the list of tensors does not fit the layout.
    """
    forms = [(parts[f"{graph}.onnx"], False)]
    if TENSORS in entry:
        read_tensors(graph, entry, layout)
        forms.append((find_part(graph, tensor_part(graph), parts), False))
    if entry.get(NATIVE, True) is not True:
        raise UsageError(f"graphs.{graph}.{NATIVE} = {str(entry[NATIVE])[:50]!r}, expected true, or nothing")
    if has_native(entry):
        forms.append((find_part(graph, native_part(graph), parts), True))
    return forms


def find_part(graph: str, name: str, parts: Mapping[str, memoryview]) -> memoryview:
    if name not in parts:
        raise UsageError(f"graph {graph!r} has no part {name}")
    return parts[name]
