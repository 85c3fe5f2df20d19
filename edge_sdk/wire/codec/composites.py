"""Coders of what has a name in bytes: dataclasses, unions of them, and Any.

Two class variables of a dataclass say how it is written. Neither is a field, and neither crosses the wire:

    written_as     its name in bytes, where that is not the name of the class
    encode_once    True: it holds no arrays, and the same object is written again and again (a node's round, with every
                   record), so the codec keeps what it has written of the latest one
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from typing import Any

import numpy as np

from edge_sdk.algebra.vectors import Layout
from edge_sdk.errors import UsageError
from edge_sdk.wire.codec.bodies import BodyReader, BodyWriter, Fault, Nesting, array_header, clip, code_of, short
from edge_sdk.wire.codec.coders import (
    BOOL,
    FLOAT,
    INT,
    SCALARS,
    Coder,
    Decode,
    Encode,
    mapping,
    names,
    sequence,
    unexpected,
)

TUPLE, SET = 0, 1  # first item of a tuple and of a frozenset behind Any, where a dataclass has its name

Step = tuple[str, Encode, Decode, bool]
"""A field of a dataclass: its name, its encoder and decoder, and whether it must be there (it has no default)."""


def written_name(cls: type) -> str:
    """Name of a dataclass in bytes: `written_as` where it has one, else the name of the class."""
    return str(cls.__dict__.get("written_as", getattr(cls, "__name__", "")))


def dataclass_coder(cls: type, steps: list[Step], layout: Layout | None) -> Coder:
    """Coder of a dataclass: [name, fields in order]. Fields at the end that have defaults may be missing."""
    name, construct = written_name(cls), constructor(cls, layout)
    once = bool(getattr(cls, "encode_once", False))
    latest: tuple[Any, list[Any]] = (None, [])  # an object, and what was written of it: replaced together, for threads

    def encode(value: Any, writer: BodyWriter) -> list[Any]:
        nonlocal latest
        known = latest
        if known[0] is value is not None:
            return known[1]
        if type(value) is not cls:
            raise unexpected(name, value)
        writer.enter()
        done: list[Any] = [name]
        try:
            for field, put, _, _ in steps:
                done.append(put(getattr(value, field), writer))
        except Fault as fault:
            fault.path.append(f".{field}")
            raise
        writer.depth -= 1
        if once:
            latest = value, done
        return done

    def decode(raw: Any, reader: BodyReader) -> Any:
        if type(raw) is not tuple or not raw or raw[0] != name:
            raise unexpected(name, raw)
        check_count(name, len(raw) - 1, steps)
        reader.enter()
        done: dict[str, Any] = {}
        try:
            for (field, _, take, _), item in zip(steps, raw[1:], strict=False):
                done[field] = take(item, reader)
        except Fault as fault:
            fault.path.append(f".{field}")
            raise
        reader.depth -= 1
        return construct(done)

    return Coder(name, (cls,), tuple, encode, decode)


def check_count(name: str, count: int, steps: list[Step]) -> None:
    if count > len(steps):
        raise Fault(f"expected {len(steps)} fields of {name}, got {count}")
    for field, _, _, required in steps[count:]:
        if required:
            raise Fault(f"missing field {field!r} of {name}")


def constructor(cls: type, layout: Layout | None) -> Callable[[dict[str, Any]], Any]:
    """A function that makes a value of what was read, and lets it check itself."""
    own = getattr(cls, "check", None)
    check = own if layout is not None and callable(own) else None

    def construct(values: dict[str, Any]) -> Any:
        try:
            made = cls(**values)
            if check is not None:
                check(made, layout)
        except Exception as error:  # a check may fail in any way on what a peer has sent: the bytes are at fault
            raise Fault(f"{cls.__name__}: {clip(str(error), 300)}") from error
        return made

    return construct


def union(members: tuple[Coder, ...], where: str) -> Coder:
    """Coder of X | Y: a value is written as the member of its type, and read by msgpack's type or by its name."""
    text = " | ".join(m.text for m in members)
    by_name = {m.text: m for m in members if is_dataclass(m.types[0])}
    by_raw = {m.raw: m for m in members if m.text not in by_name}
    if len(by_name) + len(by_raw) != len(members) or (by_name and tuple in by_raw):
        raise UsageError(f"{where}: the members of {text} cannot be told apart in bytes")
    by_type = {kind: m for m in members for kind in m.types[:1]}
    ordered = sorted(members, key=lambda m: m.raw is float)  # float takes an int too, so it is asked last

    def encode(value: Any, writer: BodyWriter) -> Any:
        if member := by_type.get(type(value)):
            return member.encode(value, writer)
        for member in ordered:
            if isinstance(value, member.types):
                return member.encode(value, writer)
        raise unexpected(text, value)

    def decode(raw: Any, reader: BodyReader) -> Any:
        if by_name and type(raw) is tuple:
            return named(raw, by_name).decode(raw, reader)
        if member := by_raw.get(type(raw)):
            return member.decode(raw, reader)
        raise unexpected(text, raw)

    return Coder(text, tuple(t for m in members for t in m.types), object, encode, decode)


