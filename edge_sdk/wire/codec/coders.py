"""Coders: they write and read the values of one annotation, such as numbers, text, containers and arrays.

A `Coder` is a pair of closures that is made once, when a codec is built, so that a message costs calls and no
interpretation. What a coder writes is what msgpack packs; what it reads is what msgpack unpacked, and not yet trusted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableSet, Set
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import msgpack  # type: ignore[import-untyped]
import numpy as np

from edge_sdk.algebra.arrays import ANY, DTYPES, Tensor
from edge_sdk.wire.codec.bodies import (
    BodyReader,
    BodyWriter,
    Fault,
    Nesting,
    Shape,
    array_header,
    code_of,
    describe,
    short,
)

Encode = Callable[[Any, BodyWriter], Any]
Decode = Callable[[Any, BodyReader], Any]

LEAST, MOST = -(2**63), 2**64 - 1  # the integers that msgpack can write
LARGEST_INT = 2**45
"""Of a message: no round, count or size comes near to it, and sums over as many children as a node may have stay below
2**63, so what is added up can be saved."""
LARGEST_FLOAT = 2.0**64  # of a message: such numbers can be squared and added up without end


@dataclass(frozen=True)
class Coder:
    """Writes and reads the values of one annotation.

    Attributes:
        text: the annotation, in the words of an error.
        types: Python's types that it writes; a union picks its member by them.
        raw: the type as which a value comes out of msgpack; a union picks its member by it.
        encode: (value, writer) -> what msgpack packs.
        decode: (what msgpack unpacked, reader) -> value.
    """

    text: str
    types: tuple[type, ...]
    raw: type
    encode: Encode
    decode: Decode


def kind_of(value: Any) -> str:
    """A wrong value in the words of an error; for a container only its type."""
    if value is None:
        return "None"
    if isinstance(value, (bool, int, float, str, bytes)):
        return f"{type(value).__name__} {short(value)}"
    if isinstance(value, np.ndarray):
        return describe(value.shape, str(value.dtype))
    if header := array_header(value):
        return describe(header[1], DTYPES[header[0]])
    if type(value) is tuple and value and type(value[0]) is str:
        return f"tuple of {short(value[0])}, ..."
    return "an unknown extension" if type(value) is msgpack.ExtType else type(value).__name__


def unexpected(expected: str, value: Any) -> Fault:
    return Fault(f"expected {expected}, got {kind_of(value)}")


def exactly(kind: type, text: str) -> Decode:
    """A decoder for values that msgpack unpacks as what they are: checks the type, and subclasses are refused."""

    def decode(raw: Any, _: BodyReader) -> Any:
        if type(raw) is not kind:
            raise unexpected(text, raw)
        return raw

    return decode


def encode_none(value: Any, _: BodyWriter) -> None:
    if value is not None:
        raise unexpected("None", value)


def encode_bool(value: Any, _: BodyWriter) -> bool:
    if not isinstance(value, (bool, np.bool_)):
        raise unexpected("bool", value)
    return bool(value)


def encode_int(value: Any, _: BodyWriter) -> int:
    if type(value) is not int and not isinstance(value, np.integer):
        raise unexpected("int", value)
    number = int(value)
    if not LEAST <= number <= MOST:
        raise Fault(f"expected an int of 64 bits, got {number.bit_length()} bits")
    return number


def encode_float(value: Any, writer: BodyWriter) -> float:
    if isinstance(value, (float, np.floating)):
        return float(value)
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise unexpected("float", value)
    if int(number := float(encode_int(value, writer))) != value:
        raise Fault(f"expected float, got int {value}, which no float equals")
    return number


def encode_str(value: Any, _: BodyWriter) -> str:
    if type(value) is not str:
        raise unexpected("str", value)
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise unexpected("text that UTF-8 can write", value) from error
    return value


def encode_bytes(value: Any, _: BodyWriter) -> bytes:
    if type(value) is not bytes:
        raise unexpected("bytes", value)
    return value


NONE = Coder("None", (type(None),), type(None), encode_none, exactly(type(None), "None"))
BOOL = Coder("bool", (bool, np.bool_), bool, encode_bool, exactly(bool, "bool"))
INT = Coder("int", (int, np.integer), int, encode_int, exactly(int, "int"))
FLOAT = Coder("float", (float, np.floating, int, np.integer), float, encode_float, exactly(float, "float"))
STR = Coder("str", (str,), str, encode_str, exactly(str, "str"))
BYTES = Coder("bytes", (bytes,), bytes, encode_bytes, exactly(bytes, "bytes"))

SCALARS: dict[type, Coder] = {type(None): NONE, bool: BOOL, int: INT, float: FLOAT, str: STR, bytes: BYTES}


def within(coder: Coder, least: float, most: float) -> Coder:
    """The coder of numbers that lie in a range. Its writer keeps to it too: what is written can be read."""

    def checked(value: Any) -> Any:
        if not least <= value <= most:  # also where it is no number
            raise Fault(f"expected {coder.text} from {least:g} to {most:g}, got {value!r:.40}")
        return value

    def encode(value: Any, writer: BodyWriter) -> Any:
        return checked(coder.encode(value, writer))

    def decode(raw: Any, reader: BodyReader) -> Any:
        return checked(coder.decode(raw, reader))

    return Coder(coder.text, coder.types, coder.raw, encode, decode)


RANGED = {
    **SCALARS,
    int: within(INT, 0, LARGEST_INT),
    float: within(FLOAT, -LARGEST_FLOAT, LARGEST_FLOAT),
}
"""Scalars of a message. What a field means may bound it more closely, which is for the message's own `check`."""


