"""The native form of a graph: with operators of the library auscult-native."""

from __future__ import annotations

from edge_sdk.models.derive.targets import Target
from edge_sdk.models.passes.native.fuse import fuse_elementwise
from edge_sdk.models.passes.native.native_nodes import use_native_nodes


def native_form(target: Target) -> Target | None:
    """A graph that gives the same values, with the same inputs and outputs; None: the library does nothing better.

    Larger operators come first: what stands between two of them may then be one program.
    """
    larger = use_native_nodes(target)
    fused = fuse_elementwise(target if larger is None else larger)
    return larger if fused is None else fused
