"""Median and distinct values of arrays, as numpy's own find them, without the modules that those load.

`np.median` and `np.unique` ask whether what they have is a masked array, and load `numpy.ma` for that: over a megabyte
that a device, which reads its trace at each start, has no other use for.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def find_median(values: npt.ArrayLike, overwrite: bool = False) -> float:
    """The median of numbers (n,), to the bit that of `np.median`: NaN where one is NaN, or there is none.

    Args:
        overwrite: whether an array of floats may be put into another order, in place of a copy.
    """
    numbers = np.asarray(values)
    numbers = numbers if numbers.dtype.kind == "f" else numbers.astype(np.float64)
    if not len(numbers):
        return float("nan")
    half = len(numbers) // 2
    part = numbers if overwrite else numbers.copy()
    part.partition((max(half - 1, 0), half, len(numbers) - 1))  # a NaN is larger than all others
    if np.isnan(part[-1]):
        return float("nan")
    return float(part[half] if len(numbers) % 2 else part[half - 1 : half + 1].mean())


def list_distinct(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The values of an array (n,) of texts or whole numbers, each once, in ascending order, as of `np.unique`."""
    found = np.sort(values)
    new = np.ones(len(found), np.bool_)
    np.not_equal(found[1:], found[:-1], out=new[1:])
    return found[new]