def declared(value: Any, known: Mapping[str, Coder]) -> Coder:
    """The coder of a dataclass that is to be written."""
    coder = known.get(written_name(type(value)))
    if coder is None or coder.types != (type(value),):
        raise Fault(f"type {type(value).__name__} is not declared", f"declared: {', '.join(known)}")
    return coder


def named(raw: Any, known: Mapping[str, Coder]) -> Coder:
    """The coder of the dataclass whose name comes first in what has arrived."""
    if type(raw) is not tuple or not raw or type(raw[0]) is not str:
        raise unexpected(" | ".join(known), raw)
    if raw[0] not in known:
        raise Fault(f"unknown type {short(raw[0])}", f"known: {', '.join(known)}")
    return known[raw[0]]


def anything(roots: Mapping[str, Coder]) -> Coder:
    """Coder of Any: a root, or plain data with roots in it. Symbols of shapes start anew in each such root."""

    def encode(value: Any, writer: BodyWriter) -> Any:
        if coder := SCALARS.get(type(value)):
            return coder.encode(value, writer)
        writer.enter()
        done = encode_compound(value, writer)
        writer.depth -= 1
        return done

    def encode_compound(value: Any, writer: BodyWriter) -> Any:
        if isinstance(value, tuple):
            return [TUPLE, *items.encode(value, writer)]
        if is_dataclass(value):
            return own_sizes(declared(value, roots).encode, value, writer)
        if isinstance(value, frozenset):
            return [SET, *strings.encode(value, writer)]
        if isinstance(value, Mapping):
            return table.encode(value, writer)
        if isinstance(value, np.ndarray):
            return writer.array(value, code_of(value))
        for scalar in (BOOL, INT, FLOAT):  # of numpy
            if isinstance(value, scalar.types):
                return scalar.encode(value, writer)
        return own_sizes(declared(value, roots).encode, value, writer)

    def decode(raw: Any, reader: BodyReader) -> Any:
        if type(raw) in SCALARS:
            return raw
        reader.enter()
        done = decode_compound(raw, reader)
        reader.depth -= 1
        return done

    def decode_compound(raw: Any, reader: BodyReader) -> Any:
        if type(raw) is dict:
            return table.decode(raw, reader)
        if type(raw) is tuple and raw and type(raw[0]) is int and raw[0] in (TUPLE, SET):
            return (items if raw[0] == TUPLE else strings).decode(raw[1:], reader)
        if header := array_header(raw):
            return reader.array(*header)
        return own_sizes(named(raw, roots).decode, raw, reader)

    itself = Coder("Any", (object,), object, encode, decode)
    items, table, strings = sequence(itself), mapping(itself), names()
    return itself


def own_sizes(do: Callable[[Any, Any], Any], value: Any, nesting: Nesting) -> Any:
    """Encode or decode a value in which no symbol of a shape stands for a size yet."""
    outer, nesting.sizes = nesting.sizes, {}
    done = do(value, nesting)
    nesting.sizes = outer
    return done
