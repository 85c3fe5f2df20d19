"""The codec: writes frozen dataclasses as bytes and reads them back. What arrives is checked completely.

    u32 little-endian, length of the header | header | body of each array

The header is msgpack: a dataclass is [name, fields in order], an array an extension (see bodies.py). The header and
every body are padded with zeros to a multiple of 8 bytes. New fields go to the end and have defaults; nothing is ever
reordered or retyped. An error names the place in the message: "expected float32 (64, 3), got (64,) at $.gradient".

Bytes from a peer cannot make a node use much more memory than they take up themselves. Bodies are views of the input.
A header has at most HEADER_LIMIT bytes and CONTAINERS containers, and becomes Python objects only when all that its
lengths promise is there.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any, TypeVar, overload

import msgpack  # type: ignore[import-untyped]
import numpy as np
import numpy.typing as npt

from edge_sdk.algebra.vectors import Layout
from edge_sdk.errors import EncodeError, PeerError, UsageError
from edge_sdk.wire.codec.bodies import ALIGN, PADDING, Array, BodyReader, BodyWriter, Fault
from edge_sdk.wire.codec.composites import declared, named, written_name
from edge_sdk.wire.codec.schema import Schema

T = TypeVar("T")

LIMIT = 256 * 2**20
HEADER_LIMIT = 4 * 2**20  # bytes: tens of thousands of names and numbers; what is larger belongs into an array
SMALL = 2**10  # bytes of a header that is not looked through beforehand
CONTAINERS = 2**17  # tuples, maps and arrays in a header: an empty one is one byte there, and a hundred in Python

_LENGTH = struct.Struct("<I")


class DecodeError(PeerError):
    """Bytes that are no message of this codec. The text ends with the address of what is wrong."""


class Codec:
    """Writes and reads some dataclasses and all that they contain.

    Args:
        roots: frozen dataclasses: what a message may be, and what may lie in a field of type Any.
        layout: of theta: fixes the symbol "n" of shapes, and is handed to each message's own `check`. None: "n" is a
            symbol like others and no `check` is called.
        dtype: the run's float type, which the element type "float" stands for.
        limit: bytes of a message, both ways.
        finite: refuse NaN and infinities in arrays, and let each message check itself. Not so for what a node saves of
            itself: a state may hold what has diverged, and it must be readable again whatever it holds.

    Raises:
        UsageError: two classes of one name, or a class or field that cannot be written.
    """

    def __init__(
        self,
        roots: Iterable[type],
        *,
        layout: Layout | None = None,
        dtype: npt.DTypeLike = np.float32,
        limit: int = LIMIT,
        finite: bool = True,
    ) -> None:
        self._roots = Schema(roots, layout, dtype, checks=finite).roots
        self._limit, self._finite = limit, finite

    def encode(self, obj: Any) -> bytes:
        """The bytes of a root.

        Raises:
            EncodeError: something in it is not as declared, or it is larger than the limit.
        """
        writer = BodyWriter(self._finite)
        try:
            header = msgpack.packb(declared(obj, self._roots).encode(obj, writer))
            return assemble(header, writer.bodies, self._limit)
        except Fault as fault:
            raise EncodeError(str(fault)) from fault

    @overload
    def decode(self, data: bytes | memoryview, expect: None = None) -> Any: ...
    @overload
    def decode(self, data: bytes | memoryview, expect: type[T]) -> T: ...
    def decode(self, data: bytes | memoryview, expect: type | None = None) -> Any:
        """Read a message. Its arrays are read-only views of the bytes, so these must not change afterwards.

        Args:
            data: from `encode`, or from anybody.
            expect: the only root that will do.

        Raises:
            DecodeError: the bytes are not as declared, not complete, too many, or not what is expected.
        """
        known = self._roots if expect is None else {written_name(expect): self._root(expect)}
        try:
            view = memoryview(data).cast("B")
            raw, reader = open_message(view, self._limit, self._finite)
            made = named(raw, known).decode(raw, reader)
            if reader.position != len(view):
                raise Fault(f"{len(view) - reader.position} bytes after the last array")
            return made
        except Fault as fault:
            raise DecodeError(str(fault)) from fault

    def _root(self, cls: type) -> Any:
        if (coder := self._roots.get(written_name(cls))) is None or coder.types != (cls,):
            raise UsageError(f"expect = {cls.__name__}, which is none of {', '.join(self._roots)}")
        return coder


def assemble(header: bytes, bodies: list[Array], limit: int) -> bytes:
    if len(header) > HEADER_LIMIT:
        raise Fault(f"a header of {len(header)} bytes, at most {HEADER_LIMIT} outside of arrays")
    if len(header) > CONTAINERS:
        unpack(memoryview(header))  # it may have more containers than a reader takes: what is written must be readable
    head = _LENGTH.size + len(header)
    parts: list[Any] = [_LENGTH.pack(len(header)), header, padding(head)]
    size = head + -head % ALIGN
    for body in bodies:
        parts += body, padding(body.nbytes)
        size += body.nbytes + -body.nbytes % ALIGN
    if size > limit:
        raise Fault(f"a message of {size} bytes, at most {limit}")
    return b"".join(parts)


def padding(size: int) -> bytes:
    return PADDING[: -size % ALIGN]


def open_message(data: memoryview, limit: int, finite: bool) -> tuple[Any, BodyReader]:
    """Unpack the header of a message; returns it, and the reader of the bodies."""
    if len(data) > limit:
        raise Fault(f"a message of {len(data)} bytes, at most {limit}")
    if len(data) < _LENGTH.size:
        raise Fault(f"truncated: {len(data)} of {_LENGTH.size} bytes of the header's length")
    (size,) = _LENGTH.unpack_from(data)
    there = len(data) - _LENGTH.size
    if size > min(HEADER_LIMIT, there):
        short = f"truncated: {there} of {size} bytes of the header"
        raise Fault(short if size <= HEADER_LIMIT else f"a header of {size} bytes, at most {HEADER_LIMIT}")
    end = _LENGTH.size + size
    reader = BodyReader(data, end, finite)
    reader.skip_padding()
    return unpack(data[_LENGTH.size : end]), reader


def unpack(header: memoryview) -> Any:
    """Unpack a header, once it is known that all that its lengths promise is there."""
    size = max(1, len(header))
    if size <= SMALL:
        return unpack_small(header)
    scout = msgpack.Unpacker(read_size=size, max_buffer_size=size)
    count = ContainerCount()
    try:
        scout.feed(header)
        scout.skip()  # makes no objects, where unpacking would make room for a list of a billion items that never come
        return msgpack.unpackb(
            header,
            use_list=False,
            strict_map_key=True,
            list_hook=count.items,
            object_pairs_hook=count.pairs,
            ext_hook=count.extension,
        )
    except (ValueError, msgpack.UnpackException) as error:
        raise Fault(f"the header is no msgpack: {str(error) or type(error).__name__}") from error


def unpack_small(header: memoryview) -> Any:
    """Unpack a header so small that it is unpacked at once: the room that its lengths make msgpack ask for in vain is
    at most SMALL items for each of SMALL / 5 lists, and it cannot have too many containers."""
    try:
        return msgpack.unpackb(
            header,
            use_list=False,
            strict_map_key=True,
            object_pairs_hook=make_map,
            max_array_len=SMALL,
            max_map_len=SMALL,
        )
    except (ValueError, msgpack.UnpackException) as error:
        raise Fault(f"the header is no msgpack: {str(error) or type(error).__name__}") from error


def make_map(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    """The map of these pairs, each of another key."""
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a map has the same key twice")
    return made


class ContainerCount:
    """Counts the containers that msgpack makes, and stops it when there are too many."""

    def __init__(self) -> None:
        self.seen = 0

    def items(self, items: tuple[Any, ...]) -> tuple[Any, ...]:
        self.seen += 1
        if self.seen > CONTAINERS:
            raise ValueError(f"more than {CONTAINERS} tuples, maps and arrays")
        return items

    def extension(self, code: int, data: bytes) -> msgpack.ExtType:
        self.items(())
        return msgpack.ExtType(code, data)

    def pairs(self, pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
        self.items(())
        return make_map(pairs)
