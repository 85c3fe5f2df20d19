"""Small traces and files for the tests of this folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from edge_sdk.data.traces.read import Trace


def trace_of(codes: Sequence[int], steps: Sequence[float] | None = None, channels: int = 2) -> Trace:
    """Values count the samples, so that a sample shared by two windows shows. `steps`: seconds between samples."""
    n = len(codes)
    time = np.concatenate([[0.0], np.cumsum([0.1] * (n - 1) if steps is None else steps)])
    values = np.stack([np.arange(n) + 1000 * c for c in range(channels)], axis=1).astype(np.float32)
    names = tuple(f"c{i}" for i in range(channels))
    return Trace("t", time, values, names, np.array(codes, np.int64), ("a", "b", "c"), 10.0, "0")


def runs(*lengths: tuple[int, int]) -> list[int]:
    """Codes from (code, length) in order."""
    return [code for code, length in lengths for _ in range(length)]


def samples(first: npt.NDArray[np.int64], window: int) -> set[int]:
    return {int(i) for a in first for i in range(a, a + window)}


def write_csv(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path
