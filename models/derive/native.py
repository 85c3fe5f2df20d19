"""The native form of a graph: operators of the library auscult-native in the place of loops and of many small nodes."""

from __future__ import annotations

from edge_sdk.models.derive.targets import Target
from edge_sdk.models.passes.fuse import fuse_elementwise
from edge_sdk.models.passes.native_loops import use_native_loops


def native_form(target: Target) -> Target | None:
    """A graph that gives the same values, with the same inputs and outputs; None: the library does nothing better.

    Loops come first: what stands between two of them may then be one operator.
    """
    looped = use_native_loops(target)
    fused = fuse_elementwise(target if looped is None else looped)
    return looped if fused is None else fused
