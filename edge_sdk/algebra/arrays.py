"""What a field of a message or a state may hold: written beside its type, checked by the codec.

Examples:
    w: Theta                                                        one vector of the model's size
    logits: Annotated[npt.NDArray[np.floating], Tensor(("?", 10))]  any number of rows of ten
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import numpy.typing as npt

from edge_sdk.errors import UsageError

ANY = "?"  # a dimension of any size

FLOAT = "float"  # the float type of the run: float32 live, float64 in tests of exact identities

DTYPES = (
    "float32", "float64", "float16", "int8", "int16", "int32", "int64",
    "uint8", "uint16", "uint32", "uint64", "bool",
)  # fmt: skip
"""Every element type that may be written. The place in this list is its code in bytes: append, never reorder."""


@dataclass(frozen=True)
class Tensor:
    """Shape and element type of an array field.

    Attributes:
        dims: one entry per axis: a size, "?" for any, or a symbol. A symbol stands for one size in the whole message,
            and "n" for the size of the model where the codec knows its layout.
        dtype: "float" for the float type of the run, or one of DTYPES.
    """

    dims: tuple[int | str, ...]
    dtype: str = FLOAT

    def __post_init__(self) -> None:
        if not isinstance(self.dims, tuple):
            raise UsageError(f"Tensor: dims = {self.dims!r}, it is a tuple with one entry per axis, as in ('n',)")
        for dim in self.dims:
            if not (isinstance(dim, str) and dim) and not (type(dim) is int and dim >= 0):
                raise UsageError(f"Tensor: {dim!r} in dims, an entry is a size from 0 on, a symbol or '?'")
        if self.dtype not in (FLOAT, *DTYPES):
            raise UsageError(f"Tensor: dtype {self.dtype!r} is none of {FLOAT}, {', '.join(DTYPES)}")


@dataclass(frozen=True)
class Within:
    """Range of the numbers of a field, where it is not that of every message (wire/codec/coders.py: RANGED)."""

    least: float
    most: float


OrNone = Annotated[int, Within(-1, 2**31)]
"""A count, or -1 where there is none."""
Drawn = Annotated[int, Within(0, 2**63 - 1)]
"""A number that was drawn at random, or counts on from such a one."""
Rank = OrNone
"""Rank of one layer of a model; -1: the layer is dense (algebra/lowrank.py)."""

Theta = Annotated[npt.NDArray[np.floating], Tensor(("n",))]
"""One vector of the model's size."""

Values = Annotated[npt.NDArray[np.floating], Tensor((ANY,))]
"""A vector of any length."""