def sequence(item: Coder) -> Coder:
    """Coder of tuple[X, ...]."""
    text, put, take = f"tuple[{item.text}, ...]", item.encode, item.decode

    def encode(value: Any, writer: BodyWriter) -> list[Any]:
        if type(value) is not tuple:
            raise unexpected(text, value)
        if item is FLOAT and {*map(type, value)} == {float}:  # measured times, saved with each round of a node
            return [*value]
        return code_each(put, value, writer)

    def decode(raw: Any, reader: BodyReader) -> tuple[Any, ...]:
        if type(raw) is not tuple:
            raise unexpected(text, raw)
        return tuple(code_each(take, raw, reader))

    return Coder(text, (tuple,), tuple, encode, decode)


def code_each(do: Callable[[Any, Any], Any], values: tuple[Any, ...], nesting: Nesting) -> list[Any]:
    """Encode or decode every item of a tuple; a fault gets the item's index as a part of its address."""
    done: list[Any] = []
    try:
        for value in values:
            done.append(do(value, nesting))
    except Fault as fault:
        fault.path.append(f"[{len(done)}]")
        raise
    return done


def fixed_tuple(items: tuple[Coder, ...]) -> Coder:
    """Coder of tuple[X, Y]: as many items as are named."""
    text = f"tuple[{', '.join(i.text for i in items) or '()'}]"

    def code(values: Any, nesting: Any, steps: tuple[Callable[[Any, Any], Any], ...]) -> list[Any]:
        if type(values) is not tuple or len(values) != len(items):
            got = f"a tuple of {len(values)}" if type(values) is tuple else kind_of(values)
            raise Fault(f"expected {text}, got {got}")
        done: list[Any] = []
        try:
            for step, value in zip(steps, values, strict=True):
                done.append(step(value, nesting))
        except Fault as fault:
            fault.path.append(f"[{len(done)}]")
            raise
        return done

    puts, takes = tuple(i.encode for i in items), tuple(i.decode for i in items)
    return Coder(text, (tuple,), tuple, lambda v, w: code(v, w, puts), lambda v, r: tuple(code(v, r, takes)))


def mapping(item: Coder) -> Coder:
    """Coder of Mapping[str, X]: read as a dict, in the order in which it was written."""
    text = f"Mapping[str, {item.text}]"

    def code(values: Any, nesting: Any, step: Callable[[Any, Any], Any]) -> dict[str, Any]:
        done: dict[str, Any] = {}
        key = None
        try:
            for key, value in values.items():
                done[encode_str(key, nesting)] = step(value, nesting)
        except Fault as fault:
            fault.path.append(f"[{short(key)}]")
            raise
        return done

    def encode(value: Any, writer: BodyWriter) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise unexpected(text, value)
        return code(value, writer, item.encode)

    def decode(raw: Any, reader: BodyReader) -> dict[str, Any]:
        if type(raw) is not dict:
            raise unexpected(text, raw)
        return code(raw, reader, item.decode)

    return Coder(text, (Mapping,), dict, encode, decode)


def names() -> Coder:
    """Coder of frozenset[str], also for Set[str]: written in order, so that equal sets are equal bytes."""
    text = "frozenset[str]"

    def encode(value: Any, writer: BodyWriter) -> list[str]:
        if not isinstance(value, Set) or isinstance(value, MutableSet):
            raise unexpected(text, value)
        return sorted(encode_str(v, writer) for v in value)

    def decode(raw: Any, reader: BodyReader) -> frozenset[str]:
        if type(raw) is not tuple:
            raise unexpected(text, raw)
        read: list[str] = code_each(STR.decode, raw, reader)
        if any(a >= b for a, b in pairwise(read)):
            raise Fault(f"expected {text} in ascending order, each name once")
        return frozenset(read)

    return Coder(text, (Set,), tuple, encode, decode)


def tensor(spec: Tensor) -> Coder:
    """Coder of Annotated[..., Tensor(dims, dtype)], where dtype is one of DTYPES."""
    wanted, dims = DTYPES.index(spec.dtype), spec.dims

    def check(code: int, shape: Shape, nesting: Nesting, value: Any) -> None:
        if code != wanted or (shape != dims and not fits(dims, shape, nesting.sizes)):
            known = tuple(nesting.sizes.get(str(d), d) for d in dims)
            raise unexpected(describe(known, spec.dtype), value)

    def encode(value: Any, writer: BodyWriter) -> Any:
        if not isinstance(value, np.ndarray):
            raise unexpected(describe(dims, spec.dtype), value)
        code = code_of(value)
        check(code, value.shape, writer, value)
        return writer.array(value, code)

    def decode(raw: Any, reader: BodyReader) -> Any:
        if (header := array_header(raw)) is None:
            raise unexpected(describe(dims, spec.dtype), raw)
        check(header[0], header[1], reader, raw)
        return reader.array(*header)

    return Coder(describe(dims, spec.dtype), (np.ndarray,), msgpack.ExtType, encode, decode)


def fits(dims: tuple[int | str, ...], shape: Shape, sizes: dict[str, int]) -> bool:
    """A shape is of these dims. A symbol that is met for the first time gets its size."""
    if len(dims) != len(shape):
        return False
    for dim, size in zip(dims, shape, strict=True):
        if dim not in (ANY, size) and (type(dim) is int or sizes.setdefault(str(dim), size) != size):
            return False
    return True
