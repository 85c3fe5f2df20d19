"""The mixing of first-B as a matrix over all hospitals, and connectivity over a window of rounds (assumption A1)."""

import numpy as np


def first_b(names, members):
    """1/B among the B members; the others keep their own. Symmetric and idempotent."""
    inside = np.isin(names, sorted(members))
    if not inside.any():
        return np.eye(len(names))
    return np.where(np.outer(inside, inside), 1 / inside.sum(), np.diag(~inside).astype(np.float64))


def is_connected(matrices):
    """Whether the union of the graphs of a window of rounds is strongly connected (assumption A1)."""
    union = np.add.reduce([a > 0 for a in matrices], dtype=np.int64) > 0
    reach = (union | np.eye(len(union), dtype=bool)).astype(np.int64)
    for _ in range(len(union)):
        reach = (reach @ reach > 0).astype(np.int64)
    return bool((reach > 0).all())
