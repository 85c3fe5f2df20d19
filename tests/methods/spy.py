"""What crossed the wires of a run, to be held against what should not have."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

import numpy as np

from edge_sdk.algebra import lowrank
from tests.methods.problems import LAYOUT


def arrays(value) -> Iterator[np.ndarray]:
    """All arrays inside a message."""
    if isinstance(value, np.ndarray):
        yield value
    elif dataclasses.is_dataclass(value):
        yield from (a for f in dataclasses.fields(value) for a in arrays(getattr(value, f.name)))
    elif isinstance(value, Mapping):
        yield from (a for v in value.values() for a in arrays(v))
    elif isinstance(value, (list, tuple)):
        yield from (a for v in value for a in arrays(v))


def read_from_wires(transcript, private) -> int:
    """How many of these vectors can be read from a message: as they are or up to a factor, packed or not."""
    seen = {a.tobytes(): a for _, _, m in transcript.crossed for a in arrays(m) if a.dtype.kind == "f"}
    directions = [a / np.linalg.norm(a) for a in seen.values() if a.any()]
    found = 0
    for p in private:
        forms = [p, lowrank.dense(LAYOUT, p).values] if len(p) == LAYOUT.size else [p]
        found += any(is_parallel(a, f) for a in directions for f in forms)
    return found


def is_parallel(direction, p) -> bool:
    return len(direction) == len(p) and bool(abs(abs(direction @ p) / np.linalg.norm(p) - 1) < 1e-10)
