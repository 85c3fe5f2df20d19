"""Windows for the tests of the sample store: their values say which they are."""

from __future__ import annotations

import numpy as np

from edge_sdk.data.live.windower import LiveWindows

BEGAN = 1_700_000_000.0
SHAPE = (2, 8)


def make_windows(numbers: range, recording: int = 50, began: float = BEGAN) -> LiveWindows:
    """Window k: all k, from second k to k + 0.9, in recordings of so many windows."""
    k = np.array(numbers, np.float64)
    x = np.ascontiguousarray(np.broadcast_to(k[:, None, None], (len(k), *SHAPE)), np.float32)
    return LiveWindows(x, began + k, began + k + 0.9, (k // recording).astype(np.int64) * 1000)


def numbers_in(store: object) -> list[int]:
    """Numbers of all labelled windows."""
    found = store.labelled()  # type: ignore[attr-defined]
    return [int(store.read(int(id))[0, 0]) for id in found.ids]  # type: ignore[attr-defined]
