"""Messages of every kind, and bytes as a peer with any header would write them."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Annotated, Any, Optional

import msgpack
import numpy as np
import numpy.typing as npt
import pytest

from edge_sdk.algebra.arrays import Tensor, Theta, Values
from edge_sdk.algebra.vectors import Layout, layout_of
from edge_sdk.errors import PeerError
from edge_sdk.wire.codec.codec import Codec, DecodeError

LAYOUT = layout_of(("w", (2, 3), "linear"))


@dataclass(frozen=True)
class Packed:
    ranks: tuple[int, ...]
    values: Values

    def check(self, layout: Layout) -> None:
        if len(self.ranks) != len(layout.slots):
            raise ValueError(f"{len(self.ranks)} ranks for {len(layout.slots)} layers")


@dataclass(frozen=True)
class Global:
    model: Packed
    round: int = 0


@dataclass(frozen=True)
class Sum:
    total: Theta
    count: int = 1
    scores: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Everything:
    whole: int
    real: float
    flag: bool
    text: str
    raw: bytes
    nothing: None
    maybe: int | None
    either: int | float | str | None
    message: Packed | Sum | None
    old_style: Optional[float]  # noqa: UP045
    many: tuple[int, ...]
    pair: tuple[str, float]
    empty: tuple[()]
    table: Mapping[str, tuple[float, ...]]
    names: frozenset[str]
    w: Theta
    by_name: Mapping[str, Theta | None]
    square: Annotated[npt.NDArray[np.int64], Tensor(("k", "k"), "int64")]
    mask: Annotated[npt.NDArray[np.bool_], Tensor(("?", 2), "bool")]
    scalar: Annotated[npt.NDArray[np.floating], Tensor(())]
    anything: Any


@dataclass(frozen=True)
class Chain:
    next: Chain | None = None


@dataclass(frozen=True)
class Box:
    content: Any


def same(a: Any, b: Any) -> bool:
    """Equal in type and in every bit."""
    if type(a) is not type(b):
        return False
    if is_dataclass(a):
        return all(same(getattr(a, f.name), getattr(b, f.name)) for f in fields(a))
    if isinstance(a, np.ndarray):
        return (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return struct.pack("<d", a) == struct.pack("<d", b) if isinstance(a, float) else a == b


def wire(header: Any, *bodies: bytes) -> bytes:
    """Bytes as a peer with any header would write them."""
    packed = header if isinstance(header, bytes) else msgpack.packb(header)
    parts = [struct.pack("<I", len(packed)) + packed, *bodies]
    return b"".join(p + bytes(-len(p) % 8) for p in parts)


def array(code: Any, shape: Any, index: Any) -> Any:
    return msgpack.ExtType(1, msgpack.packb([code, shape, index]))


def refuse(codec: Codec, data: bytes, text: str, expect: type | None = None) -> None:
    """Check that a codec refuses these bytes with this error."""
    with pytest.raises(DecodeError) as caught:
        codec.decode(data, expect)
    assert isinstance(caught.value, PeerError)
    assert str(caught.value) == text
