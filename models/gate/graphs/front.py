"""The comparison of graphs that begin with a front's values with those that begin with the data: bit for bit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from edge_sdk.models.gate.graphs.check import YShape
from edge_sdk.models.gate.graphs.gate import Truth
from edge_sdk.models.gate.references.cases import Case
from edge_sdk.models.gate.references.runnable import RunnableGraph

CASES = (Case("front", 410, 3), Case("front", 411, 7, 3.0), Case("front", 412, 20, 0.1), Case("front", 413, 1))
SPREAD = 0.05
"""Of the noise on the parameters, in all cases but the first."""
PIECES = (1, 2, 5)
"""Samples of a step: in whichever a device computes the front, it keeps the same."""

Arrays = Mapping[str, np.ndarray]


def draw_fronts(truth: Truth, fixed: Arrays, y_shape: YShape) -> Iterator[dict[str, np.ndarray]]:
    """Batches with parameters, for graphs of float32."""
    for k, case in enumerate(CASES):
        noise = SPREAD * bool(k) * np.random.default_rng(case.seed).standard_normal(fixed["theta"].size)
        data = {name: v.numpy() for name, v in truth.draw(case, y_shape).items()}
        yield {**fixed, **data, "theta": fixed["theta"] + noise}


def find_difference(
    front: RunnableGraph, whole: RunnableGraph, rest: RunnableGraph, truth: Truth, fixed: Arrays, y_shape: YShape
) -> str:
    """What is not the same to the bit, for people; "": nothing.

    Args:
        whole: from the data. rest: from what `front` gives.
    """
    for given in draw_fronts(truth, fixed, y_shape):
        kept, count = front(given), len(given["weights"])
        names = [i.name for i in truth.inputs]
        for size in PIECES:
            parts = [front(given, {n: given[n][i : i + size] for n in names}) for i in range(0, count, size)]
            if any(np.concatenate([p[n] for p in parts]).tobytes() != v.tobytes() for n, v in kept.items()):
                return f"the front of a sample depends on whether {size} or {count} are computed at once"
        wanted, found = whole(given), rest(given, kept)
        for name, value in wanted.items():
            if np.asarray(found[name]).tobytes() != np.asarray(value).tobytes():
                return f"{name} is rounded differently behind the cut"
    return ""
