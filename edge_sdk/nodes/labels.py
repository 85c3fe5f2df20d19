"""Label names of a run, as the numbers that a model is trained with."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from edge_sdk.errors import UsageError


def class_codes(names: Iterable[str], classes: tuple[str, ...], where: str) -> npt.NDArray[np.int64]:
    """Label names as indices (N,) into the classes of a run.

    Raises:
        UsageError: a name is no class of the run. `where` says whose label it is.
    """
    index = {name: i for i, name in enumerate(classes)}
    names = list(names)
    unknown = sorted({n for n in names if n not in index})
    if unknown:
        raise UsageError(f"{where}: label {unknown[0]!r} is no class of this run; there are: {', '.join(classes)}")
    return np.asarray([index[n] for n in names], np.int64)


def listed(names: Iterable[str], classes: tuple[str, ...]) -> npt.NDArray[np.bool_]:
    """Which labels (N,) are classes of a run."""
    known = set(classes)
    return np.asarray([name in known for name in names], np.bool_)
