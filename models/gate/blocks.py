"""The blocked layout of this machine's onnxruntime."""

from __future__ import annotations

from functools import cache

import numpy as np

from edge_sdk.models.derive.targets import Target
from edge_sdk.models.gate.runnable import RunnableGraph
from edge_sdk.models.passes.blocked import BLOCKS, expect_probe, write_probe


@cache
def find_block() -> int:
    """Channels in a block of onnxruntime's layout on this machine; 0: it has none that graphs are written for."""
    return next((b for b in BLOCKS if has_blocks(b)), 0)


def has_blocks(b: int) -> bool:
    x, y = expect_probe(b)
    try:
        found = RunnableGraph(Target(write_probe(b), ["y"]).model())({"x": x})
    except Exception:  # onnxruntime's exceptions have no common base; a build without the operator refuses the graph
        return False
    return np.array_equal(found["y"], y)
