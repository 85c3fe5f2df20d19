"""Samples of several inputs as one array: a record for each sample, with a field for each input."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from edge_sdk.errors import UsageError

Array = npt.NDArray[Any]


def join_records(arrays: Mapping[str, Array]) -> Array:
    """Arrays (N, ...) of the inputs as one array of records (N,), of which rows can be chosen.

    Raises:
        UsageError: there is none, one has no rows to count, or their numbers of rows differ.
    """
    names = ", ".join(arrays)
    if not arrays or any(values.ndim < 1 for values in arrays.values()):
        raise UsageError(f"inputs {names or 'of a sample'}: expected an array (N, ...) for each")
    counts = [len(values) for values in arrays.values()]
    if len(set(counts)) > 1:
        raise UsageError(f"inputs {names}: {counts} samples, expected the same number in each")
    joined = np.empty(counts[0], [(name, values.dtype, values.shape[1:]) for name, values in arrays.items()])
    for name, values in arrays.items():
        joined[name] = values
    return joined


def list_inputs(x: Array) -> dict[str, Array]:
    """Input -> its array (N, ...): the fields of records, or "x" with the array itself."""
    return {"x": x} if x.dtype.names is None else {name: x[name] for name in x.dtype.names}


def name_arrays(x: Array, name: str) -> dict[str, Array]:
    """The arrays that a file has for samples: `NAME`, or `NAME.INPUT` for each input of records."""
    return {name: x} if x.dtype.names is None else {f"{name}.{field}": x[field] for field in x.dtype.names}


def gather_arrays(found: Mapping[str, Array], names: tuple[str, ...]) -> dict[str, Array]:
    """The arrays of a file, with records `NAME` in the place of `NAME.INPUT`, inputs in the order of the alphabet.

    Raises:
        UsageError: there is `NAME`, too, or the inputs have different numbers of rows.
    """
    left = dict(found)
    for name in names:
        fields = {key[len(name) + 1 :]: left.pop(key) for key in sorted(found) if key.startswith(f"{name}.")}
        if fields and name in left:
            raise UsageError(f"there is {name} and {name}.{next(iter(fields))}: one array, or one for each input")
        if fields:
            left[name] = join_records(fields)
    return left
