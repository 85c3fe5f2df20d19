"""Chooses how many samples a device puts through a training graph at once.

Values between operators stay in the cache if they fit; otherwise they go through memory, which is slower than the
arithmetic of most operators. So a batch goes through the graph in steps that fit, unless reading all parameters once
per step would cost more than that saves. A recurrent layer multiplies its weights at each step of time with one row
per sample, and reads them all for it: there a few more samples cost next to nothing.
"""

from __future__ import annotations

from math import log2

from edge_sdk.models.ir.graph import OnnxGraph
from edge_sdk.models.ir.shapes import BatchDim, multiply

CACHED = 640 * 1024  # bytes of a step's largest value: a part of the second-level cache of larger devices
FEWEST, FEWEST_IN_TIME, MOST = 4, 16, 64
RECURRENT = frozenset({"GRU", "LSTM"})
FLOAT = 4  # bytes


def choose_max_batch(g: OnnxGraph, parameters: int) -> int:
    """Samples per step: a power of two from FEWEST (FEWEST_IN_TIME if a layer is recurrent) to MOST.

    The largest value of a step takes at most CACHED bytes, or half of what the parameters take, whichever is more.
    """
    room = max(CACHED, parameters * FLOAT // 2)
    fewest = FEWEST_IN_TIME if any(n.op in RECURRENT for n in g.nodes) else FEWEST
    fitting = max(fewest, room // max(1, find_largest_value(g)))
    return min(MOST, 1 << int(log2(fitting)))


def find_largest_value(g: OnnxGraph) -> int:
    """The bytes per sample of the largest value that a node of the forward graph makes."""
    sizes = (multiply(g.shapes[o]) for n in g.nodes for o in n.outputs if o in g.shapes)
    return max((s.times * FLOAT for s in sizes if isinstance(s, BatchDim)), default=0)
